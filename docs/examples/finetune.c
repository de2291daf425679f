/* finetune.c - fine-tunes a trained model for another task: frozen backbone, new head, another precision.
 *
 *     finetune mlp.onnx WEIGHTS result.safetensors
 *
 * WEIGHTS is a checkpoint, saved at any precision, or a safetensors file of another program, such as a state_dict of
 * PyTorch. mlp.onnx has an input "x" of type float[N,4]; its head is fc2. All else is loaded from WEIGHTS and
 * frozen; BatchNormalization uses its running statistics. */
#include <ampc.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 64, STEPS = 100 };

/* The new task: the sign of the second coordinate decides the class. */
static ampc_status make_batch(ampc_context *c, ampc_tensor *in[2])
{
    const int64_t dims[] = {ROWS, 4};
    float x[ROWS][4];
    int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = (float)((i * 4 + k) * 37 % 19) / 9 - 1;
        label[i] = x[i][1] > 0;
    }
    ampc_status status = ampc_tensor_create(c, "x", AMPC_F32, 2, dims, x, &in[0]);
    return status == AMPC_OK ? ampc_tensor_create(c, "label", AMPC_I64, 1, dims, label, &in[1]) : status;
}

/* Without the globs, all weights are loaded, and a head of another shape is an error. */
static ampc_status load(ampc_session *s, const char *path)
{
    static const char *const head[] = {"fc2.*"};
    const ampc_load_options how = {
        .struct_size = sizeof how, .weights_only = 1, .reinit = head, .n_reinit = sizeof head / sizeof *head};
    return ampc_checkpoint_load_with(s, path, &how, NULL);
}

static ampc_status train(ampc_session *s, ampc_tensor *in[2])
{
    ampc_step_result step = {.struct_size = sizeof step};
    ampc_status status = AMPC_OK;
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) {
        status = ampc_train_step(s, in, 2, &step);
        if (status == AMPC_OK && i == 0) printf("step 1: loss %.4f\n", step.loss);
    }
    if (status == AMPC_OK) printf("fine-tuned, loss %.4f\n", step.loss);
    return status;
}

/* Says whether a parameter of the backbone still has the value `before`. */
static ampc_status compare(ampc_session *s, const char *key, ampc_tensor *before)
{
    ampc_tensor *now;
    ampc_status status = ampc_session_get(s, key, &now);
    if (status != AMPC_OK) return status;
    const int same = memcmp(ampc_tensor_data(now), ampc_tensor_data(before), ampc_tensor_bytes(now)) == 0;
    printf("%s is %s\n", key, same ? "unchanged" : "different");
    ampc_tensor_free(now);
    return AMPC_OK;
}

int main(int argc, char **argv)
{
    static const char backbone[] = "param/fc1.weight";
    const ampc_compile_options how = {.struct_size = sizeof how,
                                      .dtype = "bf16",
                                      .loss = "ce",
                                      .optimizer = "adamw,lr=0.05",
                                      .train = "fc2.*",
                                      .mode = "eval",
                                      .init = "kaiming", /* of the head; the rest is loaded */
                                      .seed = 1};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *in[2] = {NULL, NULL}, *before = NULL;
    ampc_status status = argc == 4 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = load(s, argv[2]);
    if (status == AMPC_OK) status = ampc_session_get(s, backbone, &before);
    if (status == AMPC_OK) status = make_batch(c, in);
    if (status == AMPC_OK) status = train(s, in);
    if (status == AMPC_OK) status = compare(s, backbone, before);
    if (status == AMPC_OK) status = ampc_checkpoint_save(s, argv[3], NULL);
    if (status != AMPC_OK) printf("%s\n", argc == 4 ? ampc_context_message(c) : "usage: finetune MODEL WEIGHTS RESULT");
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
    ampc_tensor_free(before);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
