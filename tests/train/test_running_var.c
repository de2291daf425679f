/* test_running_var.c - --running-var: running variances after some steps against those of PyTorch (running_var.def). */
#include "tests/train/training_net.h"

enum { CHANNELS = 3, STEPS = 3, LARGEST = 64 * CHANNELS };

static const char network[] =
    "ampc-ir 3\nparam @g : f32[3] = [1, 1, 1]\nparam @b : f32[3] = zero\nstate @mean : f32[3] = zero\n"
    "state @var : f32[3] = [1, 1, 1]\ngraph @forward(@x : f32[N,3,H]) as forward {\n"
    "  %%n, %%m, %%v, %%sm, %%sr = batch_norm @x, @g, @b, @mean, @var {momentum=%g, training=true} : f32[N,3,H], "
    "f32[3], "
    "f32[3], f32[3], f32[3] !BatchNormalization \"bn\"\n"
    "  %%l = reduce_mean %%n {axes=[0,1,2], keepdims=false} : f32[] !ReduceMean \"mean\"\n  output \"l\" = %%l\n"
    "update:\n  store @mean, %%m\n  store @var, %%v\n}\n";

typedef struct row {
    double momentum;
    int width, rows[STEPS];
    double var[CHANNELS];
} row;

#define BATCHES(...) \
    { \
        __VA_ARGS__ \
    }
#define VALUES(...) \
    { \
        __VA_ARGS__ \
    }
#define RUNNING_VAR(...) {__VA_ARGS__},
static const row table[] = {
#include "tests/train/running_var.def"
};

static void run_batch(net *n, const row *r, int step, const char *graph)
{
    float x[LARGEST];
    const int size = r->rows[step] * CHANNELS * r->width;
    for (int i = 0; i < size; i++) x[i] = (float)((i * 37 + step * 11) % 101) / 50 - 1;
    const rt_tensor in = {
        .name = "x", .dtype = IR_f32, .rank = 3, .dims = {r->rows[step], CHANNELS, r->width}, .data = x};
    must(n->t, rt_session_run(n->s, graph, &in, 1, n->t->d));
}

/* Sets the variances after the steps, each of which is a micro-batch if the options accumulate. */
static void train(scratch *t, const row *r, const compile_options *o, double *var)
{
    char text[sizeof network + 32];
    snprintf(text, sizeof text, network, r->momentum);
    net n = open_net(t, text, o);
    for (int i = 0; i < STEPS && r->rows[i]; i++) run_batch(&n, r, i, o->accumulate ? "accumulate" : "train_step");
    if (o->accumulate) must(t, rt_session_run(n.s, "apply", NULL, 0, t->d));
    const rt_tensor v = storage(&n, "var");
    for (size_t i = 0; i < CHANNELS; i++) var[i] = ((const float *)v.data)[i];
    close_net(&n);
}

static void assert_variances(const double *var, const double *expected, double bound)
{
    for (int i = 0; i < CHANNELS; i++)
        if (!(fabs(var[i] - expected[i]) <= bound * fabs(expected[i])))
            fail_msg("channel %d: %.9g, not %.9g", i, var[i], expected[i]);
}

TEST_SCRATCH(test_unbiased)
{
    static const struct {
        pass_level level;
        ir_dtype low;
        int accumulate;
        double bound;
    } ways[] = {{PASS_O0, IR_f32, 0, 1e-6},
                {PASS_O0, IR_f32, STEPS, 1e-6},
                {PASS_O1, IR_f16, 0, 1e-6},
                {PASS_O2, IR_f16, STEPS, 2e-3},
                {PASS_O2, IR_bf16, 0, 2e-2}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            compile_options o = options(NULL, "sgd");
            double var[CHANNELS];
            o.running_var = PASS_VARIANCE_UNBIASED;
            o.level = ways[k].level;
            o.low = ways[k].low;
            o.accumulate = ways[k].accumulate;
            train(t, &table[i], &o, var);
            assert_variances(var, table[i].var, ways[k].bound);
        }
}

/* Two elements have half the variance by ONNX's rule; of one it is 0 by either, which divides nothing by zero. */
TEST_SCRATCH(test_few_elements)
{
    static const row pair = {0, 1, {2}, {0}}, single = {0.9, 1, {1, 1}, {0.81, 0.81, 0.81}};
    double biased[CHANNELS], unbiased[CHANNELS], var[CHANNELS];
    compile_options o = options(NULL, "sgd");
    o.level = PASS_O0;
    train(t, &pair, &o, biased);
    o.running_var = PASS_VARIANCE_UNBIASED;
    train(t, &pair, &o, unbiased);
    for (int i = 0; i < CHANNELS; i++) biased[i] *= 2;
    assert_variances(unbiased, biased, 1e-6);
    train(t, &single, &o, var);
    assert_variances(var, single.var, 1e-6);
}
