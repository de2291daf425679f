/* fuzz_import.c - arbitrary bytes as a model, through the complete importer, with and without opaque
 * operators, and described. A module that results must verify and print. */
#include "frontend/describe.h"
#include "frontend/onnx.h"
#include "tests/fuzz/memory_file.h"

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

static void describe(const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    arena *a = arena_new(0);
    ir_module *m = NULL;
    onnx_description description;
    jmp_buf guard;
    if (d && a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        const strmap *refused = strmap_new(a);
        if ((onnx_describe(file.path, refused, NULL, a, d, &description, &m) == AMPC_OK) != !*diag_first_error(d))
            abort();
    }
    ir_module_free(m);
    arena_free(a);
    diag_free(d);
    memory_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    import(data, size, false);
    import(data, size, true);
    describe(data, size);
    return 0;
}
