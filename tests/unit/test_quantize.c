/* test_quantize.c - quantisation: the straight-through gradient of a QuantizeLinear and DequantizeLinear pair, and exact
 * sums of integer products. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "tests/session.h"
#include "tests/compile.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { N = 8, LONG = 700 };

static const float x[N] = {-20, -1.26f, -0.3f, 0, 0.24f, 0.26f, 1.1f, 30};
static const float scale = 0.125f;

static rt_session *open_session(scratch *t, model *m, const compile_options *o, ir_module **module)
{
    wire file = model_finish(m);
    rt_session *session = NULL;
    const rt_session_options device = {.device = "cpu", .threads = 1};
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, t->d, module), AMPC_OK);
    wire_free(&file);
    assert_int_equal(test_compile(*module, o, t->d), AMPC_OK);
    assert_int_equal(rt_session_open(*module, &device, t->d, &session), AMPC_OK);
    return session;
}

/* y = dequantised x (a parameter) with zero point 3 of int8. */
static model pair_model(void)
{
    const int8_t zero = 3;
    model m = model_new(13);
    model_tensor(&m, tensor_new("x", ONNX_float32, "8", x, sizeof x));
    model_tensor(&m, TENSOR_FLOATS("s", "", scale));
    model_tensor(&m, tensor_new("z", ONNX_int8, "", &zero, 1));
    model_node(&m, "QuantizeLinear", "x,s,z", "q");
    model_node(&m, "DequantizeLinear", "q,s,z", "y");
    model_output(&m, "y", 0, NULL);
    return m;
}

TEST_SCRATCH(gradient_is_straight_through)
{
    ir_module *module;
    model m = pair_model();
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.loss = "mse:y";
    rt_session *session = open_session(t, &m, &o, &module);
    float labels[N] = {0};
    const rt_tensor label = {.name = "label", .dtype = IR_f32, .rank = 1, .dims = {N}, .data = labels};
    assert_int_equal(rt_session_run(session, "grad", &label, 1, t->d), AMPC_OK);
    const float *gradient = rt_session_output(session, "grad/x")->data;
    for (int i = 0; i < N; i++) {
        float q = nearbyintf(x[i] / scale) + 3;
        bool clipped = q < -128 || q > 127;
        float y = ((clipped ? q < 0 ? -128 : 127 : q) - 3) * scale;
        assert_float_equal(gradient[i], clipped ? 0 : 2 * y / N, 1e-6);
    }
    assert_int_equal(ir_storage_find(module, "s")->kind, IR_CONST); /* not trained */
    rt_session_close(session);
    ir_module_free(module);
}

/* Sums whose terms and result f32 cannot represent together. */
TEST_SCRATCH(long_products_are_exact)
{
    static uint8_t a[2 * LONG], b[LONG * 3];
    ir_module *module;
    model m = model_new(13);
    compile_options o = compile_options_default();
    for (int i = 0; i < 2 * LONG; i++) a[i] = (uint8_t)(255 - i % 3);
    for (int i = 0; i < LONG * 3; i++) b[i] = (uint8_t)(255 - i % 7);
    model_input(&m, "a", ONNX_uint8, "2,700");
    model_tensor(&m, tensor_new("b", ONNX_uint8, "700,3", b, sizeof b));
    model_node(&m, "MatMulInteger", "a,b", "y");
    model_output(&m, "y", 0, NULL);
    rt_session *session = open_session(t, &m, &o, &module);
    const rt_tensor input = {.name = "a", .dtype = IR_u8, .rank = 2, .dims = {2, LONG}, .data = a};
    assert_int_equal(rt_session_run(session, "infer", &input, 1, t->d), AMPC_OK);
    const int32_t *y = rt_session_output(session, "y")->data;
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 3; c++) {
            int64_t sum = 0;
            for (int k = 0; k < LONG; k++) sum += a[r * LONG + k] * b[k * 3 + c];
            assert_int_equal(y[r * 3 + c], sum);
        }
    rt_session_close(session);
    ir_module_free(module);
}
