/* fuzz_recipe.c - arbitrary bytes as a recipe, with the models of tests/train/linked. If it can be imported, the module
 * is valid, and compiling it either succeeds or reports an error. */
#include "frontend/recipe.h"
#include "tests/compile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compile_recipe(ir_module *m, diag *d)
{
    compile_options o = compile_options_default();
    if (ir_verify(m, d) != AMPC_OK) abort();
    o.pipeline.verify_each = true;
    const ampc_status status = test_compile(m, &o, d);
    if ((status == AMPC_OK) != (diag_status(d) == AMPC_OK)) abort();
    if (status == AMPC_OK && ir_verify(m, d) != AMPC_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char name[] = AMPC_SOURCE_DIR "/tests/train/linked/fuzz.recipe";
    const onnx_dim_binding dim = {.name = "K", .size = 2};
    const onnx_import_options o = {.dims = &dim, .n_dims = size % 4 == 0};
    ir_module *m = NULL;
    diag *d = diag_new(NULL, NULL);
    char *copy = malloc(size ? size : 1); /* so that a read beyond the end is found */
    if (d && copy) {
        if (size) memcpy(copy, data, size);
        const ampc_status status = recipe_import_memory(copy, size, name, &o, d, &m);
        if ((status == AMPC_OK) != (diag_status(d) == AMPC_OK) || (status == AMPC_OK) != (m != NULL)) abort();
        if (m) compile_recipe(m, d);
    }
    ir_module_free(m);
    diag_free(d);
    free(copy);
    return 0;
}
