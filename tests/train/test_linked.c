/* test_linked.c - recipes of several models, losses and optimizers against PyTorch.
 *
 * linked/make_linked.py writes the models and, in float64, the values of linked.h. Here everything is f32, with loss
 * scaling, so that only rounding may differ; then a window of one micro-batch has to do the same. */
#include "frontend/recipe.h"
#include "tests/compile.h"
#include "tests/session.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ROWS = 16, STEPS = 6, STORAGES = 9 };

typedef struct linked {
    const char *name;
    int bad; /* the step whose samples have an infinity; -1: none */
    struct {
        double loss, first, scale; /* the scale after the step */
    } step[STEPS];
    struct {
        const char *name;
        double sum, squares;
    } storage[STORAGES];
} linked;

static const linked rows[] = {
#include "tests/train/linked.h"
};

typedef struct trained {
    scratch *t;
    const linked *row;
    ir_module *m;
    rt_session *s;
    float samples[4][ROWS * 4];
} trained;

static void must(const scratch *t, ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static trained open_recipe(scratch *t, const linked *row, bool window)
{
    trained r = {.t = t, .row = row};
    char path[512];
    compile_options o = compile_options_default();
    const onnx_import_options import = {0};
    const rt_session_options session = {.device = "cpu", .threads = 1, .deterministic = 1};
    snprintf(path, sizeof path, AMPC_SOURCE_DIR "/tests/train/linked/%s.recipe", row->name);
    o.level = PASS_O0;
    o.scaling = PASS_SCALE_DYNAMIC;
    o.init_scale = 1024;
    o.incr_every = 2;
    o.accumulate = window;
    must(t, recipe_import(path, &import, t->d, &r.m));
    must(t, test_compile(r.m, &o, t->d));
    must(t, rt_session_open(r.m, &session, t->d, &r.s));
    return r;
}

static void close_recipe(trained *r)
{
    rt_session_close(r->s);
    ir_module_free(r->m);
}

/* The formulas of the script. */
static const struct sample {
    const char *name;
    int columns, factor;
} samples[] = {{"x", 4, 29}, {"y", 4, 31}, {"z", 3, 37}, {"target", 3, 41}};

static rt_tensor make_samples(trained *r, int k, int step)
{
    const int count = ROWS * samples[k].columns;
    for (int i = 0; i < count; i++) r->samples[k][i] = (float)((double)((i + step) * samples[k].factor % 23) / 11 - 1);
    if (k == 0 && step == r->row->bad) r->samples[k][0] = INFINITY;
    return (rt_tensor){
        .name = samples[k].name, .dtype = IR_f32, .rank = 2, .dims = {ROWS, samples[k].columns}, .data = r->samples[k]};
}

static void run(trained *r, const char *graph, int step)
{
    const ir_graph *g = ir_graph_find(r->m, graph);
    rt_tensor in[4];
    int count = 0;
    assert_non_null(g);
    for (int k = 0; k < 4; k++)
        if (ir_graph_find_input(g, samples[k].name)) in[count++] = make_samples(r, k, step);
    must(r->t, rt_session_run(r->s, graph, in, count, r->t->d));
}

static double number(const rt_tensor *v)
{
    assert_non_null(v);
    return ir_load_f64(v->dtype, v->data);
}

static double output(const trained *r, const char *name) { return number(rt_session_output(r->s, name)); }

static void check(const linked *row, const char *what, double have, double expected)
{
    const bool same = isnan(expected) ? !isfinite(have) : fabs(have - expected) <= 5e-6 * (1 + fabs(expected));
    if (!same) fail_msg("%s: %s is %.9g, not %.9g", row->name, what, have, expected);
}

static void check_storage(const trained *r, int k)
{
    rt_tensor v;
    double sum = 0, squares = 0;
    size_t count = 1;
    must(r->t, test_storage(r->s, r->row->storage[k].name, r->t->d, &v));
    for (int i = 0; i < v.rank; i++) count *= (size_t)v.dims[i];
    for (size_t i = 0; i < count; i++) {
        const double w = (double)((float *)v.data)[i];
        sum += w;
        squares += w * w;
    }
    check(r->row, v.name, sum, r->row->storage[k].sum);
    check(r->row, v.name, squares, r->row->storage[k].squares);
}

static void follow(scratch *t, const linked *row, bool window)
{
    const char *const first = strcmp(row->name, "two") == 0   ? "loss.l0"
                              : strcmp(row->name, "gan") == 0 ? "loss.d"
                                                              : "loss.near";
    trained r = open_recipe(t, row, window);
    for (int i = 0; i < STEPS; i++) {
        rt_tensor scale;
        run(&r, window ? "accumulate" : "train_step", i);
        check(row, first, output(&r, first), row->step[i].first);
        check(row, "the loss", output(&r, "loss"), row->step[i].loss);
        if (window) must(t, rt_session_run(r.s, "apply", NULL, 0, t->d));
        must(t, test_storage(r.s, "loss_scale", t->d, &scale));
        assert_true(number(&scale) == row->step[i].scale);
    }
    for (int k = 0; k < STORAGES && row->storage[k].name; k++) check_storage(&r, k);
    close_recipe(&r);
}

TEST_SCRATCH(test_steps)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) follow(t, &rows[i], false);
}

TEST_SCRATCH(test_windows)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) follow(t, &rows[i], true);
}
