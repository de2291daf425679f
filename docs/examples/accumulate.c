/* accumulate.c - trains by windows of micro-batches, and looks at the gradients before each update.
 *
 *     accumulate mlp.onnx
 *
 * mlp.onnx has an input "x" of type float[N,4] and scores for two classes. Each step adds the gradients of four
 * micro-batches of eight samples. They are then unscaled, printed, and clipped by hand to a norm of 1, which
 * .clip_norm = 1 in the options would also do. */
#include <ampc.h>
#include <stdio.h>

enum { MICRO_BATCHES = 4, ROWS = 8, STEPS = 60 };

/* Makes micro-batch `k`: the sign of the first coordinate decides the class. */
static ampc_status make_batch(ampc_context *c, int k, ampc_tensor *in[2])
{
    const int64_t dims[] = {ROWS, 4};
    float x[ROWS][4];
    int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < 4; j++) x[i][j] = (float)(((k * ROWS + i) * 4 + j) * 37 % 19) / 9 - 1;
        label[i] = x[i][0] > 0;
    }
    ampc_status status = ampc_tensor_create(c, "x", AMPC_F32, 2, dims, x, &in[0]);
    return status == AMPC_OK ? ampc_tensor_create(c, "label", AMPC_I64, 1, dims, label, &in[1]) : status;
}

/* Multiplies the gradient of one parameter. */
static ampc_status scale_gradient(ampc_session *s, const char *key, float factor)
{
    ampc_tensor *gradient;
    ampc_status status = ampc_session_get(s, key, &gradient);
    if (status != AMPC_OK) return status;
    float *g = ampc_tensor_data(gradient);
    for (size_t i = 0; i < ampc_tensor_bytes(gradient) / sizeof *g; i++) g[i] *= factor;
    status = ampc_session_set(s, key, gradient);
    ampc_tensor_free(gradient);
    return status;
}

/* Makes the norm of all gradients at most 1. The keys of gradients are grad_sum/PARAMETER. */
static ampc_status clip(ampc_session *s, double norm)
{
    static const char prefix[] = "grad_sum/";
    ampc_status status = AMPC_OK;
    const char *key;
    for (size_t i = 0; norm > 1 && status == AMPC_OK && (key = ampc_session_key(s, i)); i++) {
        size_t same = 0;
        while (prefix[same] && key[same] == prefix[same]) same++;
        if (!prefix[same]) status = scale_gradient(s, key, (float)(1 / norm));
    }
    return status;
}

static ampc_status step(ampc_session *s, ampc_tensor *in[MICRO_BATCHES][2], ampc_step_result *result)
{
    ampc_status status = AMPC_OK;
    double norm = 0;
    int overflow = 0;
    for (int k = 0; k < MICRO_BATCHES && status == AMPC_OK; k++) status = ampc_accumulate(s, in[k], 2, NULL);
    if (status == AMPC_OK) status = ampc_unscale(s, &norm, &overflow);
    if (status == AMPC_OK && !overflow) status = clip(s, norm);
    if (status == AMPC_OK) status = ampc_apply(s, result);
    if (status == AMPC_OK && result->step % 20 == 1)
        printf("step %d: loss %.4f, gradient norm %.4f\n", (int)result->step, result->loss, norm);
    return status;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {
        .struct_size = sizeof how, .loss = "ce", .optimizer = "adamw,lr=0.02", .accumulate = MICRO_BATCHES};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *in[MICRO_BATCHES][2] = {{NULL}};
    ampc_step_result result = {.struct_size = sizeof result};
    ampc_status status = argc == 2 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    for (int k = 0; k < MICRO_BATCHES && status == AMPC_OK; k++) status = make_batch(c, k, in[k]);
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) status = step(s, in, &result);
    if (status == AMPC_OK) printf("trained, loss %.4f\n", result.loss);
    else printf("%s\n", ampc_context_message(c));
    for (int k = 0; k < MICRO_BATCHES; k++)
        for (int i = 0; i < 2; i++) ampc_tensor_free(in[k][i]);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
