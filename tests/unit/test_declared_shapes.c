/* test_declared_shapes.c - shapes as exporters declare them: unknown and contradicting ones, inputs without a shape, and
 * sizes that are only checked when they are known. */
#include "runtime/session/session.h"
#include "tests/unit/import_fixture.h"

/* ---- unknown sizes --------------------------------------------------------------------------- */

/* Every unknown size is a symbol of its own. */
static void test_unknown_sizes(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "?,??,-1,N");
    model_input(&m, "z", ONNX_float32, "??,??,-1,N");
    model_node(&m, "Relu", "x", "y");
    model_node(&m, "Relu", "z", "r");
    model_output(&m, "y", ONNX_float32, "??,-1,4,?");
    model_output(&m, "r", ONNX_float32, NULL);
    expect_import(*state, model_finish(&m), "@x : f32[x_dim0,x_dim1,x_dim2,N], @z : f32[z_dim0,z_dim1,z_dim2,N]");
}

static void test_contradictions_are_remarks(void **state)
{
    scratch *t = *state;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,3");
    model_node(&m, "Relu", "x", "h");
    model_node(&m, "Relu", "h", "y");
    model_value(&m, 13, "h", ONNX_float32, "1,3");
    model_value(&m, 13, "x", ONNX_float32, "2,3,1");
    model_output(&m, "y", ONNX_float32, "2,4");
    expect_import(t, model_finish(&m), "relu %h : f32[2,3]");
    assert_int_equal(diag_count(t->d, DIAG_REMARK), 2); /* of values, of outputs */
}

/* ---- inputs without a shape ------------------------------------------------------------------ */

static void test_rank_from_operators(void **state)
{
    static const struct {
        const char *op, *operands, *expected;
    } rows[] = {
        {"Conv", "x,conv", "@x : f32[x_dim0,x_dim1,x_dim2,x_dim3]"},
        {"Gemm", "x,matrix", "@x : f32[x_dim0,x_dim1]"},
        {"LSTM", "x,lstm,lstm", "@x : f32[x_dim0,x_dim1,x_dim2]"},
        {"Relu", "x", NULL},
        {"Sub", "x,high", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scratch *t = *state;
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, NULL);
        model_tensor(&m, TENSOR_FLOATS("conv", "1,1,1,1", 1));
        model_tensor(&m, TENSOR_FLOATS("matrix", "1,1", 1));
        model_tensor(&m, TENSOR_FLOATS("high", "1,1,1", 1));
        model_tensor(&m, TENSOR_FLOATS("lstm", "1,4,1", 1, 2, 3, 4));
        model_tensor(&m, TENSOR_FLOATS("one", "1", 1));
        model_node(&m, "Mul", "x,one", "moved");
        model_node(&m, rows[i].op, rows[i].operands, "y");
        model_output(&m, "y", ONNX_float32, NULL);
        if (rows[i].expected) expect_import(t, model_finish(&m), rows[i].expected);
        else
            expect_refusal(t, model_finish(&m), AMPC_UNSUPPORTED,
                           "'x' has no shape: specify its sizes, for example --dim x_dim0=1 --dim x_dim1=3");
        diag_clear(t->d);
    }
}

/* Through operators that keep the rank: a bias of rank 3 does not decide, the kernel of rank 4 does. */
static void test_rank_from_later_operators(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_uint8, NULL);
    model_tensor(&m, TENSOR_FLOATS("bias", "1,1,1", 1));
    model_tensor(&m, TENSOR_FLOATS("w", "1,1,1,1", 1));
    node n = node_new("Cast", "x", "f");
    node_int(&n, "to", ONNX_float32);
    model_add(&m, &n);
    model_node(&m, "Sub", "f,bias", "s");
    model_node(&m, "Conv", "s,w", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    expect_import(*state, model_finish(&m), "@x : u8[x_dim0,x_dim1,x_dim2,x_dim3]");
}

static void test_rank_from_bindings(void **state)
{
    scratch *t = *state;
    const onnx_dim_binding dims[] = {{"x_dim0", 1}, {"x_dim1", 3}};
    const onnx_import_options o = {.dims = dims, .n_dims = 2};
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, NULL);
    model_node(&m, "Relu", "x", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    ir_module *module = NULL;
    assert_int_equal(import_bytes(t, model_finish(&m), &o, &module), AMPC_OK);
    expect_text(module, "@x : f32[1,3]");
    ir_module_free(module);
}

/* ---- sizes that are checked when they are known ---------------------------------------------- */

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

static void test_broadcast_with_symbols(void **state)
{
    scratch *t = *state;
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

/* Operands whose sizes must be equal may have different symbols. */
static void test_equal_symbols(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,K");
    model_input(&m, "z", ONNX_float32, "L,M");
    model_node(&m, "MatMul", "x,z", "p");
    node n = node_new("Concat", "x,z", "y");
    node_int(&n, "axis", 1);
    model_add(&m, &n);
    model_output(&m, "p", ONNX_float32, NULL);
    model_output(&m, "y", ONNX_float32, NULL);
    expect_import(*state, model_finish(&m), "concat @x, @z {axis=1} : f32[N,K+M]");
}

/* 12*N*K / (3*B*S) if N is B and K is S. */
static void test_reshape_with_other_symbols(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,K,12");
    model_input(&m, "ids", ONNX_int64, "B,S");
    model_tensor(&m, TENSOR_INTS("heads", "2", -1, 3));
    model_node(&m, "Shape", "ids", "sizes");
    node n = node_new("Concat", "sizes,heads", "shape");
    node_int(&n, "axis", 0);
    model_add(&m, &n);
    model_node(&m, "Reshape", "x,shape", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    expect_import(*state, model_finish(&m), "reshape @x {shape=[B,S,4,3]} : f32[B,S,4,3]");
}

static void test_message_names_the_option(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,S");
    model_tensor(&m, TENSOR_INTS("shape", "2", -1, 7));
    model_node(&m, "Reshape", "x,shape", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    expect_refusal(*state, model_finish(&m), AMPC_UNSUPPORTED, "bind a size with --dim N=SIZE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_unknown_sizes),
        SCRATCH_TEST(test_contradictions_are_remarks),
        SCRATCH_TEST(test_rank_from_operators),
        SCRATCH_TEST(test_rank_from_later_operators),
        SCRATCH_TEST(test_rank_from_bindings),
        SCRATCH_TEST(test_broadcast_with_symbols),
        SCRATCH_TEST(test_equal_symbols),
        SCRATCH_TEST(test_reshape_with_other_symbols),
        SCRATCH_TEST(test_message_names_the_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
