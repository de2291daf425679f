/* test_opaque_types.c - result types of operators that stay opaque, in models that declare none. Operands: x
 * f32[2,3,4], c f32[1,2,S,S], w f32[3,2,3,3], signal f32[2,9,1], window f32[4], and lists of integers that are not
 * known: one, two and three with that many elements. */
#include "tests/unit/import_fixture.h"

static const struct {
    const char *op, *operands, *attributes; /* "name=1,2": a list; "name=1": a number; "name=text" */
    int outputs;
    const char *expected; /* of the last result */
} rows[] = {
    {"Reshape", "x,two", NULL, 1, "f32[y0_dim0,y0_dim1]"},
    {"Expand", "x,three", NULL, 1, "f32[2,3,4]"},
    {"Expand", "x,four", NULL, 1, "f32[y0_dim0,2,3,4]"},
    {"Tile", "x,three", NULL, 1, "f32[y0_dim0,y0_dim1,y0_dim2]"},
    {"Slice", "x,one,last,last", NULL, 1, "f32[2,3,y0_dim2]"},
    {"Slice", "x,one,one,last", NULL, 1, "f32[2,3,0]"},
    {"Slice", "x,one,one,one", NULL, 1, "f32[y0_dim0,y0_dim1,y0_dim2]"},
    {"Slice", "x,three,three", NULL, 1, "f32[0,0,0]"},
    {"Pad", "x,two,,last", NULL, 1, "f32[2,3,y0_dim2]"},
    {"Split", "x,two", "axis=1", 2, "f32[2,y1_dim1,4]"},
    {"Squeeze", "x,one", NULL, 1, "f32[y0_dim0,y0_dim1]"},
    {"Unsqueeze", "x,two", NULL, 1, "f32[y0_dim0,y0_dim1,y0_dim2,y0_dim3,y0_dim4]"},
    {"ConstantOfShape", "two", NULL, 1, "f32[y0_dim0,y0_dim1]"},
    {"ReduceSum", "x,two", "keepdims=0", 1, "f32[y0_dim0]"},
    {"ReduceSum", "x,two", NULL, 1, "f32[y0_dim0,y0_dim1,y0_dim2]"},
    {"ReduceMax", "x,one", "keepdims=0", 1, "f32[y0_dim0,y0_dim1]"},
    {"TopK", "x,one", NULL, 2, "i64[2,3,y0_dim2]"},
    {"Trilu", "x,one", NULL, 1, "f32[2,3,4]"},
    {"Resize", "x,,,three", NULL, 1, "f32[y0_dim0,y0_dim1,y0_dim2]"},
    {"Conv", "c,w", "auto_pad=SAME_UPPER strides=2,2", 1, "f32[1,3,y0_dim2,y0_dim3]"},
    {"MaxPool", "c", "auto_pad=SAME_UPPER kernel_shape=2,2 strides=2,2", 2, "i64[1,2,y1_dim2,y1_dim3]"},
    {"Col2Im", "x,two,two", NULL, 1, "f32[2,y0_dim1,y0_dim2,y0_dim3]"},
    {"BitCast", "x", "to=6", 1, "i32[2,3,4]"},
    {"LinearAttention", "x,x,x", "q_num_heads=2 kv_num_heads=2", 2, "f32[2,2,2,2]"},
    {"TfIdfVectorizer", "ids", "ngram_indexes=0,3 mode=TF max_gram_length=1", 1, "f32[2,4]"},
    {"STFT", "signal,one,window", NULL, 1, "f32[2,y0_dim1,y0_dim2,2]"},
};

static void add_attributes(node *n, const char *text)
{
    while (text && *text) {
        char name[32], value[64];
        const size_t length = strcspn(text, "="), end = strcspn(text, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        snprintf(value, sizeof value, "%.*s", (int)(end - length - 1), text + length + 1);
        if (strchr(value, ',')) node_ints(n, name, value);
        else if (isdigit((unsigned char)*value)) node_int(n, name, atoll(value));
        else node_text(n, name, value);
        text += end + (text[end] == ' ');
    }
}

static wire make_model(size_t row)
{
    model m = model_new(28);
    model_input(&m, "x", ONNX_float32, "2,3,4");
    model_input(&m, "c", ONNX_float32, "1,2,S,S");
    model_input(&m, "w", ONNX_float32, "3,2,3,3");
    model_input(&m, "signal", ONNX_float32, "2,9,1");
    model_input(&m, "window", ONNX_float32, "4");
    model_input(&m, "ids", ONNX_int64, "2,5");
    model_input(&m, "one", ONNX_int64, "1");
    model_input(&m, "two", ONNX_int64, "2");
    model_input(&m, "three", ONNX_int64, "3");
    model_input(&m, "four", ONNX_int64, "4");
    model_tensor(&m, TENSOR_INTS("last", "1", -1));
    node n = node_new(rows[row].op, rows[row].operands, rows[row].outputs == 1 ? "y0" : "y0,y1");
    add_attributes(&n, rows[row].attributes);
    model_add(&m, &n);
    model_output(&m, rows[row].outputs == 1 ? "y0" : "y1", 0, NULL);
    return model_finish(&m);
}

static void test_types(void **state)
{
    scratch *t = *state;
    const onnx_import_options o = {.opaque = true};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_module *m = NULL;
        if (import_bytes(t, make_model(i), &o, &m) != AMPC_OK) fail_msg("%s: %s", rows[i].op, diag_first_error(t->d));
        const ir_graph *g = ir_graph_find(m, "forward");
        const ir_value *v = ir_in(ir_first_output(g), 0);
        arena *a = arena_new(0);
        const char *type = ir_type_print(m, &v->type, a);
        if (strcmp(type, rows[i].expected) != 0)
            fail_msg("row %zu, %s: %s, not %s", i, rows[i].op, type, rows[i].expected);
        arena_free(a);
        ir_module_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCRATCH_TEST(test_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
