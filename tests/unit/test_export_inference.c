/* test_export_inference.c - exported models: operators in training form become their inference form. */
#include "tests/unit/export_fixture.h"

static void expect_names(char **names, size_t n, const char *expected)
{
    char text[256] = "";
    for (size_t i = 0; i < n; i++) {
        if (i) strcat(text, ",");
        strcat(text, names[i]);
    }
    assert_string_equal(text, expected);
}

static void expect_node(const onnx_file *f, size_t i, const char *op, const char *in, const char *out)
{
    assert_true(i < f->model->graph->n_node);
    const Onnx__NodeProto *n = f->model->graph->node[i];
    assert_string_equal(n->op_type, op);
    expect_names(n->input, n->n_input, in);
    expect_names(n->output, n->n_output, out);
}

/* `extra`: further results; `read`: a name that another node reads. */
static wire batch_norm(int opset, const char *extra, const char *read)
{
    model m = model_new(opset);
    char results[64];
    snprintf(results, sizeof results, "y%s", extra);
    model_input(&m, "x", ONNX_float32, "N,2,3");
    for (int i = 0; i < 4; i++)
        model_tensor(&m, TENSOR_FLOATS(((const char *[]){"s", "b", "mean", "var"})[i], "2", 1, 2));
    node n = node_new("BatchNormalization", "x,s,b,mean,var", results);
    node_float(&n, "momentum", 0.5f);
    if (opset >= 14) node_int(&n, "training_mode", 1);
    model_add(&m, &n);
    if (read) model_node(&m, "Neg", read, "z");
    model_output(&m, "y", 0, NULL);
    if (read) model_output(&m, "z", 0, NULL);
    model_value(&m, 13, "new_mean", ONNX_float32, "2");
    return model_finish(&m);
}

TEST_SCRATCH(test_batch_norm)
{
    static const float mean[] = {3, 4};
    const onnx_trained trained = values("mean", 2, mean);
    for (int opset = 9; opset <= 17; opset += 8) {
        const char *extra = opset < 14 ? ",new_mean,new_var,saved_mean,saved_var" : ",new_mean,new_var";
        parts out = {0};
        onnx_file *f = exported(t, batch_norm(opset, extra, NULL), &trained, 1, &out);
        const Onnx__GraphProto *g = f->model->graph;
        assert_int_equal(g->n_node, 1);
        expect_node(f, 0, "BatchNormalization", "x,s,b,mean,var", "y");
        assert_int_equal(g->node[0]->n_attribute, 1);
        assert_string_equal(g->node[0]->attribute[0]->name, "momentum");
        assert_memory_equal(g->initializer[2]->raw_data.data, mean, sizeof mean);
        assert_int_equal(g->n_value_info, 0);
        close_export(f, &out);
    }
}

/* In inference the updated running statistics equal the old ones; the batch statistics are dropped. */
TEST_SCRATCH(test_batch_norm_results)
{
    parts out = {0};
    onnx_file *f = exported(t, batch_norm(17, ",new_mean,new_var", "new_mean"), NULL, 0, &out);
    assert_int_equal(f->model->graph->n_node, 3);
    expect_node(f, 1, "Identity", "mean", "new_mean");
    expect_node(f, 2, "Neg", "new_mean", "z");
    assert_int_equal(f->model->graph->n_value_info, 1);
    close_export(f, &out);
    expect_failure(t, batch_norm(9, ",m,v,saved,saved_var", "saved"), NULL, 0, AMPC_UNSUPPORTED,
                   "(BatchNormalization): error: its result 'saved' is read");
}

TEST_SCRATCH(test_dropout)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,3");
    model_input(&m, "train_c", ONNX_bool, "");
    model_tensor(&m, tensor_new("train_a", ONNX_bool, "", "\1", 1));
    model_tensor(&m, TENSOR_FLOATS("ratio", "", 0.5f));
    node n = node_new("Constant", "", "train_b");
    node_tensor(&n, "value", tensor_new("", ONNX_bool, "", "\1", 1));
    model_add(&m, &n);
    model_node(&m, "Dropout", "x,ratio,train_a", "a,mask");
    model_node(&m, "Dropout", "a,,train_b", "b");
    model_node(&m, "Dropout", "b,,train_c", "y");
    model_output(&m, "y", 0, NULL);
    parts out = {0};
    onnx_file *f = exported(t, model_finish(&m), NULL, 0, &out);
    const Onnx__GraphProto *g = f->model->graph;
    assert_int_equal(g->n_node, 3);
    expect_node(f, 0, "Dropout", "x,ratio", "a,mask");
    expect_node(f, 1, "Dropout", "a", "b");
    expect_node(f, 2, "Dropout", "b", "y");
    assert_int_equal(g->n_initializer, 1);
    assert_string_equal(g->initializer[0]->name, "ratio");
    assert_int_equal(g->n_input, 1);
    close_export(f, &out);
}

/* A constant with another use is kept. */
TEST_SCRATCH(test_shared_mode)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,3");
    model_tensor(&m, tensor_new("train", ONNX_bool, "", "\1", 1));
    model_node(&m, "Dropout", "x,,train", "y");
    model_node(&m, "Not", "train", "z");
    model_output(&m, "y", 0, NULL);
    model_output(&m, "z", 0, NULL);
    parts out = {0};
    onnx_file *f = exported(t, model_finish(&m), NULL, 0, &out);
    assert_int_equal(f->model->graph->n_initializer, 1);
    close_export(f, &out);
}

/* Branches of an If have initializers and nodes like any graph. */
TEST_SCRATCH(test_branch)
{
    model m = model_new(17), yes = model_new(17), no = model_new(17);
    model_tensor(&yes, TENSOR_FLOATS("w", "3", 1, 2, 3));
    model_tensor(&yes, tensor_new("train", ONNX_bool, "", "\1", 1));
    model_node(&yes, "Dropout", "x,,train", "a");
    model_node(&yes, "Add", "a,w", "b");
    model_output(&yes, "b", ONNX_float32, NULL);
    model_node(&no, "Neg", "x", "c");
    model_output(&no, "c", ONNX_float32, NULL);
    model_input(&m, "x", ONNX_float32, "N,3");
    model_tensor(&m, tensor_new("which", ONNX_bool, "", "\1", 1));
    node n = node_new("If", "which", "y");
    node_graph(&n, "then_branch", &yes);
    node_graph(&n, "else_branch", &no);
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, NULL);
    static const float new_values[] = {10, 20, 30};
    const onnx_trained trained = values("w", 3, new_values);
    parts out = {0};
    onnx_file *f = exported(t, model_finish(&m), &trained, 1, &out);
    const Onnx__GraphProto *g = f->model->graph->node[0]->attribute[0]->g;
    assert_int_equal(g->n_initializer, 1);
    assert_memory_equal(g->initializer[0]->raw_data.data, new_values, sizeof new_values);
    expect_names(g->node[0]->input, g->node[0]->n_input, "x");
    close_export(f, &out);
}

TEST_SCRATCH(test_training_info)
{
    wire file = add_model(TENSOR_FLOATS("w", "3", 1, 2, 3)), info = {0};
    size_t size = file.size;
    wire_message(&file, 20, &info);
    parts out = {0};
    onnx_file *f = exported(t, file, NULL, 0, &out);
    assert_int_equal(out.part[ONNX_PART_MODEL].size, size);
    close_export(f, &out);
}
