/* test_declared_shapes.c - sizes that are only checked when they are known, in a run. */
#include "runtime/session/session.h"
#include "tests/unit/import_fixture.h"

static ampc_status run_with(scratch *t, const ir_module *m, int64_t x_rows, int64_t z_rows)
{
    float x[16] = {1, 2, 3, 4}, z[16] = {1, 2, 3, 4, 5, 6};
    rt_tensor inputs[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {x_rows, 1}, .data = x},
                          {.name = "z", .dtype = IR_f32, .rank = 2, .dims = {z_rows, 2}, .data = z}};
    rt_session *s;
    assert_int_equal(rt_session_open(m, &(rt_session_options){.threads = 1}, t->d, &s), AMPC_OK);
    ampc_status status = rt_session_run(s, "forward", inputs, 2, t->d);
    if (status == AMPC_OK) {
        const rt_tensor *y = rt_session_output(s, "y");
        assert_int_equal(y->dims[0], 3);
        for (int i = 0; i < 6; i++)
            assert_true(((const float *)y->data)[i] ==
                        x[x_rows == 1 ? 0 : i / 2] + (float)(i / 2) + z[z_rows == 1 ? i % 2 : i]);
    }
    rt_session_close(s);
    return status;
}

TEST_SCRATCH(test_broadcast_with_symbols)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,1");
    model_input(&m, "z", ONNX_float32, "M,2");
    model_tensor(&m, TENSOR_FLOATS("c", "3,1", 0, 1, 2));
    model_node(&m, "Add", "x,c", "h");
    model_node(&m, "Add", "h,z", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    ir_module *module = NULL;
    assert_int_equal(import_bytes(t, model_finish(&m), NULL, &module), AMPC_OK);
    expect_text(module, "%y = add %h, @z : f32[3,2]");
    for (int64_t n = 1; n <= 3; n += 2)
        for (int64_t k = 1; k <= 3; k += 2) assert_int_equal(run_with(t, module, n, k), AMPC_OK);
    assert_int_equal(run_with(t, module, 2, 3), AMPC_REJECTED);
    scratch_expect(t, "shapes do not broadcast: f32[2,1] and f32[3,1] (N=2)");
    ir_module_free(module);
}
