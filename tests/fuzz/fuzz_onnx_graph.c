/* fuzz_onnx_graph.c - a random model as ONNX bytes, some of them mutated: imported, compiled, emitted,
 * planned, run. One model in four is of the forms of all operators. The fuzzer's bytes make all decisions (choices.h). */
#include "frontend/onnx.h"
#include "tests/fuzz/model.h"
#include "tests/fuzz/model_forms.h"
#include "tests/fuzz/pipeline.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_NODES = 16 };

static wire draw_model(choices *c)
{
    static const int opsets[] = {17, 13, 18, 20, 21, 22, 23, 11, 9, 7};
    static const int8_t ranks[] = {2, 4, 3, 2, 4, 1, 5, 0};
    drawing w = {.c = c, .m = model_new(CHOOSE(c, opsets))};
    new_float(&w, CHOOSE(c, ranks));
    const int count = 1 + choose(c, MAX_NODES), outputs = 1 + choose(c, 3);
    for (int i = 0; i < count; i++) draw_node(&w);
    for (int i = 0; i < outputs && i < w.n_pool; i++) model_output(&w.m, w.pool[w.n_pool - 1 - i].name, 0, NULL);
    return model_finish(&w.m);
}

/* ---- uses of the model ----------------------------------------------------------------------------------------- */

static ampc_status collect(void *user, onnx_part part, const void *bytes, size_t n)
{
    if (part == ONNX_PART_MODEL) wire_raw(user, bytes, n);
    return AMPC_OK;
}

/* Emits a runnable graph as a model, which must import again. */
static void emit_again(const ir_module *m, const onnx_import_options *import)
{
    diag *d = diag_new(NULL, NULL);
    wire file = {0};
    ir_module *again = NULL;
    const onnx_emit_options o = {.data_name = "data", .write = collect, .user = &file};
    if (d && ir_graph_find(m, "infer") && pipeline_accepts(onnx_emit(m, "infer", &o, d), d) &&
        !pipeline_accepts(onnx_import_memory(file.bytes, file.size, "again.onnx", import, d, &again), d)) {
        fprintf(stderr, "what is emitted does not import: %s\n", diag_first_error(d));
        abort();
    }
    ir_module_free(again);
    wire_free(&file);
    diag_free(d);
}

static void show(const ir_module *m)
{
    arena *a = getenv("FUZZ_SHOW") ? arena_new(0) : NULL;
    jmp_buf guard;
    if (a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        pipeline_show("%s", ir_print(m, a));
    }
    arena_free(a);
}

static void check_model(const wire *file, choices *c)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    const onnx_dim_binding dim = {"N", choose(c, 4)};
    const onnx_import_options o = {
        .dims = &dim, .n_dims = rarely(c, 6), .max_tensor_bytes = 1 << 20, .opaque = rarely(c, 8)};
    if (d && pipeline_accepts(onnx_import_memory(file->bytes, file->size, "fuzz.onnx", &o, d, &m), d)) {
        show(m);
        pipeline_round_trip(m, d);
        if (pipeline_compile(m, c, d)) {
            if (rarely(c, 4)) emit_again(m, &(onnx_import_options){.opaque = o.opaque});
            pipeline_run(m, c);
        }
    }
    if (d) pipeline_show("# %s\n", diag_first_error(d));
    ir_module_free(m);
    diag_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices c = choices_start(data, size);
    wire file = rarely(&c, 4) ? model_of_forms(&c) : draw_model(&c);
    for (int changes = rarely(&c, 6) ? 1 + choose(&c, 3) : 0; changes; changes--)
        file.bytes[choices_word(&c) % file.size] ^= (uint8_t)(1 << choose(&c, 8));
    check_model(&file, &c);
    wire_free(&file);
    return 0;
}
