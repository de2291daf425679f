/* test_ties.c - tensors that an exporter merged: for the exports of two fresh BatchNormalizations by TorchScript and
 * dynamo, every tensor becomes a separate parameter or statistic. Tests gradients, a step, and the exported file. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/api/export.h"
#include "tests/session.h"
#include "tests/compile.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ROWS = 4, CHANNELS = 2, CELLS = ROWS * CHANNELS };

#define RATE 0.5
#define MOMENTUM 0.9

static const float x[CELLS] = {0.3f, -1.2f, 1.9f, 0.4f, -0.7f, 2.2f, 1.1f, -0.5f};
static const float label[CELLS] = {0.5f, 1, -1, 0.25f, 2, -0.5f, 0.1f, 1.5f};

/* ---- models: y = BN2(tanh(BN1(x))) -------------------------------------------------------------- */

typedef enum form {
    TORCHSCRIPT, /* one initializer; Identity nodes have the other names */
    DIRECT,      /* one initializer that all nodes read */
    TWICE,       /* one module used twice: nothing was merged */
    FORMS
} form;

static void add_batch_norm(model *m, const char *name, const char *inputs, const char *output)
{
    node n = node_new("BatchNormalization", inputs, output);
    wire_text(&n, 3, name);
    model_add(m, &n);
}

static model model_of(form f)
{
    static const char *const operands[FORMS][2] = {{"bn1.weight,bn1.bias,bn1.running_mean,bn1.running_var",
                                                    "bn2.weight,bn2.bias,bn2.running_mean,bn2.running_var"},
                                                   {"ones,zeros,zeros,ones", "ones,zeros,zeros,ones"},
                                                   {"weight,bias,mean,var", "weight,bias,mean,var"}};
    static const char *const merged[] = {"bn2.running_var", "bn2.running_mean", "bn2.bias",
                                         "bn2.weight",      "bn1.running_var",  "bn1.running_mean"};
    static const char *const kept[FORMS][2] = {{"bn1.weight", "bn1.bias"}, {"ones", "zeros"}, {"weight", "bias"}};
    model m = model_new(17);
    char text[160];
    model_input(&m, "x", ONNX_float32, "4,2");
    model_tensor(&m, TENSOR_FLOATS(kept[f][0], "2", 1, 1));
    model_tensor(&m, TENSOR_FLOATS(kept[f][1], "2", 0, 0));
    if (f == TWICE) model_tensor(&m, TENSOR_FLOATS("var", "2", 1, 1));
    if (f == TWICE) model_tensor(&m, TENSOR_FLOATS("mean", "2", 0, 0));
    for (size_t i = 0; f == TORCHSCRIPT && i < sizeof merged / sizeof *merged; i++) {
        bool ones = strstr(merged[i], "weight") || strstr(merged[i], "var");
        model_node(&m, "Identity", kept[f][!ones], merged[i]);
    }
    snprintf(text, sizeof text, "x,%s", operands[f][0]);
    add_batch_norm(&m, "first", text, "a");
    model_node(&m, "Tanh", "a", "b");
    snprintf(text, sizeof text, "b,%s", operands[f][1]);
    add_batch_norm(&m, "second", text, "y");
    model_output(&m, "y", 0, NULL);
    return m;
}

/* Names of the scale, bias, mean and variance of the two nodes. */
static const char *const tensors[FORMS][2][4] = {
    {{"bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"},
     {"bn2.weight", "bn2.bias", "bn2.running_mean", "bn2.running_var"}},
    {{"ones", "zeros", "first.running_mean", "first.running_var"},
     {"ones", "zeros", "second.running_mean", "second.running_var"}},
    {{"weight", "bias", "mean", "var"}, {"weight", "bias", "mean", "var"}}};

/* ---- independent reference ----------------------------------------------------------------------- */

typedef struct affine {
    double scale[CHANNELS], bias[CHANNELS];
} affine;

static void normalise(const double *in, const affine *w, double *out, double *means)
{
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, var = 0;
        for (int r = 0; r < ROWS; r++) mean += in[r * CHANNELS + c] / ROWS;
        for (int r = 0; r < ROWS; r++) var += pow(in[r * CHANNELS + c] - mean, 2) / ROWS;
        for (int r = 0; r < ROWS; r++)
            out[r * CHANNELS + c] = (in[r * CHANNELS + c] - mean) / sqrt(var + 1e-5) * w->scale[c] + w->bias[c];
        means[c] = mean;
    }
}

/* Returns the mean squared error, and the means of both batches in `means`. */
static double reference(const affine w[2], double means[2][CHANNELS])
{
    double in[CELLS], a[CELLS], y[CELLS], loss = 0;
    for (int i = 0; i < CELLS; i++) in[i] = (double)x[i];
    normalise(in, &w[0], a, means[0]);
    for (int i = 0; i < CELLS; i++) a[i] = tanh(a[i]);
    normalise(a, &w[1], y, means[1]);
    for (int i = 0; i < CELLS; i++) loss += pow(y[i] - (double)label[i], 2) / CELLS;
    return loss;
}

static void initial(affine w[2])
{
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < CHANNELS; c++) w[k].scale[c] = 1, w[k].bias[c] = 0;
}

/* The derivative with respect to element c of the scale (or bias) of node k, by central differences. */
static double slope(int k, bool bias, int c)
{
    double at[2], means[2][CHANNELS];
    for (int side = 0; side < 2; side++) {
        affine w[2];
        initial(w);
        *(bias ? &w[k].bias[c] : &w[k].scale[c]) += side ? 1e-5 : -1e-5;
        at[side] = reference(w, means);
    }
    return (at[1] - at[0]) / 2e-5;
}

/* ---- compiling and running ------------------------------------------------------------------------ */

typedef struct notes {
    char text[1 << 12];
    int warnings;
} notes;

static void note(void *user, diag_level level, const char *message)
{
    notes *n = user;
    n->warnings += level == DIAG_WARNING;
    if (level == DIAG_NOTE) snprintf(n->text + strlen(n->text), sizeof n->text - strlen(n->text), "%s\n", message);
}

static ir_module *compile_model(const char *path, bool tied, const char *loss, notes *n)
{
    *n = (notes){.warnings = 0};
    diag *d = diag_new(note, n);
    const onnx_import_options import = {.tied = tied};
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.loss = loss;
    o.optimizer = "sgd,lr=0.5";
    o.mode = loss ? PASS_MODE_TRAIN : PASS_MODE_DEFAULT;
    o.pipeline.roundtrip_each = true;
    ir_module *m = NULL;
    ampc_status status = onnx_import(path, &import, d, &m);
    if (status == AMPC_OK) status = test_compile(m, &o, d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(d));
    diag_free(d);
    assert_int_equal(n->warnings, 0);
    return m;
}

static const char *write_model(scratch *t, form f)
{
    model m = model_of(f);
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    return scratch_path(t, "m.onnx");
}

static rt_session *run(scratch *t, const ir_module *m, const char *graph)
{
    const rt_tensor inputs[] = {
        {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {ROWS, CHANNELS}, .data = (void *)(uintptr_t)x},
        {.name = "label", .dtype = IR_f32, .rank = 2, .dims = {ROWS, CHANNELS}, .data = (void *)(uintptr_t)label}};
    const rt_session_options o = {.device = "cpu", .threads = 1};
    rt_session *s;
    if (rt_session_open(m, &o, t->d, &s) != AMPC_OK || rt_session_run(s, graph, inputs, 2, t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return s;
}

static void expect_near(const char *name, int c, float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-4 * (1 + fabs(want))))
        fail_msg("%s[%d] is %g, not %g", name, c, (double)got, want);
}

/* Returns the gradient of a tensor: the sum of the slopes of all its uses in both nodes. */
static double gradient_of(form f, const char *name, int c)
{
    double sum = 0;
    for (int k = 0; k < 2; k++)
        for (int bias = 0; bias < 2; bias++)
            if (strcmp(tensors[f][k][bias], name) == 0) sum += slope(k, bias, c);
    return sum;
}

static const float *storage(scratch *t, rt_session *s, const char *name)
{
    rt_tensor v;
    if (test_storage(s, name, t->d, &v) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return v.data;
}

/* ---- tests ------------------------------------------------------------------------------------------ */

TEST_SCRATCH(each_has_its_kind)
{
    static const char *const said[FORMS] = {"6 initializers that the exporter had merged are separate: 2 parameters, "
                                            "4 running statistics; set no-untie to keep the parameters shared",
                                            "4 initializers that the exporter had merged are separate: 4 running "
                                            "statistics",
                                            NULL};
    for (form f = 0; f < FORMS; f++) {
        notes n;
        ir_module *m = compile_model(write_model(t, f), false, "mse", &n);
        for (int i = 0; i < 8; i++) {
            const char *name = tensors[f][i / 4][i % 4];
            const ir_storage *s = ir_storage_find(m, name);
            if (!s) fail_msg("form %d: '%s' is gone", (int)f, name);
            if (s->kind != (i % 4 < 2 ? IR_PARAM : IR_STATE))
                fail_msg("form %d: '%s' is of another kind", (int)f, name);
        }
        if (said[f] ? !strstr(n.text, said[f]) : strstr(n.text, "merged") != NULL) fail_msg("%s", n.text);
        ir_module_free(m);
        ir_module_free(compile_model(scratch_path(t, "m.onnx"), false, NULL, &n));
        assert_null(strstr(n.text, "merged"));
    }
}

TEST_SCRATCH(gradients_are_those_of_the_network)
{
    for (form f = 0; f < FORMS; f++) {
        notes n;
        ir_module *m = compile_model(write_model(t, f), false, "mse", &n);
        rt_session *s = run(t, m, "grad");
        for (int i = 0; i < 4; i++) {
            char name[64];
            const char *tensor = tensors[f][i / 2][i % 2];
            snprintf(name, sizeof name, "grad/%s", tensor);
            const rt_tensor *g = rt_session_output(s, name);
            if (!g) fail_msg("form %d: there is no %s", (int)f, name);
            for (int c = 0; c < CHANNELS; c++)
                expect_near(name, c, ((const float *)g->data)[c], gradient_of(f, tensor, c));
        }
        rt_session_close(s);
        ir_module_free(m);
    }
}

/* After a step, in the session and in the exported file, which compiles to the same tensors. */
TEST_SCRATCH(a_step_is_exported)
{
    for (form f = 0; f < FORMS; f++) {
        notes n;
        affine w[2];
        double means[2][CHANNELS];
        initial(w);
        reference(w, means);
        ir_module *m = compile_model(write_model(t, f), false, "mse", &n);
        rt_session *s = run(t, m, "train_step");
        const char *path = scratch_path(t, "trained.onnx");
        if (rt_export_onnx(s, m, NULL, NULL, path, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
        ir_module *again = compile_model(path, false, "mse", &n);
        assert_null(strstr(n.text, "merged"));
        const rt_session_options o = {.device = "cpu", .threads = 1};
        rt_session *fresh;
        assert_int_equal(rt_session_open(again, &o, t->d, &fresh), AMPC_OK);
        for (int i = 0; i < 8; i++)
            for (int c = 0; c < CHANNELS; c++) {
                const char *name = tensors[f][i / 4][i % 4];
                double start = i % 4 == 0 || i % 4 == 3 ? 1 : 0, kept = 1 - MOMENTUM;
                if (i % 4 < 2) expect_near(name, c, storage(t, s, name)[c], start - RATE * gradient_of(f, name, c));
                if (i % 4 == 2 && f != TWICE) expect_near(name, c, storage(t, s, name)[c], kept * means[i / 4][c]);
                if (i % 4 == 2 && f == TWICE)
                    expect_near(name, c, storage(t, s, name)[c], MOMENTUM * kept * means[0][c] + kept * means[1][c]);
                assert_true(!(storage(t, s, name)[c] < storage(t, fresh, name)[c]) &&
                            !(storage(t, s, name)[c] > storage(t, fresh, name)[c]));
            }
        rt_session_close(fresh);
        rt_session_close(s);
        ir_module_free(again);
        ir_module_free(m);
    }
}

/* With --no-untie the parameters stay shared; the statistics are separate nevertheless. */
TEST_SCRATCH(parameters_can_stay_tied)
{
    notes n;
    ir_module *m = compile_model(write_model(t, TORCHSCRIPT), true, "mse", &n);
    assert_non_null(strstr(n.text, "4 initializers that the exporter had merged are separate: 4 running statistics"));
    assert_null(ir_storage_find(m, "bn2.weight"));
    assert_int_equal(ir_storage_find(m, "bn1.weight")->kind, IR_PARAM);
    assert_int_equal(ir_storage_find(m, "bn2.running_var")->kind, IR_STATE);
    rt_session *s = run(t, m, "train_step");
    for (int c = 0; c < CHANNELS; c++)
        expect_near("bn1.weight", c, storage(t, s, "bn1.weight")[c],
                    1 - RATE * (slope(0, false, c) + slope(1, false, c)));
    const char *path = scratch_path(t, "tied.onnx");
    if (rt_export_onnx(s, m, NULL, NULL, path, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    ir_module *again = compile_model(path, true, "mse", &n);
    assert_null(ir_storage_find(again, "bn2.weight"));
    assert_non_null(ir_storage_find(again, "bn2.running_var"));
    rt_session_close(s);
    ir_module_free(again);
    ir_module_free(m);
}

/* An Identity that is part of the network, and one whose result is only an output, separate nothing. */
TEST_SCRATCH(other_identities_stay)
{
    static const struct {
        const char *result;
        bool output;
    } rows[] = {{"/net/Identity_output_0", false}, {"v", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(17);
        notes n;
        model_input(&m, "x", ONNX_float32, "4,2");
        model_tensor(&m, TENSOR_FLOATS("w", "2", 1, 2));
        model_node(&m, "Identity", "w", rows[i].result);
        model_node(&m, "Mul", "x,w", "a");
        model_node(&m, "Add", rows[i].output ? "a,x" : "a,/net/Identity_output_0", "y");
        model_output(&m, "y", 0, NULL);
        if (rows[i].output) model_output(&m, rows[i].result, 0, NULL);
        wire file = model_finish(&m);
        scratch_write(t, "m.onnx", file.bytes, file.size);
        wire_free(&file);
        ir_module *out = compile_model(scratch_path(t, "m.onnx"), false, "mse:y", &n);
        assert_null(strstr(n.text, "merged"));
        assert_null(ir_storage_find(out, rows[i].result));
        ir_module_free(out);
    }
}
