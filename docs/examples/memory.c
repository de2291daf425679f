/* memory.c - trains a model that is in memory: embedded in the program, or received over a network. Here its bytes are
 * read from the ONNX file argv[1], which has an input "x" of type float[N,4] and float scores for two classes. They may
 * be freed after the import: neither training nor the export to argv[2] reads a file. */
#include <ampc.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 32, STEPS = 50, LIMIT = 1 << 26 };

static void *load(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *bytes = file ? malloc(LIMIT) : NULL;
    *n = bytes ? fread(bytes, 1, LIMIT, file) : 0;
    if (file) fclose(file);
    return bytes;
}

static ampc_status import(ampc_context *c, const char *path, ampc_module **m)
{
    const ampc_compile_options how = {.struct_size = sizeof how, .loss = "ce", .optimizer = "adamw,lr=0.02"};
    ampc_import_options o = {.struct_size = sizeof o};
    void *bytes = load(path, &o.n_bytes);
    o.bytes = bytes;
    ampc_status status = ampc_module_import_with(c, &o, m);
    free(bytes); /* the module has a copy */
    return status == AMPC_OK ? ampc_module_compile(*m, &how) : status;
}

/* The first coordinate decides the class. */
static void fill(float x[BATCH][4], int64_t label[BATCH])
{
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = (float)((i * 7 + k * 5) % 13) / 6 - 1;
        label[i] = x[i][0] > 0;
    }
}

static ampc_status train(ampc_context *c, ampc_session *s)
{
    static float x[BATCH][4];
    static int64_t label[BATCH];
    const int64_t dims[] = {BATCH, 4};
    ampc_tensor *in[2] = {NULL, NULL};
    ampc_step_result step = {.struct_size = sizeof step};
    fill(x, label);
    ampc_status status = ampc_tensor_create(c, "x", AMPC_F32, 2, dims, x, &in[0]);
    if (status == AMPC_OK) status = ampc_tensor_create(c, "label", AMPC_I64, 1, dims, label, &in[1]);
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) status = ampc_train_step(s, in, 2, &step);
    if (status == AMPC_OK) printf("trained, loss %.3f\n", step.loss);
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
    return status;
}

int main(int argc, char **argv)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    if (argc != 3) {
        printf("usage: memory MODEL.onnx TRAINED.onnx\n");
        return AMPC_USAGE;
    }
    const ampc_session_options one = {.struct_size = sizeof one, .threads = 1};
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = import(c, argv[1], &m);
    if (status == AMPC_OK) status = ampc_session_open(m, &one, &s);
    ampc_module_free(m); /* the session keeps it */
    if (status == AMPC_OK) status = train(c, s);
    if (status == AMPC_OK) status = ampc_export_onnx(s, argv[2]);
    if (status != AMPC_OK) printf("%s\n", ampc_context_message(c));
    ampc_session_free(s);
    ampc_context_free(c);
    return (int)status;
}
