/* inspect_models.h - made-up networks with one numeric fault each, and what check and compare must say about them on a
 * device. */
#ifndef TESTS_INSPECT_MODELS_H
#define TESTS_INSPECT_MODELS_H

#include "runtime/inspect/check.h"
#include "runtime/inspect/compare.h"
#include "tests/compile.h"
#include "tests/session.h"
#include "tests/unit/import_fixture.h"

#include <math.h>

enum { SAMPLES = 8, WIDTH = 4 };

static float samples[SAMPLES][WIDTH];

/* A network f32[8,4] -> fc -> f32[8,4] with a node of its own before or after fc, and the mean as loss. */
typedef struct network {
    const char *op;  /* of the node "it"; "" : none */
    float constant;  /* its second operand; NAN: it has one operand */
    bool before;     /* its place: before fc, else after it */
    const char *low; /* operator to compute in f16 in any case; NULL: none */
} network;

static inline void add_node(model *m, const char *op, const char *name, const char *inputs, const char *outputs)
{
    node n = node_new(op, inputs, outputs);
    wire_text(&n, 3, name);
    model_add(m, &n);
}

static inline wire network_file(const network *k)
{
    static const float eye[WIDTH * WIDTH] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    const char *own = isnan(k->constant) ? (k->before ? "x" : "y") : k->before ? "x,c" : "y,c";
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "8,4");
    model_tensor(&m, tensor_new("w", 1, "4,4", eye, sizeof eye));
    if (!isnan(k->constant)) model_constant(&m, "c", TENSOR_FLOATS("c", "1", k->constant));
    if (k->before) add_node(&m, k->op, "it", own, "z");
    add_node(&m, "MatMul", "fc", k->before ? "z,w" : "x,w", "y");
    if (!k->before) add_node(&m, k->op, "it", own, "z");
    node mean = node_new("ReduceMean", k->before ? "y" : "z", "loss");
    node_int(&mean, "keepdims", 0);
    wire_text(&mean, 3, "mean");
    model_add(&m, &mean);
    model_output(&m, "loss", ONNX_float32, "");
    return model_finish(&m);
}

static inline ir_module *network_module(scratch *t, const network *k, compile_options o)
{
    ir_module *m = NULL;
    o.loss_output = "loss";
    const char *const low[] = {k->low};
    if (k->low) o.white = (pass_strings){low, 1};
    if (import_bytes(t, network_file(k), NULL, &m) != AMPC_OK || test_compile(m, &o, t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return m;
}

static inline rt_session *network_session(scratch *t, const ir_module *m, const char *device)
{
    rt_session *s = NULL;
    const rt_session_options o = {.device = device, .threads = 1, .no_tune = true};
    if (rt_session_open(m, &o, t->d, &s) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return s;
}

static inline rt_tensor sample_tensor(void)
{
    return (rt_tensor){.name = "x", .dtype = IR_f32, .rank = 2, .dims = {SAMPLES, WIDTH}, .data = samples};
}

static inline void fill_samples(float first, float step)
{
    for (int i = 0; i < SAMPLES * WIDTH; i++) samples[i / WIDTH][i % WIDTH] = first + step * (float)i;
}

/* ---- check --------------------------------------------------------------------------------------- */

typedef struct expectation {
    const char *value, *node; /* node NULL: an input or storage */
    ir_phase phase;
    const char *text;    /* of the description */
    double finite_scale; /* NAN: does not depend on the scale */
    bool excused;
} expectation;

static inline void expect_finding(scratch *t, rt_session *s, const ir_module *m, const expectation *e)
{
    char text[1024];
    double finite_scale;
    rt_check *c = NULL;
    const rt_check_options o = {.stops = false};
    const rt_tensor x = sample_tensor();
    assert_int_equal(rt_check_open(s, m, &o, t->d, &c), AMPC_OK);
    if (rt_check_run(c, ir_graph_by_role(m, IR_GRAPH_grad), &x, 1, t->d, &finite_scale) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    const rt_checked *v = rt_check_found(c);
    assert_non_null(v);
    rt_check_describe(c, v, text, sizeof text);
    if (strcmp(v->value->name, e->value) != 0 || !strstr(text, e->text)) fail_msg("found %s", text);
    if (e->node) {
        assert_string_equal(rt_checked_loc(v).name, e->node);
        assert_int_equal(v->node->phase, e->phase);
    } else assert_null(v->node);
    assert_int_equal(v->excused, e->excused);
    assert_true(isnan(e->finite_scale) ? isnan(finite_scale) : finite_scale == e->finite_scale);
    rt_check_close(c);
}

/* Weights, activations, gradients, loss and data; each on its own. */
static inline void check_faults(scratch *t, const char *device)
{
    static const network plain = {"Relu", NAN, false, NULL};
    static const struct {
        network net;
        float first, step, weight; /* of the samples; the first weight, 0: stays */
        float init_scale;
        expectation expected;
    } rows[] = {
        {plain, 1, 0.1f, 1e6f, 1, {"w.h", "fc", IR_FORWARD, "operands: 'w' 0 .. 1e+06", NAN, false}},
        {{"Mul", 300, false, "Mul"}, 200, 1, 0, 1, {"z", "it", IR_FORWARD, "infinit", NAN, false}},
        {{"Sqrt", NAN, false, NULL}, 0, 1, 0, 1, {"d.y", "it", IR_BACKWARD, "first at [0,0]", NAN, false}},
        {{"Log", NAN, false, NULL}, 0, 1, 0, 1, {"z", "it", IR_FORWARD, "1 infinity, the first at [0,0]", NAN, false}},
        {plain, NAN, 1, 0, 1, {"x", NULL, IR_FORWARD, "input 'x' f32[8,4] has 32 NaN", NAN, false}},
        /* The gradient of a mean of 32 is 1/32 of the scale. */
        {plain, 1, 0.1f, 0, 0x1p30f, {"d.z", "mean", IR_BACKWARD, "infinit", 0x1p20, true}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        compile_options o = compile_options_default();
        o.init_scale = rows[i].init_scale;
        ir_module *m = network_module(t, &rows[i].net, o);
        rt_session *s = network_session(t, m, device);
        float w[WIDTH * WIDTH] = {rows[i].weight};
        if (rows[i].weight > 0) assert_int_equal(rt_session_write(s, test_storage_find(s, "w"), w, t->d), AMPC_OK);
        fill_samples(rows[i].first, rows[i].step);
        expect_finding(t, s, m, &rows[i].expected);
        rt_session_close(s);
        ir_module_free(m);
    }
}

/* ---- compare ------------------------------------------------------------------------------------- */

static inline ir_module *reference_module(scratch *t, const network *k, bool wide)
{
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.wide = wide;
    o.scaling = PASS_SCALE_STATIC;
    o.init_scale = 1;
    return network_module(t, k, o);
}

/* The node "it" loses most, at this tensor, and adds at least so much. */
static inline void expect_loss(scratch *t, const network *k, const char *device, const char *tensor, double least)
{
    compile_options o = compile_options_default();
    o.init_scale = 1;
    ir_module *m[] = {network_module(t, k, o), reference_module(t, k, false), reference_module(t, k, true)};
    rt_session *s[3];
    for (int i = 0; i < 3; i++) s[i] = network_session(t, m[i], i ? "cpu" : device);
    const rt_precision low = {s[0], m[0]}, f32 = {s[1], m[1]}, f64 = {s[2], m[2]};
    const rt_tensor x = sample_tensor();
    rt_comparison c;
    if (rt_compare(&low, &f32, &f64, "grad", &x, 1, t->d, &c) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_non_null(c.loses);
    if (strcmp(c.loses->tensor.name, tensor) != 0 || !(c.loses->added > least && c.loses->added < 1))
        fail_msg("%s: %s adds %g", k->op, c.loses->tensor.name, c.loses->added);
    assert_string_equal(c.loses->node->loc.node, "it");
    for (int i = 0; i < c.count; i++) /* the product is exact up to a rounding of operands and result */
        if (strcmp(c.rows[i].tensor.name, "y") == 0) assert_true(c.rows[i].added < 0x1p-10);
    rt_comparison_clear(&c);
    for (int i = 0; i < 3; i++) {
        rt_session_close(s[i]);
        ir_module_free(m[i]);
    }
}

/* Cancellation, an exponential of a rounded operand, and a gradient below the normal range of f16. */
static inline void compare_losses(scratch *t, const char *device)
{
    fill_samples(1000.37f, 0.11f);
    expect_loss(t, &(network){"Sub", 1000, true, "Sub"}, device, "z", 1e-2);
    fill_samples(7.01f, 0.07f);
    expect_loss(t, &(network){"Exp", NAN, true, "Exp"}, device, "z", 1e-3);
    fill_samples(0.51f, 0.03f);
    expect_loss(t, &(network){"Mul", 1e-6f, true, "Mul"}, device, "d.x", 0.5);
}

#endif
