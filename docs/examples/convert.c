/* convert.c - writes the ONNX model argv[1] in mixed precision to argv[2], for any runtime that reads ONNX, and prints
 * how large the model is in each low precision. Operators that ampc does not know stay as they are. */
#include <ampc.h>

#include <stdio.h>

/* The size of the model with products in `dtype`, converted in memory. */
static ampc_status measure(ampc_module *m, const char *dtype)
{
    const ampc_compile_options how = {.struct_size = sizeof how, .dtype = dtype};
    void *bytes = NULL;
    size_t n;
    ampc_status status = ampc_module_convert_memory(m, &how, &bytes, &n);
    if (status == AMPC_OK) printf("%s: %zu bytes\n", dtype, n);
    ampc_free(bytes);
    return status;
}

int main(int argc, char **argv)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    if (argc != 3) {
        printf("usage: convert MODEL.onnx MIXED.onnx\n");
        return AMPC_USAGE;
    }
    const ampc_import_options model = {.struct_size = sizeof model, .path = argv[1], .keep_unknown = 1};
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = ampc_module_import_with(c, &model, &m);
    if (status == AMPC_OK) status = measure(m, "fp16");
    if (status == AMPC_OK) status = measure(m, "bf16");
    if (status == AMPC_OK) status = ampc_module_convert(m, NULL, argv[2]);
    if (status != AMPC_OK) printf("%s\n", ampc_context_message(c));
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
