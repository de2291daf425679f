/* test_import.c - imported graphs: names, order, versions, declared types, storage, symbols, and rejected graphs. */
#include "tests/unit/import_fixture.h"

/* ---- rejected graphs ------------------------------------------------------------------------- */

static model small_model(int opset)
{
    model m = model_new(opset);
    model_input(&m, "x", ONNX_float32, "2,3");
    return m;
}

static void expect_graph_refusal(scratch *t, model *m, ampc_status status, const char *text)
{
    model_output(m, "y", 0, NULL);
    expect_refusal(t, model_finish(m), status, text);
}

static void names_are_single_assignment(void **state)
{
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_node(&m, "Abs", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "node 'Abs_1' (Abs): error: output 'y' is already the name");
    m = small_model(17);
    model_node(&m, "Relu", "x", "x");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "output 'x' is already the name");
    m = small_model(17);
    model_input(&m, "x", ONNX_float32, "2,3");
    model_node(&m, "Relu", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "duplicate graph input 'x'");
    m = small_model(17);
    model_tensor(&m, TENSOR_FLOATS("w", "1", 1));
    model_tensor(&m, TENSOR_FLOATS("w", "1", 1));
    model_node(&m, "Mul", "x,w", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "duplicate initializer 'w'");
}

static void order_of_nodes(void **state)
{
    model m = small_model(17);
    model_node(&m, "Add", "x,b", "a");
    model_node(&m, "Relu", "a", "b");
    model_node(&m, "Relu", "b", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "node 'Add_0' (Add): error: is part of a cycle through 'a'");
    m = small_model(17);
    model_node(&m, "Add", "x,nothing", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "reads 'nothing', which is not defined");
    m = small_model(17);
    model_node(&m, "Relu", "x", "z");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "graph output 'y' is not defined");
}

/* The value of the inner graph is made by a node that follows the If, which only its subgraph reads. */
static void nodes_are_sorted(void **state)
{
    scratch *t = *state;
    model m = small_model(17);
    model_node(&m, "Relu", "h", "y");
    model_node(&m, "Abs", "x", "h");
    model_output(&m, "y", 0, NULL);
    expect_import(t, model_finish(&m), "%y = relu %h");
    assert_int_equal(diag_count(t->d, DIAG_REMARK), 1);
    m = small_model(17);
    const bool yes = true;
    model_tensor(&m, tensor_new("c", ONNX_bool, "", &yes, 1));
    node n = node_new("If", "c", "y");
    for (int i = 0; i < 2; i++) {
        model branch = model_new(17);
        model_node(&branch, "Relu", "h", "r");
        model_output(&branch, "r", 0, NULL);
        node_graph(&n, i ? "else_branch" : "then_branch", &branch);
    }
    model_add(&m, &n);
    model_node(&m, "Abs", "x", "h");
    model_output(&m, "y", 0, NULL);
    expect_import(t, model_finish(&m), "abs @x");
}

static void unsupported_operators_are_listed_at_once(void **state)
{
    scratch *t = *state;
    model m = small_model(17);
    model_node(&m, "Foo", "x", "a");
    model_node(&m, "Foo", "a", "b");
    node n = node_new("Bar", "b", "y");
    wire_text(&n, 7, "com.example");
    model_add(&m, &n);
    model_output(&m, "y", 0, NULL);
    ir_module *out;
    assert_int_equal(import_bytes(t, model_finish(&m), NULL, &out), AMPC_UNSUPPORTED);
    assert_int_equal(diag_count(t->d, DIAG_ERROR), 2);
    scratch_expect(t, "node 'Foo_0' (Foo): error: operator Foo is not supported (2 nodes)");
}

static void versions(void **state)
{
    static const struct {
        int opset, ir_version;
        ampc_status status;
        const char *text;
    } rows[] = {
        {0, 8, AMPC_REJECTED, "opset version 0"},
        {-1, 8, AMPC_REJECTED, "opset version -1"},
        {99, 8, AMPC_UNSUPPORTED, "opset 99 is not supported"},
        {17, 0, AMPC_REJECTED, "invalid ir_version 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = small_model(rows[i].opset);
        m.ir_version = rows[i].ir_version;
        model_node(&m, "Relu", "x", "y");
        expect_graph_refusal(*state, &m, rows[i].status, rows[i].text);
    }
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_output(&m, "y", 0, NULL);
    wire file = model_finish(&m);
    model_opset(&file, "ai.onnx", 17);
    expect_import(*state, file, "relu @x");
    m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_output(&m, "y", 0, NULL);
    file = model_finish(&m);
    model_opset(&file, "ai.onnx", 18);
    expect_refusal(*state, file, AMPC_REJECTED, "imported twice, as opset 17 and 18");
}

static void declared_types(void **state)
{
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_value(&m, 13, "y", ONNX_int64, "2,3");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "'y' is declared as int64, but is f32");
    m = model_new(17);
    model_input(&m, "x", ONNX_string, "2");
    model_node(&m, "Identity", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_UNSUPPORTED, "element type string");
    m = model_new(17);
    model_input(&m, "x", ONNX_float32, "-2");
    model_node(&m, "Identity", "x", "y");
    expect_graph_refusal(*state, &m, AMPC_REJECTED, "is negative");
}

/* ---- storage --------------------------------------------------------------------------------- */

static void parameters_and_constants(void **state)
{
    model m = model_new(11);
    model_input(&m, "x", ONNX_float32, "N,2");
    model_input(&m, "w", ONNX_float32, "2,2"); /* initializers listed as inputs, as in old files */
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("bound", "", 6));
    model_tensor(&m, TENSOR_FLOATS("exponent", "1", 2));
    model_tensor(&m, TENSOR_FLOATS("onnx::Mul_7", "", 0.5));
    model_tensor(&m, TENSOR_INTS("shape", "2", -1, 2));
    model_tensor(&m, TENSOR_FLOATS("unread", "1", 2));
    model_node(&m, "MatMul", "x,w", "a");
    model_node(&m, "Clip", "a,,bound", "b");
    model_node(&m, "Pow", "b,exponent", "c");
    model_node(&m, "Mul", "c,onnx::Mul_7", "d");
    model_node(&m, "Reshape", "d,shape", "y");
    model_output(&m, "y", 0, NULL);
    ir_module *out;
    assert_int_equal(import_bytes(*state, model_finish(&m), NULL, &out), AMPC_OK);
    assert_int_equal(ir_storage_find(out, "w")->facts, 0);
    assert_int_equal(ir_storage_find(out, "bound")->facts, IR_TENSOR(setting));
    assert_int_equal(ir_storage_find(out, "exponent")->facts, 0);
    assert_int_equal(ir_storage_find(out, "onnx::Mul_7")->facts, IR_TENSOR(generated) | IR_TENSOR(numbered));
    assert_null(ir_storage_find(out, "shape"));
    assert_null(ir_storage_find(out, "unread"));
    assert_int_equal(out->graphs.items[0]->inputs.count, 1);
    ir_module_free(out);
}

/* Large weights are not read: the module stores their location. */
static void weights_stay_in_their_file(void **state)
{
    scratch *t = *state;
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

static void batch_norm_model(model *m, int opset, const char *outputs)
{
    *m = model_new(opset);
    model_input(m, "x", ONNX_float32, "N,2,3");
    model_tensor(m, TENSOR_FLOATS("scale", "2", 1, 2));
    model_tensor(m, TENSOR_FLOATS("bias", "2", 1, 2));
    model_tensor(m, TENSOR_FLOATS("mean", "2", 1, 2));
    model_tensor(m, TENSOR_FLOATS("var", "2", 1, 2));
    node n = node_new("BatchNormalization", "x,scale,bias,mean,var", outputs);
    if (opset >= 14) node_int(&n, "training_mode", strchr(outputs, ',') != NULL);
    model_add(m, &n);
    model_output(m, "y", 0, NULL);
}

static void running_statistics_are_states(void **state)
{
    static const struct {
        int opset;
        const char *outputs;
        bool training;
    } rows[] = {{9, "y", false}, {9, "y,m,v,sm,sv", true}, {14, "y", false}, {14, "y,m,v", true}, {15, "y,m,v", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m;
        batch_norm_model(&m, rows[i].opset, rows[i].outputs);
        ir_module *out;
        assert_int_equal(import_bytes(*state, model_finish(&m), NULL, &out), AMPC_OK);
        assert_int_equal(ir_verify(out, ((scratch *)*state)->d), AMPC_OK);
        assert_int_equal(ir_storage_find(out, "mean")->kind, IR_STATE);
        assert_int_equal(ir_storage_find(out, "var")->kind, IR_STATE);
        assert_int_equal(ir_storage_find(out, "scale")->kind, IR_PARAM);
        const ir_node *last = out->graphs.items[0]->last;
        assert_int_equal(last->op, rows[i].training ? IR_OP_store : IR_OP_output);
        if (rows[i].training) expect_text(out, "update:\n  store @mean, %m\n  store @var, %v\n");
        ir_module_free(out);
    }
}

static void outputs_may_be_inputs_or_initializers(void **state)
{
    model m = small_model(17);
    model_tensor(&m, TENSOR_FLOATS("w", "1", 2));
    model_output(&m, "x", 0, NULL);
    model_output(&m, "w", 0, NULL);
    expect_import(*state, model_finish(&m), "output \"x\" = @x\n  output \"w\" = @w");
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void symbols_and_bindings(void **state)
{
    scratch *t = *state;
    for (int bound = 0; bound < 2; bound++) {
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, "batch,?,4");
        model_node(&m, "Relu", "x", "y");
        model_output(&m, "y", 0, NULL);
        onnx_dim_binding dims[] = {{"batch", 8}, {"x_dim1", 5}};
        onnx_import_options o = {.dims = dims, .n_dims = bound ? 2 : 0};
        ir_module *out;
        assert_int_equal(import_bytes(t, model_finish(&m), &o, &out), AMPC_OK);
        expect_text(out, bound ? "@x : f32[8,5,4]" : "@x : f32[batch,x_dim1,4]");
        ir_module_free(out);
    }
    model m = small_model(17);
    model_node(&m, "Relu", "x", "y");
    model_output(&m, "y", 0, NULL);
    onnx_import_options o = {.dims = &(onnx_dim_binding){"nowhere", 1}, .n_dims = 1};
    ir_module *out;
    assert_int_equal(import_bytes(t, model_finish(&m), &o, &out), AMPC_USAGE);
    scratch_expect(t, "no input has a dimension 'nowhere'");
}

/* PyTorch's export of x.view(x.size(0), -1): Shape, Gather, Unsqueeze, Concat, Reshape. */
static void shape_subgraphs_fold(void **state)
{
    model m = model_new(13);
    model_input(&m, "x", ONNX_float32, "N,2,3");
    model_tensor(&m, TENSOR_INTS("zero", "", 0));
    model_tensor(&m, TENSOR_INTS("axis", "1", 0));
    model_tensor(&m, TENSOR_INTS("rest", "1", -1));
    model_node(&m, "Shape", "x", "shape");
    model_node(&m, "Gather", "shape,zero", "n");
    model_node(&m, "Unsqueeze", "n,axis", "n1");
    node n = node_new("Concat", "n1,rest", "target");
    node_int(&n, "axis", 0);
    model_add(&m, &n);
    model_node(&m, "Reshape", "x,target", "y");
    model_output(&m, "y", 0, NULL);
    expect_import(*state, model_finish(&m), "forward:\n  %y = reshape @x {shape=[N,6]} ");
}

static void inputs_bound_as_constants(void **state)
{
    model m = small_model(17);
    model_input(&m, "shape", ONNX_int64, "2");
    model_node(&m, "Reshape", "x,shape", "y");
    model_output(&m, "y", 0, NULL);
    onnx_constant c = {"shape", {.dtype = IR_i64, .rank = 1, .dims = {2}}, (const int64_t[]){3, -1}};
    onnx_import_options o = {.constants = &c, .n_constants = 1};
    ir_module *out;
    assert_int_equal(import_bytes(*state, model_finish(&m), &o, &out), AMPC_OK);
    expect_text(out, "reshape @x {shape=[3,2]} : f32[3,2]");
    assert_int_equal(out->graphs.items[0]->inputs.count, 1);
    ir_module_free(out);
}

static void check_if(scratch *t, int opset)
{
    model then_branch = model_new(opset), else_branch = model_new(opset);
    model_node(&then_branch, "Relu", "x", "t");
    model_output(&then_branch, "t", 0, NULL);
    model_node(&else_branch, "Frobnicate", "x", "e");
    model_output(&else_branch, "e", 0, NULL);
    model m = small_model(opset);
    model_tensor(&m, TENSOR_INTS("rank", "", 2));
    model_tensor(&m, TENSOR_INTS("two", "", 2));
    model_node(&m, "Equal", "rank,two", "condition");
    node n = node_new("If", "condition", "y");
    node_graph(&n, "then_branch", &then_branch);
    node_graph(&n, "else_branch", &else_branch);
    model_add(&m, &n);
    model_output(&m, "y", 0, NULL);
    expect_import(t, model_finish(&m), "= relu @x : f32[2,3]");
}

static void if_with_known_condition(void **state)
{
    for (int opset = 11; opset <= 23; opset += 4) check_if(*state, opset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(names_are_single_assignment),
        SCRATCH_TEST(order_of_nodes),
        SCRATCH_TEST(nodes_are_sorted),
        SCRATCH_TEST(unsupported_operators_are_listed_at_once),
        SCRATCH_TEST(versions),
        SCRATCH_TEST(declared_types),
        SCRATCH_TEST(parameters_and_constants),
        SCRATCH_TEST(weights_stay_in_their_file),
        SCRATCH_TEST(running_statistics_are_states),
        SCRATCH_TEST(outputs_may_be_inputs_or_initializers),
        SCRATCH_TEST(symbols_and_bindings),
        SCRATCH_TEST(shape_subgraphs_fold),
        SCRATCH_TEST(inputs_bound_as_constants),
        SCRATCH_TEST(if_with_known_condition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
