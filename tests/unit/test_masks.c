/* test_masks.c - which initializers are masks of a softmax, and that a training step leaves them alone. */
#include "tests/session.h"
#include "tests/unit/params.h"

#include <math.h>

/* ---- forms --------------------------------------------------------------------------------------- */

static void add_first_form(model *m) { model_node(m, "Add", "m,x", "s"); }
static void multiply_form(model *m) { model_node(m, "Mul", "x,m", "s"); }
static void subtract_form(model *m) { model_node(m, "Sub", "x,m", "s"); }
static void max_form(model *m) { model_node(m, "Max", "x,m", "s"); }

/* (1 - m) * -10000 + x, as in BERT */
static void extended_form(model *m)
{
    model_node(m, "Sub", "one,m", "a");
    model_node(m, "Mul", "a,minus", "b");
    model_node(m, "Add", "x,b", "s");
}

/* x * m - 1e4 * (1 - m), as in the first version of GPT-2 */
static void blend_form(model *m)
{
    model_node(m, "Mul", "x,m", "a");
    model_node(m, "Sub", "one,m", "b");
    model_node(m, "Mul", "b,minus", "c");
    model_node(m, "Add", "a,c", "s");
}

static void moved_form(model *m)
{
    node cast = node_new("Cast", "m", "a"), back = node_new("Cast", "c", "d"), turn = node_new("Transpose", "b", "c");
    node_int(&cast, "to", ONNX_float16);
    node_ints(&turn, "perm", "0,2,1");
    node_int(&back, "to", ONNX_float32);
    model_add(m, &cast);
    model_node(m, "Unsqueeze", "a,first", "b");
    model_add(m, &turn);
    model_add(m, &back);
    model_node(m, "Squeeze", "d,first", "e");
    model_node(m, "Add", "x,e", "s");
}

static void product_form(model *m) { model_node(m, "MatMul", "x,m", "s"); }

static void activation_form(model *m)
{
    model_node(m, "Add", "x,m", "a");
    model_node(m, "Tanh", "a", "s");
}

static const char *masked(scratch *t, mask_form *form, const float *values, const char *dims)
{
    model m = mask_model(form, values, dims);
    ir_module *out = compile_net(t, &m, &only_params, NULL);
    assert_non_null(out);
    const char *state = state_of(out, "m");
    expect_state(out, "w", "trained");
    ir_module_free(out);
    return state;
}

TEST_SCRATCH(values_of_masks)
{
    static const struct {
        float low, high;
        bool held;
    } rows[] = {
        {0, -1e9f, true},     {0, -10000, true},    {0, -INFINITY, true}, {0, -3.4028235e38f, true},
        {0, -65504, true},    {-0.0f, -1e9f, true}, {1, 0, true},         {0, 1, true},
        {-1e9f, -1e9f, true}, {0, 10000, true}, /* of Sub; learned tensors do not look like this either */
        {0, 0, false},        {1, 1, false},        {0, -100, false},     {0, -9999, false},
        {0, 2, false},        {-1, 1, false},       {0.5f, -1e9f, false}, {1, -1e9f, false},
        {1e9f, -1e9f, false}, {NAN, -1e9f, false},  {0, 0.02f, false},    {1e9f, 1e9f, false},
    };
    float cells[CELLS];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill(cells, rows[i].low, rows[i].high);
        const char *got = masked(t, add_form, cells, "4,4");
        if (strcmp(got, rows[i].held ? "constant" : "trained") != 0)
            fail_msg("{%g, %g}: %s", rows[i].low, rows[i].high, got);
    }
}

TEST_SCRATCH(values_of_several_kinds)
{
    float cells[CELLS];
    fill(cells, 0, -1e9f);
    cells[3] = -INFINITY; /* a padding mask added to a causal one */
    assert_string_equal(masked(t, add_form, cells, "4,4"), "constant");
    cells[CELLS - 1] = 0.25f; /* the last element matters too */
    assert_string_equal(masked(t, add_form, cells, "4,4"), "trained");
}

TEST_SCRATCH(uses_of_masks)
{
    static const struct {
        mask_form *form;
        float low, high;
        const char *state; /* "gone": folded into a value computed from it */
    } rows[] = {
        {add_first_form, 0, -1e9f, "constant"}, {multiply_form, 1, 0, "constant"},
        {subtract_form, 0, 10000, "constant"},  {select_form, 0, -1e9f, "constant"},
        {max_form, 0, -1e9f, "constant"},       {extended_form, 1, 0, "gone"},
        {blend_form, 1, 0, "constant"},         {moved_form, 0, -1e4f, "gone"},
        {product_form, 1, 0, "trained"},        {activation_form, 0, -1e9f, "trained"},
        {multiply_form, 1, 1, "trained"},       {extended_form, 0, 0, "trained"},
    };
    float cells[CELLS];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill(cells, rows[i].low, rows[i].high);
        const char *got = masked(t, rows[i].form, cells, "4,4");
        if (strcmp(got, rows[i].state) != 0) fail_msg("row %zu: %s, not %s", i, got, rows[i].state);
    }
}

/* GPT-2's buffer masked_bias has one element, as does a learned temperature before a softmax. */
TEST_SCRATCH(single_elements_before_a_softmax)
{
    static const struct {
        mask_form *form;
        float value;
        const char *state;
    } rows[] = {
        {select_form, -1e4f, "constant"},   {add_form, -INFINITY, "constant"}, {multiply_form, 1, "trained"},
        {multiply_form, 0.125f, "trained"}, {add_form, 0, "trained"},          {multiply_form, 14.3f, "trained"},
        {multiply_form, 1e5f, "trained"},   {add_form, -100, "trained"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 2; k++) {
            const char *got = masked(t, rows[i].form, &rows[i].value, k ? "1" : "");
            if (strcmp(got, rows[i].state) != 0) fail_msg("row %zu: %s, not %s", i, got, rows[i].state);
        }
}

/* Above the size that the importer reads, the bytes stay in the file, where pass params reads them. */
TEST_SCRATCH(large_masks_stay_in_their_file)
{
    enum { ROWS = 640 };
    static float cells[ROWS * ROWS];
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < ROWS * ROWS; i++) cells[i] = i % ROWS > i / ROWS ? -1e9f : 0;
        if (last) cells[ROWS * ROWS - 1] = 0.5f;
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, "640,640");
        model_tensor(&m, tensor_new("m", ONNX_float32, "640,640", cells, sizeof cells));
        model_tensor(&m, tensor_new("scale", ONNX_float32, "640", cells + 1, ROWS * sizeof *cells));
        model_node(&m, "Add", "x,m", "s");
        model_node(&m, "Softmax", "s", "p");
        model_node(&m, "Mul", "p,scale", "y");
        model_output(&m, "y", 0, NULL);
        ir_module *out = compile_net(t, &m, &only_params, NULL);
        expect_state(out, "m", last ? "trained" : "constant");
        assert_int_equal(ir_storage_find(out, "m")->data.kind, IR_DATA_FILE);
        expect_state(out, "scale", "trained"); /* it has the values of a mask, but no softmax reads it */
        ir_module_free(out);
    }
}

/* ---- training ---------------------------------------------------------------------------------- */

static void train_steps(scratch *t, const ir_module *m, int steps)
{
    float x[CELLS], label[SIZE] = {1, -1, 0.5f, 2};
    for (int i = 0; i < CELLS; i++) x[i] = 0.1f * (float)(i % 7) - 0.2f;
    const rt_tensor inputs[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {SIZE, SIZE}, .data = x},
                                {.name = "label", .dtype = IR_f32, .rank = 2, .dims = {SIZE, 1}, .data = label}};
    const rt_session_options device = {.device = "cpu"};
    float before[CELLS], after[CELLS];
    fill(before, 0, -1e9f);
    rt_session *s;
    rt_tensor v;
    assert_int_equal(rt_session_open(m, &device, t->d, &s), AMPC_OK);
    for (int i = 0; i < steps; i++)
        if (rt_session_run(s, "train_step", inputs, 2, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_int_equal(test_storage(s, "w", t->d, &v), AMPC_OK);
    assert_true(((const float *)v.data)[0] != 1);
    assert_int_equal(test_storage(s, "m", t->d, &v), AMPC_OK);
    memcpy(after, v.data, sizeof after);
    bool moved = memcmp(before, after, sizeof after) != 0;
    assert_int_equal(moved, ir_storage_find(m, "m")->kind == IR_PARAM);
    rt_session_close(s);
}

/* The weight decay of AdamW changes trained tensors even if the gradient is zero. */
TEST_SCRATCH(a_mask_does_not_move)
{
    float cells[CELLS];
    fill(cells, 0, -1e9f);
    for (int released = 0; released < 2; released++) {
        choice c = {.loss = "mse", .train = {released ? "m" : NULL, "w"}};
        model m = mask_model(add_form, cells, "4,4");
        ir_module *out = compile_net(t, &m, &c, NULL);
        if (!out) fail_msg("%s", diag_first_error(t->d));
        expect_state(out, "m", released ? "trained" : "constant");
        train_steps(t, out, 5);
        ir_module_free(out);
    }
}
