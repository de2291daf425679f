/* test_peers.c - bugs of other mixed-precision converters that make a model invalid, large or slow, one test each. The
 * bug is described above its test. Those that only show in the nodes that are written are rows of
 * tests/expect/frontend/emit.rows. */
#include "tests/unit/peers_fixture.h"

/* ---- inspecting the emitted model ------------------------------------------------------------ */

static const Onnx__NodeProto *find_op(const onnx_file *f, const char *op)
{
    for (size_t i = 0; i < f->model->graph->n_node; i++)
        if (strcmp(f->model->graph->node[i]->op_type, op) == 0) return f->model->graph->node[i];
    fail_msg("no %s", op);
    return NULL;
}

static int type_of_output(const onnx_file *f, size_t i)
{
    return f->model->graph->output[i]->type->tensor_type->elem_type;
}

static void cast_node(model *m, const char *from, const char *to, int type)
{
    node n = node_new("Cast", from, to);
    node_int(&n, "to", type);
    model_add(m, &n);
}

/* ---- invalid output models ---------------------------------------------------------------- */

/* onnxconverter-common 320: a Cast(to=float) of the model before a black operator kept a low-precision result. */
TEST_SCRATCH(test_cast_to_float_before_black)
{
    model m = new_product();
    cast_node(&m, "h", "s", ONNX_float32);
    model_node(&m, "Exp", "s", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, small, 5e-3);
    assert_int_equal(type_of_output(f, 0), ONNX_float32);
    onnx_file_close(f);
}

/* onnxconverter-common 304: an initializer used by fp16 and fp32 nodes made the model invalid. */
TEST_SCRATCH(test_shared_initializer)
{
    model m = new_product();
    model_node(&m, "Exp", "w", "e");
    model_node(&m, "MatMul", "h,e", "y");
    model_node(&m, "MatMul", "y,w", "z");
    model_output(&m, "z", ONNX_float32, NULL);
    onnx_file_close(check(t, &m, (input){2, 2, 0.5f}, 5e-3));
}

/* onnxconverter-common, keep_io_types: a blocked node that produces a graph output changed the output's type. */
TEST_SCRATCH(test_blocked_node_is_output)
{
    model m = new_product();
    model_node(&m, "Exp", "h", "black");
    model_node(&m, "Identity", "h", "white");
    model_output(&m, "black", ONNX_float32, "N,2");
    model_output(&m, "white", ONNX_float32, "N,2");
    model_output(&m, "h", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, small, 5e-3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(type_of_output(f, i), ONNX_float32);
    onnx_file_close(f);
}

/* OneFlow 8746: a tensor used as two operands of one node crashed the pass. */
TEST_SCRATCH(test_same_tensor_twice)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,2");
    model_node(&m, "MatMul", "x,x", "p");
    model_node(&m, "Mul", "p,p", "q");
    model_node(&m, "Exp", "q", "e");
    model_node(&m, "Add", "e,e", "y");
    model_output(&m, "y", ONNX_float32, "2,2");
    onnx_file *f = check(t, &m, (input){2, 2, 0.25f}, 5e-3);
    assert_string_equal(find_op(f, "MatMul")->input[0], find_op(f, "MatMul")->input[1]);
    onnx_file_close(f);
}

/* onnxconverter-common 326: integer operands of blocked nodes were also cast. */
TEST_SCRATCH(test_integer_operands)
{
    model m = new_product();
    model_tensor(&m, TENSOR_INTS("i", "2", 1, 0));
    model_node(&m, "Exp", "h", "e");
    node n = node_new("Gather", "e,i", "g");
    node_int(&n, "axis", 1);
    model_add(&m, &n);
    model_node(&m, "Shape", "g", "s");
    model_node(&m, "Reshape", "g,s", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = check(t, &m, small, 5e-3);
    assert_int_equal(count_ops(f, "Cast"), 2); /* of x, and of h before Exp */
    onnx_file_close(f);
}

/* onnxmltools 446: a Concat with operands of both types. */
TEST_SCRATCH(test_concat_of_both_types)
{
    model m = new_product();
    model_node(&m, "Exp", "h", "e");
    node n = node_new("Concat", "h,e,x", "y");
    node_int(&n, "axis", 1);
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "N,6");
    onnx_file_close(check(t, &m, small, 5e-3));
}

/* ---- too slow or too large ---------------------------------------------------------------- */

typedef struct parts {
    size_t model, data;
} parts;

static ampc_status count_bytes(void *user, onnx_part part, const void *bytes, size_t n)
{
    (void)bytes;
    parts *p = user;
    (part == ONNX_PART_DATA ? &p->data : &p->model)[0] += n;
    return AMPC_OK;
}

/* onnxconverter-common 215, 308: a model of more than 2 GiB with external values. Here the limit is small. */
TEST_SCRATCH(test_external_values)
{
    enum { N = 64 };
    static float values[N * N];
    for (int i = 0; i < N * N; i++) values[i] = (float)(i % 7);
    model m = new_model("64");
    model_tensor(&m, tensor_new("w", ONNX_float32, "64,64", values, sizeof values));
    model_node(&m, "MatMul", "x,w", "y");
    model_output(&m, "y", ONNX_float32, "N,64");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.plain_runtime = true;
    ir_module *module = compile_file(t, "m.onnx", o, false);
    parts p = {0};
    const onnx_emit_options written = {
        .data_name = "new.data", .max_model_bytes = N * N, .write = count_bytes, .user = &p};
    assert_int_equal(onnx_emit(module, "infer", &written, t->d), AMPC_OK);
    assert_int_equal(p.data, sizeof values / 2);
    assert_true(p.model < N * N);
    ir_module_free(module);
}

/* onnxconverter-common 251, 252, 229; Model-Optimizer 459, 469: minutes of search, temporary models that fill the
 * disk, a scan of all nodes per node. */
TEST_SCRATCH(test_many_nodes)
{
    enum { LAYERS = 500, SECONDS = 20 }; /* 20 ms on an idle machine */
    model m = new_product();
    char from[16] = "h", to[16], exp_of[16];
    for (int i = 0; i < LAYERS; i++) {
        snprintf(exp_of, sizeof exp_of, "e%d", i);
        snprintf(to, sizeof to, "p%d", i);
        char operands[40];
        model_node(&m, "Exp", from, exp_of);
        snprintf(operands, sizeof operands, "%s,w", exp_of);
        model_node(&m, "MatMul", operands, to);
        memcpy(from, to, sizeof from);
    }
    model_output(&m, from, ONNX_float32, "N,2");
    save(t, &m);
    size_t before = scratch_count(t);
    clock_t start = clock();
    onnx_file *f = convert(t, false);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < SECONDS);
    assert_int_equal(count_ops(f, "MatMul"), LAYERS + 1);
    assert_int_equal(count_ops(f, "Cast"), 2 * LAYERS + 2);
    assert_int_equal(scratch_count(t), before + 1); /* only the model */
    onnx_file_close(f);
}

/* ---- slower after conversion -------------------------------------------------------------- */

/* onnxruntime 11831: casts back to back. onnxruntime 19437: a narrowing cast of the model was removed with them. */
TEST_SCRATCH(test_casts_of_the_model)
{
    model m = new_model("2");
    cast_node(&m, "x", "n", ONNX_float16);
    cast_node(&m, "n", "s", ONNX_float32);
    cast_node(&m, "s", "d", ONNX_float64);
    cast_node(&m, "d", "f", ONNX_float32);
    model_node(&m, "Exp", "f", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, (input){3, 2, 0.1f}, 0); /* exp of the rounded values, bit for bit */
    assert_int_equal(count_ops(f, "Cast"), 2);
    onnx_file_close(f);
}

/* tensorflow 28298, onnxruntime 13738: the gradient of a broadcast with a symbolic batch was black, once invalid. */
TEST_SCRATCH(test_broadcast_gradient)
{
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("b", "2", 1, -1));
    model_node(&m, "Add", "h,b", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.loss = "ce";
    ir_module *module = compile_file(t, "m.onnx", o, false);
    const ir_graph *g = ir_graph_find(module, "train_step");
    int sums = 0;
    for (const ir_node *n = g->first; n; n = n->next) {
        if (n->phase != IR_BACKWARD || n->op != IR_OP_reduce_sum) continue;
        sums++;
        assert_int_equal(ir_in(n, 0)->type.dtype, IR_f16);
    }
    assert_int_equal(sums, 1);
    ir_module_free(module);
}

/* pytorch 188955: a norm listed as fp32 was surrounded by casts. Here it computes in f32 internally with fp16
 * operands and results. */
TEST_SCRATCH(test_norm_without_casts)
{
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("scale", "2", 1, 2));
    model_node(&m, "LayerNormalization", "h,scale", "n");
    model_node(&m, "MatMul", "n,w", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    ir_module *module = compile_file(t, "m.onnx", options_at(PASS_O1), false);
    for (const ir_node *n = ir_graph_find(module, "infer")->first; n; n = n->next) {
        if (n->op != IR_OP_layer_norm) continue;
        assert_int_equal(ir_in(n, 0)->def->op, IR_OP_matmul);
        assert_int_equal(ir_out(n, 0)->first_use->user->op, IR_OP_matmul);
        assert_int_equal(ir_in(n, 0)->type.dtype, IR_f16);
        assert_int_equal(ir_out(n, 0)->type.dtype, IR_f16);
    }
    ir_module_free(module);
}

/* onnxruntime 15490, 16778: slower after conversion, without a warning. */
TEST_SCRATCH(test_slowdown_is_reported)
{
    model m = new_product();
    model_node(&m, "Exp", "h", "e");
    model_node(&m, "MatMul", "e,w", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.placement = PASS_MINCUT;
    diag_clear(t->d);
    ir_module_free(compile_file(t, "m.onnx", o, false));
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 1); /* "mixed precision is predicted to lose" */
    o.white_soft = true;
    diag_clear(t->d);
    ir_module_free(compile_file(t, "m.onnx", o, false));
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 0); /* unprofitable matmuls stay f32 */
}
