/* custom.c - trains the model argv[1] (custom.onnx), which has an operator com.example::ScaledTanh that is implemented
 * in scaled_tanh.h, and writes the trained model to argv[2]. */
#include "scaled_tanh.h"

enum { ROWS = 16, STEPS = 100 };

static ampc_status make_batch(ampc_context *c, ampc_tensor *in[2])
{
    const int64_t x_dims[] = {ROWS, 4}, y_dims[] = {ROWS, 2};
    float x[ROWS][4], y[ROWS][2];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = (float)((i * 4 + k) * 37 % 19) / 9 - 1;
        for (int k = 0; k < 2; k++) y[i][k] = x[i][k] > 0 ? 1 : -1;
    }
    ampc_status status = ampc_tensor_create(c, "x", AMPC_F32, 2, x_dims, x, &in[0]);
    return status == AMPC_OK ? ampc_tensor_create(c, "label", AMPC_F32, 2, y_dims, y, &in[1]) : status;
}

static ampc_status train(ampc_session *s, ampc_tensor *in[2])
{
    ampc_step_result step = {.struct_size = sizeof step};
    ampc_status status = AMPC_OK;
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) {
        status = ampc_train_step(s, in, 2, &step);
        if (i % (STEPS - 1) == 0 && status == AMPC_OK) printf("step %d: loss %.4f\n", i + 1, step.loss);
    }
    return status;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {.struct_size = sizeof how, .loss = "mse", .optimizer = "adamw,lr=0.05"};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *in[2] = {NULL, NULL};
    ampc_status status = argc == 3 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_operator_register(c, &scaled_tanh);
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = make_batch(c, in);
    if (status == AMPC_OK) status = train(s, in);
    if (status == AMPC_OK) status = ampc_export_onnx(s, argv[2]);
    printf("%s\n", status == AMPC_OK ? ampc_module_summary(m) : ampc_context_message(c));
    for (int i = 0; i < 2; i++) ampc_tensor_free(in[i]);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
