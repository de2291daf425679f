/* infer.c - runs the ONNX model argv[1] once, in fp16 where that is safe, on zeros; symbolic dimensions are 1. Prints
 * the inputs and the precision in which the model was computed. */
#include <ampc.h>

#include <stdio.h>

enum { MAX_COUNT = 16 };

static ampc_status make_input(ampc_context *c, ampc_module *m, size_t index, ampc_tensor **out)
{
    ampc_input_info info = {.struct_size = sizeof info};
    ampc_status status = ampc_module_input(m, "infer", index, &info);
    if (status != AMPC_OK) return status;
    printf("input %s:", info.name);
    for (int i = 0; i < info.rank; i++) {
        if (info.dims[i] < 0) info.dims[i] = 1;
        printf(" %lld", (long long)info.dims[i]);
    }
    printf("\n");
    return ampc_tensor_create(c, info.name, info.dtype, info.rank, info.dims, NULL, out);
}

static ampc_status infer(ampc_context *c, ampc_module *m, ampc_session *s, ampc_tensor **inputs, size_t *made)
{
    size_t n;
    ampc_status status = ampc_module_input_count(m, "infer", &n);
    for (; status == AMPC_OK && *made < n && *made < MAX_COUNT; ++*made)
        if ((status = make_input(c, m, *made, &inputs[*made])) != AMPC_OK) return status;
    return status == AMPC_OK ? ampc_session_run(s, "infer", inputs, n) : status;
}

int main(int argc, char **argv)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *inputs[MAX_COUNT] = {NULL};
    size_t made = 0;
    ampc_status status = argc == 2 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, NULL);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = infer(c, m, s, inputs, &made);
    printf("%s\n", status == AMPC_OK ? ampc_module_summary(m) : ampc_context_message(c));
    for (size_t i = 0; i < made; i++) ampc_tensor_free(inputs[i]);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
