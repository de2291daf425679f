/* test_peers_numerics.c - numerical bugs of other mixed-precision converters, one test each. */
#include "tests/unit/peers_fixture.h"

/* onnxruntime 21345: with all nodes blocked the result still differed, because constants had been clamped. */
TEST_SCRATCH(test_all_black_is_fp32)
{
    static result f32, black;
    static const char list[] = "[nodes]\n* = fp32\n";
    scratch_write(t, "black.amplist", list, sizeof list - 1);
    const char *path = scratch_path(t, "black.amplist");
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("mask", "2", 0, -1e9f));
    model_tensor(&m, TENSOR_FLOATS("large", "2,2", 1e6f, 1e-9f, -1e-9f, 3));
    model_node(&m, "MatMul", "h,large", "g");
    model_node(&m, "Add", "g,mask", "a");
    node n = node_new("Softmax", "a", "s");
    model_add(&m, &n);
    model_node(&m, "Add", "s,h", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    model_output(&m, "a", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.lists = (pass_strings){&path, 1};
    run(t, "m.onnx", options_at(PASS_O0), small, &f32);
    run(t, "m.onnx", o, small, &black);
    assert_int_equal(f32.count, black.count);
    assert_memory_equal(f32.items, black.items, (size_t)f32.count * sizeof *f32.items);
}

/* Model-Optimizer: a tiny negative weight became the smallest positive number. */
TEST_SCRATCH(test_tiny_negative_weights)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("subnormal", "2,2", -1e-7f, 1e-7f, -2e-7f, -1e-6f));
    model_node(&m, "MatMul", "x,subnormal", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    onnx_file *f = convert(t, false);
    assert_int_equal(type_of_tensor(f, "subnormal"), ONNX_float16);
    onnx_file_close(f);
    static result written;
    run(t, "new.onnx", options_at(PASS_O0), (input){1, 2, 1000}, &written);
    assert_true(written.items[0] < 0); /* -1e-4 - 4e-4 */
    assert_true(fabs(written.items[0] + 5e-4) < 5e-5);
}

/* pytorch 40497: weights flushed to zero in fp16; onnxconverter-common clamped large ones to 1e4. */
TEST_SCRATCH(test_weights_out_of_range)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("tiny", "2,2", -1e-9f, 2e-9f, 3e-9f, -4e-9f));
    model_tensor(&m, TENSOR_FLOATS("huge", "2,2", 1e9f, -2e9f, 3, 4e9f));
    model_tensor(&m, TENSOR_FLOATS("fine", "2,2", 20000, 1, 2, -30000));
    model_node(&m, "MatMul", "x,tiny", "a");
    model_node(&m, "MatMul", "a,huge", "b");
    model_node(&m, "MatMul", "x,fine", "c");
    model_output(&m, "b", ONNX_float32, "N,2");
    model_output(&m, "c", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, (input){3, 2, 0.01f}, 5e-3);
    assert_int_equal(type_of_tensor(f, "tiny"), ONNX_float32);
    assert_int_equal(type_of_tensor(f, "huge"), ONNX_float32);
    assert_int_equal(type_of_tensor(f, "fine"), ONNX_float16);
    onnx_file_close(f);
}

/* onnxconverter-common 323: a mean over many elements became 0 or NaN. */
TEST_SCRATCH(test_mean_of_many)
{
    model m = new_model("4096");
    node n = node_new("Reshape", "x,shape", "r");
    model_tensor(&m, TENSOR_INTS("shape", "2", -1, 64));
    model_add(&m, &n);
    model_node(&m, "MatMul", "r,r2", "p");
    static float eye[64 * 64];
    for (int i = 0; i < 64; i++) eye[i * 65] = 1;
    model_tensor(&m, tensor_new("r2", 1, "64,64", eye, sizeof eye));
    n = node_new("ReduceMean", "p", "y");
    node_int(&n, "keepdims", 0);
    model_add(&m, &n);
    n = node_new("ReduceSum", "p", "z");
    node_int(&n, "keepdims", 0);
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "");
    model_output(&m, "z", ONNX_float32, "");
    onnx_file_close(check(t, &m, (input){4, 4096, 0.5f}, 5e-3));
}

/* Model-Optimizer's max_depth_of_reduction, off by default: dot products that exceed fp16 although no term is large. */
TEST_SCRATCH(test_sum_of_many)
{
    enum { TERMS = 70000 };
    static float w[2 * TERMS];
    for (int i = 0; i < TERMS; i++) w[2 * i] = 1, w[2 * i + 1] = i % 2 ? 0.5f : -0.5f;
    model m = new_model("70000");
    model_tensor(&m, tensor_new("w", 1, "70000,2", w, sizeof w));
    model_tensor(&m, TENSOR_FLOATS("count", "", 70000));
    model_node(&m, "MatMul", "x,w", "h");
    model_node(&m, "Div", "h,count", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, (input){1, TERMS, 1}, 5e-3);
    assert_int_equal(type_of_tensor(f, "w"), ONNX_float32);
    onnx_file_close(f);
}

/* TensorRT 4493, 2564: the squares and the eps of a LayerNorm written as separate operators. */
TEST_SCRATCH(test_layer_norm_of_large_rows)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 300, 1, -1, 300));
    model_tensor(&m, TENSOR_FLOATS("two", "", 2));
    model_tensor(&m, TENSOR_FLOATS("eps", "", 1e-12f));
    model_node(&m, "MatMul", "x,w", "h");
    node mean = node_new("ReduceMean", "h", "m"), variance = node_new("ReduceMean", "q", "v");
    node_ints(&mean, "axes", "1");
    node_ints(&variance, "axes", "1");
    model_add(&m, &mean);
    model_node(&m, "Sub", "h,m", "d");
    model_node(&m, "Pow", "d,two", "q");
    model_add(&m, &variance);
    model_node(&m, "Add", "v,eps", "g");
    model_node(&m, "Sqrt", "g", "s");
    model_node(&m, "Div", "d,s", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file_close(check(t, &m, (input){3, 2, 20}, 5e-3));
}

/* transformers 17306, flax 982: masks of -1e9 and of the lowest f32 became infinite, a fully masked row NaN. */
TEST_SCRATCH(test_masked_row)
{
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("mask", "2", -1e9f, -1e9f));
    model_tensor(&m, TENSOR_FLOATS("lowest", "1", -3.4028235e38f));
    model_tensor(&m, TENSOR_FLOATS("one", "2", 1, 1));
    model_node(&m, "Mul", "one,lowest", "extended");
    model_node(&m, "Add", "h,mask", "a");
    node n = node_new("Softmax", "a", "y");
    model_add(&m, &n);
    model_node(&m, "Add", "h,extended", "b");
    n = node_new("Softmax", "b", "z");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "N,2");
    model_output(&m, "z", ONNX_float32, "N,2");
    static result out;
    save(t, &m);
    run(t, "m.onnx", options_at(PASS_O1), small, &out);
    for (int i = 0; i < out.count; i++) assert_true(out.items[i] >= 0 && out.items[i] <= 1);
    onnx_file_close(convert(t, false));
    run(t, "new.onnx", options_at(PASS_O0), small, &out);
    for (int i = 0; i < out.count; i++) assert_true(out.items[i] >= 0 && out.items[i] <= 1);
}

/* TensorRT 2781: a long chain of residual additions. */
TEST_SCRATCH(test_deep_residual)
{
    model m = new_product();
    char names[64], from[16] = "h", to[16], branch[16];
    model_tensor(&m, TENSOR_FLOATS("r", "2,2", 0.01f, 0.02f, -0.01f, 0.03f));
    for (int i = 0; i < 64; i++) {
        snprintf(names, sizeof names, "%s,r", from);
        snprintf(branch, sizeof branch, "m%d", i);
        model_node(&m, "MatMul", names, branch);
        snprintf(names, sizeof names, "%s,%s", from, branch);
        snprintf(to, sizeof to, i == 63 ? "y" : "a%d", i);
        model_node(&m, "Add", names, to);
        memcpy(from, to, sizeof from);
    }
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, small, 2e-2);
    assert_int_equal(count_ops(f, "Cast"), 2);
    onnx_file_close(f);
}

/* coreai-torch 54: running statistics beyond the fp16 range. */
TEST_SCRATCH(test_batch_norm_statistics)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 0, 0, 1));
    model_tensor(&m, TENSOR_FLOATS("scale", "2", 1, 2));
    model_tensor(&m, TENSOR_FLOATS("bias", "2", 0, 1));
    model_tensor(&m, TENSOR_FLOATS("mean", "2", 0, 1));
    model_tensor(&m, TENSOR_FLOATS("var", "2", 1e6f, 1e-9f));
    model_node(&m, "MatMul", "x,w", "h");
    model_node(&m, "BatchNormalization", "h,scale,bias,mean,var", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(t, &m, small, 5e-3);
    assert_int_equal(type_of_tensor(f, "var"), ONNX_float32);
    onnx_file_close(f);
}

/* TensorRT 4540: LayerNorm was requested in fp32, and the surrounding block became fp32 too. */
TEST_SCRATCH(test_one_node_in_fp32)
{
    static const char *const named[] = {"middle"};
    model m = new_product();
    node n = node_new("Tanh", "h", "a");
    wire_text(&n, 3, "middle");
    model_add(&m, &n);
    model_node(&m, "MatMul", "a,w", "b");
    model_node(&m, "Relu", "b", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.fp32_nodes = (pass_strings){named, 1};
    ir_module *module = compile_file(t, "m.onnx", o, false);
    for (const ir_node *k = ir_graph_find(module, "infer")->first; k; k = k->next)
        if (k->loc.op && k->n_out == 1)
            assert_int_equal(ir_in(k, 0)->type.dtype, strcmp(k->loc.op, "Tanh") == 0 ? IR_f32 : IR_f16);
    ir_module_free(module);
}

/* TensorRT 4616, 3692: "the first 1301 layers in fp32": messages that name no node of the model. */
TEST_SCRATCH(test_answers_name_nodes)
{
    static char report[4096];
    model m = new_product();
    node n = node_new("Exp", "h", "a");
    wire_text(&n, 3, "block/exp");
    model_add(&m, &n);
    n = node_new("Relu", "a", "y");
    wire_text(&n, 3, "block/relu");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.explain = "block/relu";
    FILE *text = fmemopen(report, sizeof report, "w");
    ir_module_free(compile_with_report(t, "m.onnx", o, false, text));
    fclose(text);
    assert_non_null(strstr(report, "block/relu (Relu): clear, fp32"));
    assert_non_null(strstr(report, "cause: block/exp (Exp)"));
}

/* OpenVINO 21238: no way to specify which layers stay in fp32. */
TEST_SCRATCH(test_layers_by_name)
{
    static const char list[] = "[nodes]\nencoder/* = fp32\n";
    scratch_write(t, "layers.amplist", list, sizeof list - 1);
    const char *path = scratch_path(t, "layers.amplist");
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    for (int i = 0; i < 4; i++) {
        static const char *const values[] = {"x,w", "a", "a,w", "b", "b,w", "c", "c,w", "y"};
        static const char *const names[] = {"encoder/1", "encoder/2", "decoder/1", "decoder/encoder"};
        node n = node_new("MatMul", values[2 * i], values[2 * i + 1]);
        wire_text(&n, 3, names[i]);
        model_add(&m, &n);
    }
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.lists = (pass_strings){&path, 1};
    ir_module *module = compile_file(t, "m.onnx", o, false);
    for (const ir_node *n = ir_graph_find(module, "infer")->first; n; n = n->next)
        if (n->op == IR_OP_matmul)
            assert_int_equal(ir_in(n, 0)->type.dtype, strncmp(n->loc.node, "encoder/", 8) == 0 ? IR_f32 : IR_f16);
    ir_module_free(module);
}
