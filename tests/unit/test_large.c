/* test_large.c - large weights stay in the file, and a node with very many results, from the file to the plan. Work quadratic
 * in their number would need minutes and exceed this program's time limit. tools/bench --only growth measures more shapes. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

enum { PARTS = 300000 };

/* Splits x f32[1,PARTS] into columns and concatenates them in the reverse order. */
static wire draw_model(void)
{
    model m = model_new(18);
    wire split = {0}, concat = {0};
    char name[24], shape[32];
    snprintf(shape, sizeof shape, "1,%d", PARTS);
    model_input(&m, "x", 1, shape);
    wire_text(&split, 1, "x");
    for (int i = 0; i < PARTS; i++) {
        snprintf(name, sizeof name, "part%d", i);
        wire_text(&split, 2, name);
        snprintf(name, sizeof name, "part%d", PARTS - 1 - i);
        wire_text(&concat, 1, name);
    }
    wire_text(&split, 4, "Split");
    node_int(&split, "axis", 1);
    node_int(&split, "num_outputs", PARTS);
    wire_text(&concat, 2, "y");
    wire_text(&concat, 4, "Concat");
    node_int(&concat, "axis", 1);
    model_add(&m, &split);
    model_add(&m, &concat);
    model_output(&m, "y", 0, NULL);
    return model_finish(&m);
}

static void check_plan(scratch *t, const ir_module *m)
{
    rt_session *s = NULL;
    const rt_plan *p = NULL;
    const rt_session_options o = {.device = "cpu", .threads = 1, .plan_only = true};
    assert_int_equal(rt_session_open(m, &o, t->d, &s), AMPC_OK);
    assert_int_equal(rt_session_plan(s, "infer", NULL, 0, NULL, t->d, &p), AMPC_OK);
    assert_int_equal(p->n_steps, 2);
    /* x, y and the parts between them are each read and written once; the concat does not read and write those that
     * are computed in their place, because it is aligned */
    const int64_t in_place = (PARTS + 15) / 16;
    assert_int_equal(rt_plan_sum(p).bytes, 4 * 4 * (int64_t)PARTS - 2 * 4 * in_place);
    assert_int_equal(p->arena_bytes, 64 * (PARTS - in_place) + (4 * PARTS + 63) / 64 * 64);
    rt_session_close(s);
}

TEST_SCRATCH(a_split_of_many_parts)
{
    ir_module *m = NULL;
    wire file = draw_model();
    const compile_options o = compile_options_default();
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "large.onnx", NULL, t->d, &m), AMPC_OK);
    assert_int_equal(test_compile(m, &o, t->d), AMPC_OK);
    check_plan(t, m);
    ir_module_free(m);
    wire_free(&file);
}

/* Large weights are not read: the module stores their location. */
TEST_SCRATCH(weights_stay_in_their_file)
{
    float data[1000];
    for (int i = 0; i < 1000; i++) data[i] = (float)i;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,1000");
    model_tensor(&m, tensor_new("w", ONNX_float32, "1000,1", data, sizeof data));
    model_node(&m, "MatMul", "x,w", "y");
    model_output(&m, "y", 0, NULL);
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    ir_module *out;
    assert_int_equal(onnx_import(scratch_path(t, "m.onnx"), NULL, t->d, &out), AMPC_OK);
    const ir_data *d = &ir_storage_find(out, "w")->data;
    assert_int_equal(d->kind, IR_DATA_FILE);
    assert_string_equal(d->path, scratch_path(t, "m.onnx"));
    assert_int_equal(d->length, sizeof data);
    assert_memory_equal(file.bytes + d->offset, data, sizeof data);
    ir_module_free(out);
    wire_free(&file);
    assert_int_equal(onnx_import("/nonexistent/m.onnx", NULL, t->d, &out), AMPC_IO);
    diag_clear(t->d);
}
