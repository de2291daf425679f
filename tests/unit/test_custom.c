/* test_custom.c - custom operators through ampc.h: inference, attributes, mixed precision, training, sizes, export. */
#include "tests/unit/custom_fixture.h"

#include "tests/unit/written_parts.h"

/* ---- results ---------------------------------------------------------------------------------- */

static double product_at(int64_t row, int64_t column)
{
    double sum = 0;
    for (int64_t k = 0; k < 3; k++) sum += x_at(row * 3 + k) * ((double)((k * 4 + column) * 7 % 12) / 8.0 - 0.6);
    return sum;
}

/* Runs the network on `rows` rows and compares its results with alpha * tanh. */
static void expect_tanh(handles *h, int64_t rows, double tolerance)
{
    ampc_tensor *y;
    OK(h->c, run_rows(h, "infer", rows));
    OK(h->c, ampc_session_get(h->s, "output/y", &y));
    assert_int_equal(ampc_tensor_dims(y)[0], rows);
    assert_int_equal(ampc_tensor_dims(y)[1], 4);
    for (int64_t i = 0; i < 4 * rows; i++) {
        const double expected = 1.5 * tanh(product_at(i / 4, i % 4)), is = tensor_at(y, (size_t)i);
        if (!(fabs(is - expected) <= tolerance)) fail_msg("y[%d] is %g, not %g", (int)i, is, expected);
    }
    ampc_tensor_free(y);
}

TEST_SCRATCH(test_inference)
{
    static const struct {
        int type;
        ampc_dtype dtype;
        double tolerance;
    } rows[] = {{ONNX_f32, AMPC_F32, 1e-6},
                {ONNX_f64, AMPC_F64, 1e-12},
                {ONNX_f16, AMPC_F16, 4e-3},
                {ONNX_bf16, AMPC_BF16, 3e-2}};
    const ampc_compile_options o = {.struct_size = sizeof o, .amp = "O0"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        handles h;
        open_model(&h, write_tanh(t, rows[i].type), &o);
        expect_tanh(&h, 5, rows[i].tolerance);
        assert_int_equal(h.log.dtype, rows[i].dtype);
        expect_tanh(&h, 2, rows[i].tolerance); /* other sizes */
        assert_int_equal(h.log.forward, 2);
        close_all(&h);
    }
}

/* Without elements nothing is called. */
TEST_SCRATCH(test_no_elements)
{
    handles h;
    open_model(&h, write_tanh(t, ONNX_f32), &training);
    expect_tanh(&h, 0, 0);
    assert_int_equal(h.log.forward, 0);
    close_all(&h);
}

/* ---- attributes and positions ----------------------------------------------------------------- */

static ampc_status all_infer(ampc_infer_call *call, void *user)
{
    (void)user;
    size_t n_ints, n_floats, none = 9;
    const int64_t *ints = ampc_attribute_ints(call->attributes, "ints", &n_ints);
    const float *floats = ampc_attribute_floats(call->attributes, "floats", &n_floats);
    assert_int_equal(ampc_attribute_int(call->attributes, "int", 0), INT64_MIN);
    assert_int_equal(ampc_attribute_int(call->attributes, "float", 3), 3); /* of another type */
    assert_true(ampc_attribute_float(call->attributes, "float", 0) == (double)0.1f);
    assert_true(isnan(ampc_attribute_float(call->attributes, "nan", 0)));
    assert_string_equal(ampc_attribute_string(call->attributes, "string", ""), "a=\\n\n\\ \"b\",");
    assert_string_equal(ampc_attribute_string(call->attributes, "empty", "x"), "");
    assert_string_equal(ampc_attribute_string(call->attributes, "absent", "x"), "x");
    assert_int_equal(n_ints, 12);
    for (int i = 0; i < 12; i++) assert_int_equal(ints[i], i - 3);
    assert_int_equal(n_floats, 3);
    assert_true(floats[0] == 0.25f && isinf(floats[1]) && floats[2] == -1e-30f);
    assert_null(ampc_attribute_ints(call->attributes, "floats", &none));
    assert_int_equal(none, 0);
    ampc_attribute_ints(call->attributes, "no_ints", &none);
    assert_int_equal(none, 0);
    assert_string_equal(call->node, "f");
    /* operands "s,,s" and results ",y,": the last name is dropped, others keep their positions */
    assert_int_equal(call->n_operands, 3);
    assert_int_equal(call->operands[1].dtype, 0);
    assert_int_equal(call->n_results, 2);
    call->results[0] = (ampc_type){AMPC_I64, 0, {0}};
    call->results[1] = call->operands[2];
    return AMPC_OK;
}

static ampc_status all_forward(const ampc_call *call, void *user)
{
    ++*(int *)user;
    assert_string_equal(ampc_attribute_string(call->attributes, "string", ""), "a=\\n\n\\ \"b\",");
    assert_true(call->n_operands == 3 && call->n_results == 2 && !call->result_gradients && !call->stream);
    assert_null(call->operands[1].data);
    assert_null(call->results[0].data);
    assert_ptr_equal(call->operands[0].data, call->operands[2].data);
    memcpy(call->results[1].data, call->operands[2].data, call->results[1].bytes);
    return AMPC_OK;
}

TEST_SCRATCH(test_attributes_and_positions)
{
    handles h;
    int calls = 0;
    node n = custom_node("All", "s,,s", ",y,");
    node_int(&n, "int", INT64_MIN);
    node_float(&n, "float", 0.1f);
    node_float(&n, "nan", NAN);
    node_text(&n, "string", "a=\\n\n\\ \"b\",");
    node_text(&n, "empty", "");
    node_ints(&n, "ints", "-3,-2,-1,0,1,2,3,4,5,6,7,8");
    node_floats(&n, "floats", "0.25,inf,-1e-30");
    node_ints(&n, "no_ints", "");
    const char *path = write_network(t, ONNX_f32, &n);
    const ampc_operator all = {.struct_size = sizeof all,
                               .domain = "com.example",
                               .name = "All",
                               .infer = all_infer,
                               .forward_cpu = all_forward,
                               .user = &calls};
    open_context(&h);
    open_with(&h, &all, path, NULL);
    OK(h.c, run_rows(&h, "infer", 2));
    assert_int_equal(calls, 1);
    close_all(&h);
}

/* ---- mixed precision -------------------------------------------------------------------------- */

/* The type in which ScaledTanh computes with the table's colour and types, a list file and options. */
static ampc_dtype dtype_with(scratch *t, const char *colour, unsigned types, const char *list,
                             const ampc_compile_options *o)
{
    handles h;
    const char *path = write_tanh(t, ONNX_f32), *file = scratch_path(t, "a.amplist");
    ampc_compile_options with = *o;
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.colour = colour;
    op.float_types = types;
    OK(h.c, ampc_operator_register(h.c, &op));
    OK(h.c, ampc_module_import(h.c, path, NULL, 0, &h.m));
    if (list) scratch_write(t, "a.amplist", list, strlen(list));
    with.lists = &file;
    with.n_lists = list != NULL;
    with.loss = NULL;
    OK(h.c, ampc_module_compile(h.m, &with));
    OK(h.c, ampc_session_open(h.m, &one_thread, &h.s));
    expect_tanh(&h, 3, 2e-2);
    const ampc_dtype dtype = h.log.dtype;
    close_all(&h);
    return dtype;
}

TEST_SCRATCH(test_colours)
{
    enum { F32 = 1u << AMPC_F32, F16 = 1u << AMPC_F16, BF16 = 1u << AMPC_BF16 };
    const ampc_compile_options fp16 = {.struct_size = sizeof fp16},
                               bf16 = {.struct_size = sizeof bf16, .dtype = "bf16"},
                               white = {.struct_size = sizeof white, .white = "ScaledTanh"},
                               black = {.struct_size = sizeof black, .black = "com.example::ScaledTanh"};
    static const char listed_white[] = "[meta]\nversion = 1\n[white]\ncom.example::ScaledTanh\n",
                      listed_black[] = "[meta]\nversion = 1\n[black]\nScaledTanh\n",
                      both[] = "[meta]\nversion = 1\n[black]\nScaledTanh\n[white]\ncom.example::ScaledTanh\n",
                      if_large[] = "[meta]\nversion = 1\n[white]\nScaledTanh if alpha >= 1\n[black]\nScaledTanh\n",
                      removed[] = "[meta]\nversion = 1\n[black]\n-ScaledTanh\n";
    const struct {
        const char *colour;
        unsigned types;
        const char *list;
        const ampc_compile_options *o;
        ampc_dtype dtype;
    } rows[] = {
        {"gray", ALL_FLOATS, NULL, &fp16, AMPC_F16}, /* like MatMul */
        {"gray", ALL_FLOATS, NULL, &bf16, AMPC_BF16},
        {"black", ALL_FLOATS, NULL, &fp16, AMPC_F32},
        {NULL, ALL_FLOATS, NULL, &fp16, AMPC_F32},
        {"white", ALL_FLOATS, NULL, &fp16, AMPC_F16},
        {"black", ALL_FLOATS, listed_white, &fp16, AMPC_F16},
        {"white", ALL_FLOATS, listed_black, &fp16, AMPC_F32},
        {"gray", ALL_FLOATS, both, &fp16, AMPC_F16},
        {"black", ALL_FLOATS, if_large, &fp16, AMPC_F16},
        {"white", ALL_FLOATS, removed, &fp16, AMPC_F16},
        {"black", ALL_FLOATS, NULL, &white, AMPC_F16},
        {"white", ALL_FLOATS, NULL, &black, AMPC_F32},
        {"black", ALL_FLOATS, listed_black, &white, AMPC_F16}, /* the command line wins */
        {"gray", 0, NULL, &fp16, AMPC_F32},
        {"gray", 0, listed_white, &fp16, AMPC_F32},
        {"white", F32 | F16, NULL, &fp16, AMPC_F16},
        {"white", F32 | F16, NULL, &bf16, AMPC_F32},
        {"white", F32 | BF16, NULL, &fp16, AMPC_F32},
        {"white", F32 | BF16, NULL, &bf16, AMPC_BF16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ampc_dtype is = dtype_with(t, rows[i].colour, rows[i].types, rows[i].list, rows[i].o);
        if (is != rows[i].dtype) fail_msg("row %d: computes in type %d, not %d", (int)i, (int)is, (int)rows[i].dtype);
    }
}

/* A colour for ONNX's Tanh in the profile is not one for a custom Tanh; a list can name either. */
TEST_SCRATCH(test_names_of_onnx)
{
    handles h;
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.name = "MatMul";
    op.colour = "black";
    OK(h.c, ampc_operator_register(h.c, &op));
    node n = custom_node("MatMul", "s", "y");
    node_text(&n, "a=b", "line\n");
    node_float(&n, "alpha", 1.5f);
    OK(h.c, ampc_module_import(h.c, write_network(t, ONNX_f32, &n), NULL, 0, &h.m));
    OK(h.c, ampc_module_compile(h.m, NULL));
    OK(h.c, ampc_session_open(h.m, &one_thread, &h.s));
    expect_tanh(&h, 3, 1e-2);
    assert_int_equal(h.log.dtype, AMPC_F32);
    assert_non_null(strstr(ampc_module_summary(h.m), "1/2 float ops in fp16"));
    close_all(&h);
}

/* A model in a type that the operator does not allow: casts to f32 and back. */
TEST_SCRATCH(test_low_models)
{
    static const struct {
        int type;
        ampc_dtype output;
    } rows[] = {{ONNX_f16, AMPC_F16}, {ONNX_bf16, AMPC_BF16}};
    const ampc_compile_options o = {.struct_size = sizeof o, .amp = "O0"};
    for (int i = 0; i < 2; i++) {
        handles h;
        ampc_input_info info = {.struct_size = sizeof info};
        ampc_tensor *y;
        open_context(&h);
        ampc_operator op = scaled_tanh(&h.log);
        op.float_types = 0;
        OK(h.c, ampc_operator_register(h.c, &op));
        OK(h.c, ampc_module_import(h.c, write_tanh(t, rows[i].type), NULL, 0, &h.m));
        OK(h.c, ampc_module_compile(h.m, &o));
        OK(h.c, ampc_module_input(h.m, "infer", 0, &info));
        assert_int_equal(info.dtype, rows[i].output);
        OK(h.c, ampc_session_open(h.m, &one_thread, &h.s));
        expect_tanh(&h, 2, 3e-2);
        assert_int_equal(h.log.dtype, AMPC_F32);
        OK(h.c, ampc_session_get(h.s, "output/y", &y));
        assert_int_equal(ampc_tensor_dtype(y), rows[i].output);
        ampc_tensor_free(y);
        close_all(&h);
    }
}

/* ---- training --------------------------------------------------------------------------------- */

static const ampc_compile_options on_mse = {.struct_size = sizeof on_mse, .loss = "mse:y", .optimizer = "sgd,lr=0.2"};

static void make_batch(const handles *h, ampc_tensor *in[2])
{
    in[0] = make_input(h, "x", 5, 3);
    in[1] = make_input(h, "label", 5, 4);
}

static void free_batch(ampc_tensor *in[2])
{
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
}

TEST_SCRATCH(test_training)
{
    static const struct {
        const char *colour;
        ampc_dtype dtype;
    } rows[] = {{"[white]", AMPC_F16}, {"[black]", AMPC_F32}};
    for (int i = 0; i < 2; i++) {
        handles h;
        ampc_tensor *in[2];
        ampc_step_result r = {.struct_size = sizeof r};
        ampc_compile_options o = on_mse;
        char list[128];
        const char *file = scratch_path(t, "a.amplist");
        snprintf(list, sizeof list, "%s\ncom.example::ScaledTanh\n", rows[i].colour);
        scratch_write(t, "a.amplist", list, strlen(list));
        o.lists = &file;
        o.n_lists = 1;
        open_model(&h, write_tanh(t, ONNX_f32), &o);
        make_batch(&h, in);
        OK(h.c, ampc_train_step(h.s, in, 2, &r));
        const double first = r.loss;
        for (int k = 0; k < 60; k++) OK(h.c, ampc_train_step(h.s, in, 2, &r));
        if (!(r.loss < 0.8 * first)) fail_msg("loss %g after %g", r.loss, first);
        assert_int_equal(h.log.dtype, rows[i].dtype);
        assert_int_equal(h.log.forward, 61);
        assert_int_equal(h.log.gradient, 61);
        free_batch(in);
        close_all(&h);
    }
}

/* The mean of the squared errors of an f64 model, whose weight (or input) `index` is moved by `by`. */
static double loss_moved(handles *h, ampc_tensor *in[2], const char *key, size_t index, double by)
{
    ampc_tensor *moved = in[0];
    double loss, before;
    if (key) OK(h->c, ampc_session_get(h->s, key, &moved));
    double *at = (double *)ampc_tensor_data(moved) + index;
    before = *at;
    *at += by;
    if (key) OK(h->c, ampc_session_set(h->s, key, moved));
    OK(h->c, ampc_eval_step(h->s, in, 2, &loss));
    *at = before;
    if (key) OK(h->c, ampc_session_set(h->s, key, moved));
    if (key) ampc_tensor_free(moved);
    return loss;
}

static void expect_gradient(handles *h, ampc_tensor *in[2], const char *gradient, const char *key, size_t n)
{
    const double step = 1e-5;
    ampc_tensor *g;
    OK(h->c, ampc_session_run(h->s, "grad", in, 2));
    OK(h->c, ampc_session_get(h->s, gradient, &g));
    for (size_t i = 0; i < n; i++) {
        const double up = loss_moved(h, in, key, i, step), down = loss_moved(h, in, key, i, -step);
        const double expected = (up - down) / (2 * step), is = tensor_at(g, i);
        if (!(fabs(is - expected) < 1e-6)) fail_msg("%s[%d] is %.9g, not %.9g", gradient, (int)i, is, expected);
    }
    ampc_tensor_free(g);
}

TEST_SCRATCH(test_gradient)
{
    handles h;
    ampc_tensor *in[2];
    open_model(&h, write_tanh(t, ONNX_f64), &on_mse);
    make_batch(&h, in);
    expect_gradient(&h, in, "grad/w", "param/w", 12);
    expect_gradient(&h, in, "gradin/x", NULL, 15);
    assert_true(h.log.gradient > 0);
    free_batch(in);
    close_all(&h);
}

/* y = s * v: s may be low, v stays f32. */
static ampc_status scale_infer(ampc_infer_call *call, void *user)
{
    (void)user;
    call->results[0] = call->operands[0];
    call->results[1] = call->operands[1]; /* a copy of v: f32 like v */
    return AMPC_OK;
}

static ampc_status scale_forward(const ampc_call *call, void *user)
{
    const ampc_view *x = &call->operands[0], *v = &call->operands[1];
    ampc_dtype *dtypes = user;
    dtypes[0] = x->dtype;
    dtypes[1] = v->dtype;
    for (size_t i = 0; i < custom_count(x); i++)
        custom_set(&call->results[0], i, custom_at(x, i) * custom_at(v, i % custom_count(v)));
    if (call->results[1].data) memcpy(call->results[1].data, v->data, v->bytes);
    return AMPC_OK;
}

static ampc_status scale_gradient(const ampc_call *call, void *user)
{
    const ampc_view *x = &call->operands[0], *v = &call->operands[1], *dy = &call->result_gradients[0];
    const ampc_view *dx = &call->operand_gradients[0], *dv = &call->operand_gradients[1];
    const size_t n = custom_count(v);
    ampc_dtype *dtypes = user;
    dtypes[2] = dx->dtype;
    dtypes[3] = dv->dtype;
    assert_int_equal(call->result_gradients[1].dtype, v->dtype);
    for (size_t i = 0; i < n; i++) custom_set(dv, i, custom_at(&call->result_gradients[1], i));
    for (size_t i = 0; i < custom_count(x); i++) {
        custom_set(dx, i, custom_at(dy, i) * custom_at(v, i % n));
        custom_set(dv, i % n, custom_at(dv, i % n) + custom_at(dy, i) * custom_at(x, i));
    }
    return AMPC_OK;
}

/* Opens the network with y = s * v and v_out = v; all tensors have the type. */
static void open_scale(handles *h, scratch *t, int type, ampc_dtype dtypes[4])
{
    const double v[] = {0.5, -1, 2, 1.25};
    const float v32[] = {0.5f, -1, 2, 1.25f};
    uint16_t v16[4];
    for (int i = 0; i < 4; i++) ir_store_f64(IR_f16, &v16[i], v[i]);
    const void *bytes = type == ONNX_f64 ? (const void *)v : type == ONNX_f32 ? (const void *)v32 : v16;
    const size_t size = type == ONNX_f64 ? sizeof v : type == ONNX_f32 ? sizeof v32 : sizeof v16;
    model m = model_new(17);
    node n = custom_node("Scale", "s,v", "y,v_out");
    model_input(&m, "x", type, "N,3");
    model_tensor(&m, weights(type));
    model_tensor(&m, tensor_new("v", type, "4", bytes, size));
    model_node(&m, "MatMul", "x,w", "s");
    model_add(&m, &n);
    model_output(&m, "y", type, NULL);
    const ampc_operator op = {.struct_size = sizeof op,
                              .domain = "com.example",
                              .name = "Scale",
                              .colour = "white",
                              .float_types = ALL_FLOATS,
                              .f32_operands = 2,
                              .infer = scale_infer,
                              .forward_cpu = scale_forward,
                              .gradient_cpu = scale_gradient,
                              .user = dtypes};
    open_context(h);
    open_with(h, &op, write_model(t, &m, 1), &on_mse);
}

TEST_SCRATCH(test_f32_operands)
{
    static const struct {
        int type;
        ampc_dtype low, wide;
    } rows[] = {{ONNX_f32, AMPC_F16, AMPC_F32}, {ONNX_f16, AMPC_F16, AMPC_F32}, {ONNX_f64, AMPC_F64, AMPC_F64}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        handles h;
        ampc_dtype is[4] = {0};
        ampc_step_result r = {.struct_size = sizeof r};
        open_scale(&h, t, rows[i].type, is);
        ampc_tensor *in[] = {make_input(&h, "x", 5, 3), make_input(&h, "label", 5, 4)};
        OK(h.c, ampc_train_step(h.s, in, 2, &r));
        const ampc_dtype expected[] = {rows[i].low, rows[i].wide, rows[i].low, rows[i].wide};
        for (int k = 0; k < 4; k++)
            if (is[k] != expected[k])
                fail_msg("row %d: type %d of %d, not %d", (int)i, (int)is[k], k, (int)expected[k]);
        if (rows[i].type == ONNX_f64) {
            expect_gradient(&h, in, "grad/w", "param/w", 12);
            expect_gradient(&h, in, "grad/v", "param/v", 4);
        }
        for (int k = 0; k < 2; k++) ampc_tensor_free(in[k]);
        close_all(&h);
    }
}

/* y = (x w - x v)^2 through both operands. */
static const char *write_difference(scratch *t, int type)
{
    model m = model_new(17);
    double v[12];
    float v32[12];
    for (int i = 0; i < 12; i++) v32[i] = (float)(v[i] = (i * 5 % 12) / 8.0 - 0.5);
    model_input(&m, "x", type, "N,3");
    model_tensor(&m, weights(type));
    model_tensor(&m, type == ONNX_f64 ? tensor_new("v", type, "3,4", v, sizeof v)
                                      : tensor_new("v", type, "3,4", v32, sizeof v32));
    model_node(&m, "MatMul", "x,w", "a");
    model_node(&m, "MatMul", "x,v", "b");
    node n = custom_node("SquaredDifference", "a,b", "y");
    model_add(&m, &n);
    model_output(&m, "y", type, NULL);
    return write_model(t, &m, 1);
}

TEST_SCRATCH(test_two_gradients)
{
    handles h;
    ampc_tensor *in[2];
    open_model(&h, write_difference(t, ONNX_f64), &on_mse);
    make_batch(&h, in);
    expect_gradient(&h, in, "grad/w", "param/w", 12);
    expect_gradient(&h, in, "grad/v", "param/v", 12);
    expect_gradient(&h, in, "gradin/x", NULL, 15);
    free_batch(in);
    close_all(&h);
}

/* Only operand 0 has a gradient: v is not trained, and its part of the gradient of x is missing. */
TEST_SCRATCH(test_gradient_operands)
{
    handles h;
    ampc_tensor *in[2], *g;
    const char *path = write_difference(t, ONNX_f64);
    open_context(&h);
    ampc_operator op = squared_difference(&h.log);
    op.gradient_operands = 1;
    open_with(&h, &op, path, &on_mse);
    make_batch(&h, in);
    expect_gradient(&h, in, "grad/w", "param/w", 12);
    expect_failure(ampc_session_get(h.s, "grad/v", &g), AMPC_USAGE, h.c, "grad/v");
    free_batch(in);
    close_all(&h);
}

/* ---- sizes that are functions of sizes -------------------------------------------------------- */

typedef struct sizing {
    int64_t rows, extra; /* the first dimension of the result is rows * N + extra */
    bool guesses;        /* computes with sizes that are not known */
} sizing;

static ampc_status repeat_infer(ampc_infer_call *call, void *user)
{
    const sizing *s = user;
    const int64_t n = call->operands[0].dims[0];
    call->results[0] = call->operands[0];
    int64_t rows = ampc_dim_compute(call, '*', n, s->rows);
    rows = ampc_dim_compute(call, '+', rows, s->extra);
    rows = ampc_dim_compute(call, '/', ampc_dim_compute(call, '*', rows, 6), 6);
    rows = ampc_dim_compute(call, '-', rows, ampc_dim_compute(call, '-', n, n));
    call->results[0].dims[0] = s->guesses && n < 0 ? 7 : rows;
    return AMPC_OK;
}

static ampc_status repeat_forward(const ampc_call *call, void *user)
{
    const ampc_view *x = &call->operands[0], *y = &call->results[0];
    (void)user;
    for (size_t i = 0; i < custom_count(y); i++) custom_set(y, i, custom_at(x, i % custom_count(x)));
    return AMPC_OK;
}

static void open_repeat(handles *h, const char *path, sizing *s)
{
    const ampc_operator op = {.struct_size = sizeof op,
                              .domain = "com.example",
                              .name = "Repeat",
                              .infer = repeat_infer,
                              .forward_cpu = repeat_forward,
                              .user = s};
    open_context(h);
    open_with(h, &op, path, NULL);
}

TEST_SCRATCH(test_symbolic_sizes)
{
    node n = custom_node("Repeat", "s", "y");
    const char *path = write_network(t, ONNX_f32, &n);
    sizing twice = {2, 1, false}, guess = {1, 0, true};
    handles h;
    ampc_tensor *y;
    open_repeat(&h, path, &twice);
    for (int64_t rows = 1; rows < 4; rows++) {
        OK(h.c, run_rows(&h, "infer", rows));
        OK(h.c, ampc_session_get(h.s, "output/y", &y));
        assert_int_equal(ampc_tensor_dims(y)[0], 2 * rows + 1);
        ampc_tensor_free(y);
    }
    close_all(&h);
    open_repeat(&h, path, &guess);
    expect_failure(run_rows(&h, "infer", 3), AMPC_REJECTED, h.c,
                   "infer has set f32[3,4] for result 0, which was f32[7,4]");
    OK(h.c, run_rows(&h, "infer", 7));
    close_all(&h);
}

/* ---- versions, files -------------------------------------------------------------------------- */

/* y = ScaledTanh(x). */
static model single_node(void)
{
    model m = model_new(17);
    node n = custom_node("ScaledTanh", "x", "y");
    model_input(&m, "x", ONNX_f32, "N,3");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_f32, NULL);
    return m;
}

TEST_SCRATCH(test_versions)
{
    handles h;
    custom_log old = {0}, new = {0};
    const ampc_compile_options o = {.struct_size = sizeof o};
    ampc_operator first = scaled_tanh(&old), second = scaled_tanh(&new);
    second.since = 3;
    for (int version = 2; version <= 4; version += 2) {
        open_context(&h);
        OK(h.c, ampc_operator_register(h.c, &second));
        model m = single_node();
        open_with(&h, &first, write_model(t, &m, version), &o);
        OK(h.c, run_rows(&h, "infer", 2));
        close_all(&h);
    }
    assert_int_equal(old.forward, 1);
    assert_int_equal(new.forward, 1);
}

/* The version of the domain that the model imports is older than the registered one, or missing. */
TEST_SCRATCH(test_other_versions)
{
    handles h;
    ampc_operator op = scaled_tanh(&h.log);
    op.since = 2;
    open_context(&h);
    OK(h.c, ampc_operator_register(h.c, &op));
    expect_failure(ampc_module_import(h.c, write_tanh(t, ONNX_f32), NULL, 0, &h.m), AMPC_UNSUPPORTED, h.c,
                   "operator com.example::ScaledTanh is not registered for the version of its domain");
    model m = single_node();
    wire file = model_finish(&m);
    scratch_write(t, "model.onnx", file.bytes, file.size);
    wire_free(&file);
    expect_failure(ampc_module_import(h.c, scratch_path(t, "model.onnx"), NULL, 0, &h.m), AMPC_UNSUPPORTED, h.c,
                   "is not registered for the version of its domain");
    close_all(&h);
}

/* A saved module runs where the operator is registered; the text contains the node. */
TEST_SCRATCH(test_saved_module)
{
    const char *path = scratch_path(t, "m.ir");
    scratch_path(t, "m.safetensors");
    handles h, other;
    compile_model(&h, write_tanh(t, ONNX_f32), &on_mse);
    OK(h.c, ampc_module_save(h.m, path));
    close_all(&h);

    open_context(&other);
    OK(other.c, ampc_module_load(other.c, path, &other.m));
    OK(other.c, ampc_session_open(other.m, &one_thread, &other.s));
    expect_failure(run_rows(&other, "infer", 3), AMPC_UNSUPPORTED, other.c,
                   "operator com.example::ScaledTanh of version 1 is not registered");
    ampc_operator op = scaled_tanh(&other.log);
    OK(other.c, ampc_operator_register(other.c, &op));
    expect_tanh(&other, 3, 1e-2);
    close_all(&other);

    open_context(&other);
    op.float_types = 0; /* the module was compiled for an operator that allows f16 */
    OK(other.c, ampc_operator_register(other.c, &op));
    OK(other.c, ampc_module_load(other.c, path, &other.m));
    OK(other.c, ampc_session_open(other.m, &one_thread, &other.s));
    expect_failure(run_rows(&other, "infer", 3), AMPC_UNSUPPORTED, other.c, "does not allow operand 0 in f16");
    close_all(&other);
}

TEST_SCRATCH(test_not_registered)
{
    handles h;
    const char *path = write_tanh(t, ONNX_f32);
    open_context(&h);
    expect_failure(ampc_module_import(h.c, path, NULL, 0, &h.m), AMPC_UNSUPPORTED, h.c,
                   "operator com.example.ScaledTanh is not supported");
    close_all(&h);
}

/* The trained model has the same node, and the new weight. */
TEST_SCRATCH(test_export)
{
    const char *path = scratch_path(t, "trained.onnx");
    handles h, again;
    ampc_tensor *in[2], *w;
    open_model(&h, write_tanh(t, ONNX_f32), &on_mse);
    make_batch(&h, in);
    OK(h.c, ampc_train_step(h.s, in, 2, NULL));
    OK(h.c, ampc_session_get(h.s, "param/w", &w));
    OK(h.c, ampc_export_onnx(h.s, path));
    free_batch(in);
    close_all(&h);

    const ampc_compile_options o = {.struct_size = sizeof o, .amp = "O0"};
    ampc_tensor *y;
    open_model(&again, path, &o);
    OK(again.c, run_rows(&again, "infer", 1));
    OK(again.c, ampc_session_get(again.s, "output/y", &y));
    for (size_t i = 0; i < 4; i++) {
        double sum = 0;
        for (size_t k = 0; k < 3; k++) sum += x_at((int64_t)k) * tensor_at(w, k * 4 + i);
        assert_true(fabs(tensor_at(y, i) - 1.5 * tanh(sum)) < 1e-5);
    }
    ampc_tensor_free(y);
    ampc_tensor_free(w);
    close_all(&again);
}

/* The low-precision graph of a saved module becomes an ONNX model with the same node and casts, without a registration. */
TEST_SCRATCH(test_emit)
{
    handles h;
    ir_module *m;
    parts written = {0};
    jmp_buf guard;
    const onnx_emit_options o = {.data_name = "m.data", .write = collect, .user = &written};
    scratch_path(t, "m.safetensors");
    compile_model(&h, write_tanh(t, ONNX_f32),
                  &(const ampc_compile_options){.struct_size = sizeof(ampc_compile_options)});
    OK(h.c, ampc_module_save(h.m, scratch_path(t, "m.ir")));
    close_all(&h);
    if (ir_parse_file(scratch_path(t, "m.ir"), t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    if (setjmp(guard)) fail();
    arena_set_guard(m->arena, &guard);
    if (onnx_emit(m, "infer", &o, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    ir_module_free(m);
    scratch_write(t, "model.onnx", written.part[ONNX_PART_MODEL].bytes, written.part[ONNX_PART_MODEL].size);
    wire_free(&written.part[ONNX_PART_MODEL]);
    const ampc_compile_options off = {.struct_size = sizeof off, .amp = "O0"};
    open_model(&h, scratch_path(t, "model.onnx"), &off);
    expect_tanh(&h, 3, 1e-2);
    assert_int_equal(h.log.dtype, AMPC_F16);
    close_all(&h);
}
