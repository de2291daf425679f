/* gradients.c - reads and changes unscaled gradients between backward and update.
 *
 *     gradients mlp.onnx
 *
 * mlp.onnx has an input "x" of type float[N,4] and scores for two classes. Each step computes the gradients of one
 * batch in fp16, with loss scaling. They are unscaled, and each parameter's gradient is limited to a part of the
 * parameter's own norm (adaptive gradient clipping, Brock et al. 2021), which no option does. */
#include <ampc.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 32, STEPS = 60, MAX_KEY = 512 };
static const double PART = 0.1, LEAST_NORM = 0.1;
static const char prefix[] = "grad_sum/"; /* followed by the name of the parameter */

static double norm_of(ampc_tensor *t)
{
    const float *x = ampc_tensor_data(t);
    double squares = 0;
    for (size_t i = 0; i < ampc_tensor_bytes(t) / sizeof *x; i++) squares += (double)x[i] * (double)x[i];
    return sqrt(squares);
}

static ampc_status norm_of_parameter(ampc_session *s, const char *name, double *norm)
{
    char key[MAX_KEY];
    ampc_tensor *parameter;
    snprintf(key, sizeof key, "param/%s", name);
    ampc_status status = ampc_session_get(s, key, &parameter);
    if (status != AMPC_OK) return status;
    *norm = norm_of(parameter);
    ampc_tensor_free(parameter);
    return AMPC_OK;
}

/* Limits the gradient with this key; *clipped counts those that were longer. */
static ampc_status clip_one(ampc_session *s, const char *key, int *clipped)
{
    double norm;
    ampc_tensor *gradient;
    ampc_status status = norm_of_parameter(s, key + strlen(prefix), &norm);
    if (status == AMPC_OK) status = ampc_session_get(s, key, &gradient);
    if (status != AMPC_OK) return status;
    float *g = ampc_tensor_data(gradient);
    const double limit = PART * fmax(norm, LEAST_NORM), length = norm_of(gradient);
    if (length > limit) {
        for (size_t i = 0; i < ampc_tensor_bytes(gradient) / sizeof *g; i++) g[i] *= (float)(limit / length);
        status = ampc_session_set(s, key, gradient);
        *clipped += 1;
    }
    ampc_tensor_free(gradient);
    return status;
}

static ampc_status clip_all(ampc_session *s, int *clipped)
{
    const char *key;
    ampc_status status = AMPC_OK;
    for (size_t i = 0; status == AMPC_OK && (key = ampc_session_key(s, i)); i++)
        if (strncmp(key, prefix, strlen(prefix)) == 0) status = clip_one(s, key, clipped);
    return status;
}

static ampc_status step(ampc_session *s, ampc_tensor *in[2], ampc_step_result *result)
{
    double norm = 0;
    int overflow = 0, clipped = 0;
    ampc_status status = ampc_accumulate(s, in, 2, NULL);
    if (status == AMPC_OK) status = ampc_unscale(s, &norm, &overflow);
    if (status == AMPC_OK && !overflow) status = clip_all(s, &clipped); /* after an overflow, ampc_apply skips */
    if (status == AMPC_OK) status = ampc_apply(s, result);
    if (status == AMPC_OK && result->step % 20 == 1)
        printf("step %d: loss %.4f, gradient norm %.4f, %d gradients clipped, loss scale %g\n", (int)result->step,
               result->loss, norm, clipped, result->loss_scale);
    return status;
}

/* The sign of the first coordinate decides the class. */
static ampc_status make_batch(ampc_context *c, ampc_tensor *in[2])
{
    const int64_t dims[] = {ROWS, 4};
    float x[ROWS][4];
    int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = (float)((i * 4 + k) * 37 % 19) / 9 - 1;
        label[i] = x[i][0] > 0;
    }
    ampc_status status = ampc_tensor_create(c, "x", AMPC_F32, 2, dims, x, &in[0]);
    return status == AMPC_OK ? ampc_tensor_create(c, "label", AMPC_I64, 1, dims, label, &in[1]) : status;
}

int main(int argc, char **argv)
{
    /* accumulate: one micro-batch per step, so that the step has three calls */
    const ampc_compile_options how = {
        .struct_size = sizeof how, .loss = "ce", .optimizer = "momentum,lr=0.1", .accumulate = 1};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *in[2] = {NULL, NULL};
    ampc_step_result result = {.struct_size = sizeof result};
    ampc_status status = argc == 2 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = make_batch(c, in);
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) status = step(s, in, &result);
    if (status == AMPC_OK) printf("trained, loss %.4f\n", result.loss);
    else printf("%s\n", argc == 2 ? ampc_context_message(c) : "usage: gradients MODEL");
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
