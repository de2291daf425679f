/* test_emit_operators.c - operators that are lowered to several ops, or to an op that usually stands for another
 * operator, are written back as they were. */
#include "tests/unit/emit_fixture.h"

/* A model in which `op` is between a MatMul and a Sigmoid, in fp16. */
static onnx_file *convert(scratch *t, const char *op, const char *operands, const char *attribute, int64_t value)
{
    model m = model_new(17);
    model_input(&m, "in", ONNX_float32, "N,1,4");
    model_input(&m, "y", ONNX_float32, "4");
    model_tensor(&m, TENSOR_FLOATS("w", "4,4", 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1));
    model_tensor(&m, TENSOR_FLOATS("u", "1,4", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_INTS("i", "1,1", 0));
    model_tensor(&m, TENSOR_INTS("repeats", "3", 2, 1, 3));
    model_tensor(&m, TENSOR_INTS("axis", "1", 1));
    model_node(&m, "MatMul", "in,w", "x");
    node n = node_new(op, operands, "z");
    wire_text(&n, 3, "module/part");
    if (attribute) node_int(&n, attribute, value);
    model_add(&m, &n);
    model_node(&m, "Sigmoid", "z", "out");
    model_output(&m, "out", ONNX_float32, NULL);
    return emitted(t, model_finish(&m), PASS_O1, IR_f16);
}

static const Onnx__AttributeProto *find_attribute(const Onnx__NodeProto *n, const char *name)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, name) == 0) return n->attribute[i];
    return NULL;
}

TEST_SCRATCH(test_operators_return)
{
    static const struct {
        const char *op, *operands, *attribute;
        int64_t value;
        size_t casts; /* on the way from the model's types and back */
    } cases[] = {
        {"Tile", "x,repeats", NULL, 0, 2},  {"Sum", "x,y,x", NULL, 0, 3},      {"Sum", "x,y", NULL, 0, 3},
        {"Max", "x,y,x", NULL, 0, 2},       {"Max", "x,y", NULL, 0, 2},        {"Min", "x,y,x", NULL, 0, 2},
        {"ScatterND", "w,i,u", NULL, 0, 1}, {"Squeeze", "x,axis", NULL, 0, 2}, {"Unsqueeze", "x,axis", NULL, 0, 2},
        {"Flatten", "x", "axis", 1, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_file *f = convert(t, cases[i].op, cases[i].operands, cases[i].attribute, cases[i].value);
        const Onnx__GraphProto *g = f->model->graph;
        const Onnx__NodeProto *n = find_op(f, cases[i].op);
        size_t operands = 1, casts = 0;
        for (const char *p = cases[i].operands; *p; p++) operands += *p == ',';
        for (size_t k = 0; k < g->n_node; k++) casts += strcmp(g->node[k]->op_type, "Cast") == 0;
        assert_string_equal(n->name, "module/part");
        assert_int_equal(n->n_input, operands);
        assert_int_equal(casts, cases[i].casts);
        assert_int_equal(g->n_node, casts + 3 - (cases[i].op[0] == 'S' && cases[i].op[1] == 'c'));
        if (cases[i].attribute) assert_int_equal(find_attribute(n, cases[i].attribute)->i, cases[i].value);
        onnx_file_close(f);
    }
}

/* What only computes a size is folded as it is in a model that is run. */
TEST_SCRATCH(test_sizes_fold)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,6,6,6");
    model_tensor(&m, TENSOR_INTS("repeats", "1", 2));
    model_tensor(&m, TENSOR_INTS("six", "1", 6));
    model_tensor(&m, TENSOR_INTS("half", "1", 2));
    model_node(&m, "Tile", "half,repeats", "twice");
    node n = node_new("Concat", "six,twice", "sizes");
    node_int(&n, "axis", 0);
    model_add(&m, &n);
    model_node(&m, "Max", "sizes,six,half", "shape"); /* 6, 6, 6 */
    model_node(&m, "Expand", "w,shape", "e");
    model_tensor(&m, TENSOR_FLOATS("w", "1", 1));
    model_node(&m, "Add", "x,e", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = emitted(t, model_finish(&m), PASS_O0, IR_f16);
    for (size_t i = 0; i < f->model->graph->n_node; i++) {
        assert_string_not_equal(f->model->graph->node[i]->op_type, "Tile");
        assert_string_not_equal(f->model->graph->node[i]->op_type, "Max");
    }
    onnx_file_close(f);
}

/* The output padding follows from the shapes and from both ends of the padding. */
TEST_SCRATCH(test_output_padding)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,1,4");
    model_tensor(&m, TENSOR_FLOATS("w", "1,1,3", 1, 2, 3));
    node n = node_new("ConvTranspose", "x,w", "y");
    node_ints(&n, "strides", "2");
    node_ints(&n, "pads", "1,0");
    node_ints(&n, "output_padding", "1");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = emit_model(t, model_finish(&m), false, PASS_O0, IR_f16);
    const Onnx__AttributeProto *extra = find_attribute(find_op(f, "ConvTranspose"), "output_padding");
    assert_non_null(extra);
    assert_int_equal(extra->n_ints, 1);
    assert_int_equal(extra->ints[0], 1);
    onnx_file_close(f);
}

static const Onnx__NodeProto *find_result(const onnx_file *f, const char *name)
{
    for (size_t i = 0; i < f->model->graph->n_node; i++)
        if (strcmp(f->model->graph->node[i]->output[0], name) == 0) return f->model->graph->node[i];
    fail_msg("no result %s", name);
    return NULL;
}

/* The positions of a DeformConv become those in [-1,1]: x is scaled by the width, y by the height. */
TEST_SCRATCH(test_positions_scale_with_their_axis)
{
    model m = model_new(19);
    model_input(&m, "x", ONNX_float32, "1,1,2,4");
    model_input(&m, "offset", ONNX_float32, "1,2,2,4");
    model_tensor(&m, TENSOR_FLOATS("w", "1,1,1,1", 1));
    model_node(&m, "DeformConv", "x,w,offset", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = emit_model(t, model_finish(&m), false, PASS_O0, IR_f16);
    const Onnx__NodeProto *add = find_result(f, find_op(f, "GridSample")->input[1]);
    const Onnx__NodeProto *mul = find_result(f, add->input[0]);
    const float spacing[] = {0.5F, 1}, first[] = {-0.75F, -0.5F};
    assert_memory_equal(find_tensor(f, mul->input[1])->raw_data.data, spacing, sizeof spacing);
    assert_memory_equal(find_tensor(f, add->input[1])->raw_data.data, first, sizeof first);
    onnx_file_close(f);
}
