/* test_emit_opaque.c - opaque operators and their subgraphs, from model to model. */
#include "tests/unit/emit_fixture.h"

static const Onnx__GraphProto *graph_of(const Onnx__NodeProto *n, const char *attribute)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, attribute) == 0) return n->attribute[i]->g;
    fail_msg("no attribute %s", attribute);
    return NULL;
}

static void declare(model *m, const char *name, int type, const char *dims) { model_value(m, 13, name, type, dims); }

/* x -> MatMul -> h -> Foo(h, absent, w) of another domain -> y */
static wire opaque_model_in(bool declared, bool sorted)
{
    model m = model_new(13);
    model_input(&m, "x", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    node last = node_new("Gemm", "f,w", "y");
    node_int(&last, "transB", 1);
    if (!sorted) model_add(&m, &last);
    model_node(&m, "MatMul", "x,w", "h");
    node n = node_new("Foo", "h,,w", "f,,i");
    wire_text(&n, 7, "com.acme");
    wire_text(&n, 3, "my/foo");
    node_text(&n, "how", "well");
    model_add(&m, &n);
    if (sorted) model_add(&m, &last);
    if (declared) declare(&m, "f", ONNX_float32, "N,2");
    if (declared) declare(&m, "i", ONNX_int64, "K");
    model_output(&m, "y", ONNX_float32, NULL);
    model_output(&m, "i", ONNX_int64, NULL);
    wire file = model_finish(&m);
    model_opset(&file, "com.acme", 3);
    return file;
}

static wire opaque_model(bool declared) { return opaque_model_in(declared, true); }

static void check_opaque(scratch *t, bool sorted)
{
    onnx_file *f = emitted(t, opaque_model_in(true, sorted), PASS_O1, IR_f16);
    const Onnx__NodeProto *n = find_op(f, "Foo");
    assert_string_equal(n->domain, "com.acme");
    assert_string_equal(n->name, "my/foo");
    assert_int_equal(n->n_input, 3);
    assert_string_not_equal(n->input[0], "h"); /* which is f16: cast back */
    assert_string_equal(n->input[1], "");
    assert_int_equal(n->n_output, 3);
    assert_string_equal(n->output[0], "f");
    assert_string_equal(n->output[1], "");
    assert_string_equal(n->output[2], "i");
    assert_int_equal(n->n_attribute, 1);
    assert_memory_equal(n->attribute[0]->s.data, "well", 4);
    assert_int_equal(f->model->n_opset_import, 2);
    assert_int_equal(f->model->opset_import[1]->version, 3);
    assert_int_equal(find_tensor(f, "w")->data_type, ONNX_float32); /* Foo reads it unchanged */
    onnx_file_close(f);
}

TEST_SCRATCH(test_opaque)
{
    check_opaque(t, true);
    check_opaque(t, false);
}

/* Printing and parsing preserve the node. */
TEST_SCRATCH(test_opaque_in_text)
{
    wire file = opaque_model(true);
    const onnx_import_options o = {.opaque = true};
    ir_module *m, *again;
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", &o, t->d, &m), AMPC_OK);
    arena *a = arena_new(0);
    const char *text = ir_print(m, a);
    assert_int_equal(ir_parse(text, strlen(text), "m.ir", t->d, &again), AMPC_OK);
    assert_string_equal(ir_print(again, a), text);
    assert_int_equal(ir_verify(again, t->d), AMPC_OK);
    arena_free(a);
    ir_module_free(m);
    ir_module_free(again);
    wire_free(&file);
}

TEST_SCRATCH(test_opaque_is_refused)
{
    const onnx_import_options o = {.opaque = true};
    ir_module *m;
    wire file = opaque_model(false);
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", &o, t->d, &m), AMPC_UNSUPPORTED);
    scratch_expect(t, "does not declare the type of its result 'f'");
    wire_free(&file);
    file = opaque_model(true);
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, t->d, &m), AMPC_UNSUPPORTED);
    scratch_expect(t, "com.acme.Foo is not supported");
    wire_free(&file);
}

/* Opaque operators have no kernels; the error lists all of them. */
TEST_SCRATCH(test_opaque_does_not_run)
{
    static const char text[] = "ampc-ir 3\ngraph @infer(@x : f32[2,2]) as infer {\n"
                               "  %a = opaque @x : f32[2,2] !Foo \"a\"\n"
                               "  %b = opaque %a : f32[2,2] !Bar \"b\"\n"
                               "  %c = opaque %b : f32[2,2] !Foo \"c\"\n"
                               "  output \"c\" = %c\n}\n";
    float x[4] = {0};
    rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {2, 2}, .data = x};
    ir_module *m;
    rt_session *s = NULL;
    assert_int_equal(ir_parse(text, sizeof text - 1, "m.ir", t->d, &m), AMPC_OK);
    ampc_status status = rt_session_open(m, &(rt_session_options){.device = "cpu"}, t->d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, "infer", &in, 1, t->d);
    assert_int_equal(status, AMPC_UNSUPPORTED);
    scratch_expect(t, "node 'a' (Foo): error: no kernel on device cpu for: Foo (2 nodes), Bar (1 node)");
    rt_session_close(s);
    ir_module_free(m);
}

static model branch(const char *op, const char *inputs, const char *result)
{
    model b = model_new(13);
    model_node(&b, op, inputs, result);
    model_output(&b, result, ONNX_float32, "2,2");
    return b;
}

/* An If whose branches capture values, one of which has become fp16. */
TEST_SCRATCH(test_captures)
{
    model m = model_new(13), a = branch("Add", "h,x", "a"), b = branch("Mul", "h,w", "b");
    model_input(&m, "c", ONNX_bool, "");
    model_input(&m, "x", ONNX_float32, "2,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_node(&m, "MatMul", "x,w", "h");
    node n = node_new("If", "c", "f");
    node_graph(&n, "then_branch", &a);
    node_graph(&n, "else_branch", &b);
    model_add(&m, &n);
    model_node(&m, "MatMul", "f,w", "y");
    declare(&m, "f", ONNX_float32, "2,2");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = emitted(t, model_finish(&m), PASS_O1, IR_f16);
    const Onnx__NodeProto *branches = find_op(f, "If");
    const Onnx__GraphProto *then_graph = graph_of(branches, "then_branch"),
                           *else_graph = graph_of(branches, "else_branch");
    const Onnx__NodeProto *add = find_node(then_graph, "Add"), *mul = find_node(else_graph, "Mul");
    assert_string_equal(add->input[0], "h"); /* unchanged, without a cast to f32 and back */
    assert_string_equal(mul->input[0], "h");
    const Onnx__NodeProto *cast = find_op(f, "Cast"); /* for the outer matmul, and the Add whose other operand is low */
    assert_string_equal(cast->input[0], "x");
    assert_string_equal(add->input[1], cast->output[0]);
    assert_string_equal(mul->input[1], "w");
    assert_int_equal(find_tensor(f, "w")->data_type, ONNX_float16);
    assert_int_equal(then_graph->output[0]->type->tensor_type->elem_type, ONNX_float32);
    assert_int_equal(else_graph->output[0]->type->tensor_type->elem_type, ONNX_float32);
    onnx_file_close(f);
}

/* Before opset 13 the axes of Unsqueeze were an attribute. In a subgraph they become an operand; if the branches have
 * different shapes, their graphs are passed through in their original form. */
static void check_changed_subgraph(scratch *t, const char *other, bool lowered)
{
    parts out = {0};
    const onnx_emit_options o = {.data_name = "new.data", .max_model_bytes = 0, .write = collect, .user = &out};
    model m = model_new(11), a = model_new(11), b = model_new(11);
    model *branches[] = {&a, &b};
    model_input(&m, "c", ONNX_bool, "");
    model_input(&m, "x", ONNX_float32, "2");
    node n = node_new("If", "c", "y");
    for (int i = 0; i < 2; i++) {
        node inner = node_new(i ? other : "Unsqueeze", "x", i ? "p" : "q");
        if (!i || lowered) node_ints(&inner, "axes", "0");
        model_add(branches[i], &inner);
        model_output(branches[i], i ? "p" : "q", ONNX_float32, i && !lowered ? "2" : "1,2");
        node_graph(&n, i ? "else_branch" : "then_branch", branches[i]);
    }
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "1,2");
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    ir_module *module = compile_model(t, scratch_path(t, "m.onnx"), true, PASS_O1, IR_f16);
    assert_int_equal(onnx_emit(module, "infer", &o, t->d), lowered ? AMPC_OK : AMPC_UNSUPPORTED);
    ir_module_free(module);
    for (int i = 0; i < 2; i++) free(out.part[i].bytes);
}

TEST_SCRATCH(test_changed_subgraph)
{
    check_changed_subgraph(t, "Unsqueeze", true);
    check_changed_subgraph(t, "Neg", false);
    scratch_expect(t, "Unsqueeze changed in opset 13");
}
