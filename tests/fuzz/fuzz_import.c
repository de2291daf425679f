/* fuzz_import.c - arbitrary bytes as a model, through the complete importer, with and without opaque
 * operators. A module that results must verify and print. */
#include "frontend/onnx.h"

#include <setjmp.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_module(ir_module *m, diag *d)
{
    jmp_buf guard;
    if (setjmp(guard)) return;
    jmp_buf *before = arena_set_guard(m->arena, &guard);
    if (ir_verify(m, d) != AMPC_OK) abort();
    (void)ir_print(m, m->arena);
    arena_set_guard(m->arena, before);
}

static void import(const uint8_t *data, size_t size, bool opaque)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    const onnx_import_options options = {.max_tensor_bytes = 1 << 24, .opaque = opaque};
    if (d && onnx_import_memory(data, size, "fuzz.onnx", &options, d, &m) == AMPC_OK) check_module(m, d);
    ir_module_free(m);
    diag_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    import(data, size, false);
    import(data, size, true);
    return 0;
}
