/* penalty.c - trains with a penalty of the loss's gradient with respect to the input, and prints it.
 *
 *     penalty mlp.onnx
 *
 * mlp.onnx has an input "x" of type float[N,4] and scores for two classes. The option .grad_penalty adds 0.5 times the
 * norm of d(loss)/dx to the loss, which makes the scores smooth. The result "penalty" is that part of the loss; an
 * evaluation step has none. */
#include <ampc.h>
#include <stdio.h>

enum { ROWS = 32, STEPS = 60 };

/* The sign of the first coordinate decides the class. */
static ampc_status make_batch(ampc_context *c, ampc_tensor *in[2])
{
    const int64_t dims[] = {ROWS, 4};
    float x[ROWS][4];
    int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < 4; j++) x[i][j] = (float)((i * 4 + j) * 37 % 19) / 9 - 1;
        label[i] = x[i][0] > 0;
    }
    ampc_status status = ampc_tensor_create(c, "x", AMPC_F32, 2, dims, x, &in[0]);
    return status == AMPC_OK ? ampc_tensor_create(c, "label", AMPC_I64, 1, dims, label, &in[1]) : status;
}

static ampc_status step(ampc_session *s, ampc_tensor *in[2])
{
    ampc_step_result result = {.struct_size = sizeof result};
    ampc_tensor *penalty;
    ampc_status status = ampc_train_step(s, in, 2, &result);
    if (status != AMPC_OK || result.step % 20 != 1) return status;
    status = ampc_session_get(s, "penalty", &penalty);
    if (status != AMPC_OK) return status;
    const float value = *(const float *)ampc_tensor_data(penalty);
    printf("step %d: loss %.4f, of which the penalty is %.4f\n", (int)result.step, result.loss, (double)value);
    ampc_tensor_free(penalty);
    return AMPC_OK;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {
        .struct_size = sizeof how, .loss = "ce", .optimizer = "adamw,lr=0.02", .grad_penalty = "L2:input,0.5"};
    const char *const results[] = {"penalty"};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *in[2] = {NULL};
    double loss = 0;
    ampc_status status = argc == 2 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = ampc_select(s, "train_step", results, 1);
    if (status == AMPC_OK) status = make_batch(c, in);
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) status = step(s, in);
    if (status == AMPC_OK) status = ampc_eval_step(s, in, 2, &loss);
    if (status == AMPC_OK) printf("trained, loss %.4f\n", loss);
    else printf("%s\n", ampc_context_message(c));
    for (int i = 0; i < 2; i++) ampc_tensor_free(in[i]);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
