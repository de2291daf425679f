/* test_mask_values.c - the numbers of masks in low precision: finite ones stay finite and infinite ones infinite, for
 * each way in which a mask enters a model, low type, level and kind of module, also after another runtime's file.
 *
 * y = softmax(masked x w) v for four rows. Nothing is masked in the first, the last column in all others, and all of
 * the third. The expected values are those of the model in f32. */
#include "tests/unit/emit_fixture.h"

#define F32_LOWEST (-3.4028235e38f)

enum { SIZE = 4, CELLS = SIZE * SIZE, MASKED = 2 /* the fully masked row */ };

/* ---- models -------------------------------------------------------------------------------------- */

static bool is_visible(int i) { return i / SIZE == 0 || (i % SIZE != SIZE - 1 && i / SIZE != MASKED); }

static void fill_mask(float *cells, float low)
{
    for (int i = 0; i < CELLS; i++) cells[i] = is_visible(i) ? 0 : low;
}

static void add_number(model *m, const char *name, float v)
{
    model_tensor(m, tensor_new(name, ONNX_float32, "", &v, sizeof v));
}

static void add_initializer(model *m, float low)
{
    float cells[CELLS];
    fill_mask(cells, low);
    model_tensor(m, tensor_new("m", ONNX_float32, "4,4", cells, sizeof cells));
    model_node(m, "Add", "s,m", "a");
}

static void add_constant(model *m, float low)
{
    float cells[CELLS];
    fill_mask(cells, low);
    node n = node_new("Constant", "", "m");
    node_tensor(&n, "value", tensor_new("", ONNX_float32, "4,4", cells, sizeof cells));
    model_add(m, &n);
    model_node(m, "Add", "s,m", "a");
}

static void add_input(model *m, float low)
{
    (void)low;
    model_input(m, "given", ONNX_float32, "4,4");
    model_node(m, "Add", "given,s", "a");
}

static void select_number(model *m, float low)
{
    add_number(m, "low", low);
    model_input(m, "visible", ONNX_bool, "4,4");
    model_node(m, "Where", "visible,s,low", "a");
}

static void add_selected(model *m, float low)
{
    add_number(m, "low", low);
    add_number(m, "zero", 0);
    model_input(m, "visible", ONNX_bool, "4,4");
    model_node(m, "Where", "visible,zero,low", "m");
    model_node(m, "Add", "s,m", "a");
}

/* As transformers does: the product of two masks is 0 at -inf, so only finite ones are written like this. */
static void add_scaled(model *m, float low)
{
    add_number(m, "low", low);
    add_number(m, "one", 1);
    model_input(m, "visible", ONNX_bool, "4,4");
    node n = node_new("Cast", "visible", "f");
    node_int(&n, "to", ONNX_float32);
    model_add(m, &n);
    model_node(m, "Sub", "one,f", "g");
    model_node(m, "Mul", "g,low", "m");
    model_node(m, "Add", "s,m", "a");
}

/* The logarithm is black, so the mask is converted when the model runs. */
static void add_logarithm(model *m, float low)
{
    add_number(m, "least", isinf(low) ? 0 : expf(-8));
    add_number(m, "factor", isinf(low) ? 1 : -low / 8.5f);
    add_number(m, "one", 1);
    model_input(m, "visible", ONNX_bool, "4,4");
    model_node(m, "Where", "visible,one,least", "e");
    model_node(m, "Log", "e", "l");
    model_node(m, "Mul", "l,factor", "m");
    model_node(m, "Add", "s,m", "a");
}

static const struct form {
    const char *name;
    void (*mask)(model *m, float low);
    bool finite; /* only finite masks */
} forms[] = {
    {"an initializer", add_initializer, false},
    {"a constant", add_constant, false},
    {"an input", add_input, false},
    {"a selected number", select_number, false},
    {"a selected mask", add_selected, false},
    {"a scaled mask", add_scaled, true},
    {"a logarithm", add_logarithm, false},
};

/* `guard`: rows that are NaN become zero, as in scaled_dot_product_attention of PyTorch. */
static void write_model(scratch *t, const struct form *form, float low, bool guard)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "4,4");
    model_tensor(&m, TENSOR_FLOATS("w", "4,4", 1, 2, -1, 0, 0, 1, 2, 1, -1, 0, 1, 2, 2, -2, 0, 1));
    model_tensor(&m, TENSOR_FLOATS("v", "4,2", 1, -1, 2, 0.5, -0.5, 1, 3, 2));
    model_node(&m, "MatMul", "x,w", "s");
    form->mask(&m, low);
    node softmax = node_new("Softmax", "a", "p");
    node_int(&softmax, "axis", -1);
    model_add(&m, &softmax);
    if (guard) {
        add_number(&m, "none", 0);
        model_node(&m, "IsNaN", "p", "n");
        model_node(&m, "Where", "n,none,p", "q");
    }
    model_node(&m, "MatMul", guard ? "q,v" : "p,v", "y");
    model_output(&m, "y", 0, NULL);
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
}

/* ---- running ------------------------------------------------------------------------------------- */

enum { INFERENCE, TRAINING, WRITTEN, MODULES };

static ir_module *make(scratch *t, int kind, pass_level level, ir_dtype low)
{
    ir_module *m;
    compile_options o = compile_options_default();
    o.level = level;
    o.low = low;
    o.plain_runtime = kind == WRITTEN;
    if (kind == TRAINING) o.loss = "mse";
    if (onnx_import(scratch_path(t, "m.onnx"), NULL, t->d, &m) != AMPC_OK || test_compile(m, &o, t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    if (kind != WRITTEN) return m;
    emit_to(t, m, "new.onnx");
    ir_module_free(m);
    m = read_back(t);
    o = compile_options_default();
    o.level = PASS_O0;
    if (test_compile(m, &o, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

static void compute(scratch *t, const ir_module *m, float low, float *y)
{
    float x[CELLS], given[CELLS];
    bool visible[CELLS];
    fill_mask(given, low);
    for (int i = 0; i < CELLS; i++) {
        x[i] = 0.25f * (float)(i * 7 % 9) - 1;
        visible[i] = is_visible(i);
    }
    const ir_graph *g = ir_graph_find(m, "infer");
    rt_tensor inputs[2];
    int n = 0;
    for (size_t i = 0; i < g->inputs.count; i++) {
        const char *name = g->inputs.items[i]->name;
        void *data = strcmp(name, "x") == 0 ? (void *)x : strcmp(name, "given") == 0 ? (void *)given : (void *)visible;
        inputs[n++] = (rt_tensor){
            .name = name, .dtype = data == visible ? IR_bool : IR_f32, .rank = 2, .dims = {SIZE, SIZE}, .data = data};
    }
    rt_session *s;
    const rt_session_options device = {.device = "cpu"};
    if (rt_session_open(m, &device, t->d, &s) != AMPC_OK || rt_session_run(s, "infer", inputs, n, t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    const rt_tensor *result = rt_session_output_at(s, 0);
    for (int i = 0; i < SIZE * 2; i++)
        y[i] = (float)ir_load_f64(result->dtype, (char *)result->data + (size_t)i * ir_dtype_size(result->dtype));
    rt_session_close(s);
}

/* The first value that is wrong, or -1. A row whose numbers are all masked and finite has the mean of some of v. */
static int find_wrong(const float *y, const float *expected, bool finite)
{
    for (int i = 0; i < SIZE * 2; i++) {
        if (finite && i / 2 == MASKED ? !isfinite(y[i]) : !(fabsf(y[i] - expected[i]) < 0.03f)) return i;
    }
    return -1;
}

static void check_form(scratch *t, const struct form *form, float low)
{
    static const char *const kinds[] = {"inference", "training", "a written file"};
    float expected[SIZE * 2], y[SIZE * 2];
    write_model(t, form, low, isinf(low));
    ir_module *m = make(t, INFERENCE, PASS_O0, IR_f16);
    compute(t, m, low, expected);
    ir_module_free(m);
    for (int k = 0; k < MODULES * 4; k++) {
        const ir_dtype type = k % 2 ? IR_bf16 : IR_f16;
        const pass_level level = k / 2 % 2 ? PASS_O2 : PASS_O1;
        m = make(t, k / 4, level, type);
        compute(t, m, low, y);
        ir_module_free(m);
        const int wrong = find_wrong(y, expected, !isinf(low));
        if (wrong >= 0)
            fail_msg("%s of %g, %s, %s at O%d: y[%d] is %g, not %g", form->name, low, kinds[k / 4], ir_dtype_name(type),
                     level == PASS_O2 ? 2 : 1, wrong, y[wrong], expected[wrong]);
    }
}

TEST_WITH(scratch_setup_in_memory, scratch_teardown, scratch *t, finite_masks_stay_finite)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        check_form(t, &forms[i], F32_LOWEST);
        check_form(t, &forms[i], -1e9f);
    }
}

/* The guard depends on NaN in rows that are masked as a whole. */
TEST_WITH(scratch_setup_in_memory, scratch_teardown, scratch *t, infinite_masks_stay_infinite)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!forms[i].finite) check_form(t, &forms[i], -INFINITY);
}
