/* test_shard.c - training with slices of the states of the optimizer (passes/train/shard.c) on ranks that are threads: the
 * parameters are those of one rank. */
#include "runtime/inspect/numbers.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/module.h"
#include "tests/ranks_threads.h"
#include "tests/session.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_RANKS = 5, ROWS = 60, FEATURES = 4, CLASSES = 3, STEPS = 6, PARAMS = 5, VALUES = 64 };

static const char network[] =
    "param @w : f32[4,5] = [0.1, -0.2, 0.3, 0.4, -0.5, 0.6, -0.7, 0.8, 0.9, -0.1, 0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8,"
    " 0.9, 0.1, -0.2]\n"
    "param @b : f32[5] = [0.1, 0.2, 0.3, 0.4, 0.5]\n"
    "param @v : f32[5,3] = [0.5, -0.4, 0.3, 0.2, -0.1, 0.1, -0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8, -0.9, 0.1]\n"
    "param @one : f32[1] = [0.75]\n"
    "param @scalar : f32[] = 1.5\n"
    "graph @forward(@x : f32[N,4]) as forward {\n"
    "  %h = matmul @x, @w, @b : f32[N,5] !MatMul \"fc1\"\n"
    "  %r = relu %h : f32[N,5] !Relu \"relu\"\n"
    "  %y = matmul %r, @v : f32[N,3] !MatMul \"fc2\"\n"
    "  %z = mul %y, @scalar : f32[N,3] !Mul \"scale\"\n"
    "  %q = mul %z, @one : f32[N,3] !Mul \"scale2\"\n"
    "  output \"q\" = %q\n"
    "}\n";
static const char *const names[PARAMS] = {"w", "b", "v", "one", "scalar"};

/* What one training ends with. */
typedef struct outcome {
    float params[PARAMS][VALUES];
    double numbers[3];      /* steps, loss scale, norm of the last step */
    int64_t slots, masters; /* bytes; of whole parameters, too */
} outcome;

typedef struct training {
    ir_module *modules[MOST_RANKS];
    outcome out[MOST_RANKS];
    const char *failed[MOST_RANKS];
    char why[MOST_RANKS][300];
    float outlier; /* of one sample in step 2; 0: none */
    bool split;    /* each rank has its share of the samples, not all of them */
} training;

static ir_module *make_module(diag *d, const compile_options *o)
{
    ir_module *m = test_module(d, network);
    if (test_compile(m, o, d) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    return m;
}

static void fill(float *x, int64_t *labels, int step, float outlier)
{
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < FEATURES; k++) x[i * FEATURES + k] = (float)sin(i * 3 + k * 7 + step);
        labels[i] = (i + step) % CLASSES;
    }
    if (step == 2 && outlier != 0) x[0] = outlier;
}

/* A parameter, from the slices of all ranks if each has one. */
static ampc_status read_param(rt_session *s, k_ranks *r, const char *name, float *out, diag *d)
{
    rt_tensor p;
    char master[40];
    float all[MOST_RANKS * VALUES];
    snprintf(master, sizeof master, "master.%s", name);
    const bool sliced = test_storage_find(s, master) >= 0;
    TRY(test_storage(s, sliced ? master : name, d, &p));
    const size_t bytes = (size_t)rt_tensor_count(&p) * sizeof(float);
    if (!sliced) {
        memcpy(out, p.data, bytes);
        return AMPC_OK;
    }
    TRY(r->all_gather(r, p.data, all, bytes));
    memcpy(out, all, bytes * (size_t)r->count);
    return AMPC_OK;
}

static ampc_status run_steps(rt_session *s, const training *t, k_ranks *r, outcome *out, diag *d)
{
    static const char *const numbers[] = {"step", "loss_scale"};
    float x[ROWS * FEATURES];
    int64_t labels[ROWS];
    const int64_t rows = t->split ? ROWS / r->count : ROWS, first = t->split ? rows * r->index : 0;
    for (int step = 0; step < STEPS; step++) {
        fill(x, labels, step, t->outlier);
        const rt_tensor in[] = {
            {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {rows, FEATURES}, .data = x + first * FEATURES},
            {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {rows}, .data = labels + first},
        };
        TRY(rt_session_run(s, "train_step", in, 2, d));
    }
    const rt_tensor *norm = rt_session_output(s, "grad_norm");
    out->numbers[2] = norm ? ir_load_f64(norm->dtype, norm->data) : 0;
    for (int i = 0; i < 2; i++)
        if (test_storage_find(s, numbers[i]) >= 0) TRY(rt_session_get_number(s, numbers[i], d, &out->numbers[i]));
    for (int i = 0; i < PARAMS; i++) TRY(read_param(s, r, names[i], out->params[i], d));
    return AMPC_OK;
}

static void train_rank(k_ranks *r, void *user)
{
    training *t = user;
    diag *d = diag_new(NULL, NULL);
    rt_session *s = NULL;
    const rt_session_options o = {.threads = 1, .deterministic = 1, .ranks = r};
    const ir_module *m = t->modules[r->index];
    ampc_status status = rt_session_open(m, &o, d, &s);
    if (status == AMPC_OK) status = run_steps(s, t, r, &t->out[r->index], d);
    if (status != AMPC_OK) {
        snprintf(t->why[r->index], sizeof t->why[0], "%s", diag_first_error(d));
        t->failed[r->index] = t->why[r->index];
    }
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *storage = m->storage.items[i];
        if (storage->role == IR_STATE_slot) t->out[r->index].slots += ir_storage_bytes(storage);
        if (storage->kind == IR_PARAM || storage->role == IR_STATE_master)
            t->out[r->index].masters += ir_storage_held(storage);
    }
    rt_session_close(s);
    diag_free(d);
}

static outcome train(scratch *t, compile_options o, int count, float outlier)
{
    static training all;
    all = (training){.outlier = outlier, .split = o.level == PASS_O0};
    o.loss = "ce";
    o.shard = count > 1 ? PASS_SHARD_OPTIMIZER : PASS_SHARD_NOTHING;
    o.distribute = true;
    o.reduce_dtype = IR_f32;
    o.ranks = count;
    for (int i = 0; i < count; i++) all.modules[i] = make_module(t->d, &o);
    ranks_threads *ranks = ranks_threads_new(count, NULL);
    ranks_threads_run(ranks, train_rank, &all);
    ranks_threads_free(ranks);
    for (int i = 0; i < count; i++) ir_module_free(all.modules[i]);
    for (int i = 0; i < count; i++) {
        if (all.failed[i]) fail_msg("%s", all.failed[i]);
        assert_memory_equal(all.out[i].params, all.out[0].params, sizeof all.out[0].params);
        assert_memory_equal(all.out[i].numbers, all.out[0].numbers, sizeof all.out[0].numbers);
    }
    return all.out[0];
}

static void assert_close(const outcome *a, const outcome *b)
{
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < VALUES; i++)
            if (!(fabsf(a->params[p][i] - b->params[p][i]) <= 1e-6f))
                fail_msg("@%s[%d] is %g instead of %g", names[p], i, b->params[p][i], a->params[p][i]);
    for (int i = 0; i < 3; i++)
        if (!(fabs(a->numbers[i] - b->numbers[i]) <= 1e-5 * fabs(a->numbers[i])))
            fail_msg("number %d is %g instead of %g", i, b->numbers[i], a->numbers[i]);
}

/* 2 to 5 ranks; the slices of 1, 3, 5, 15 and 20 elements have padding, and some are nothing else. */
static void check(scratch *t, compile_options o, float outlier)
{
    const outcome alone = train(t, o, 1, outlier);
    for (int count = 2; count <= MOST_RANKS; count++) {
        const outcome sharded = train(t, o, count, outlier);
        assert_close(&alone, &sharded);
        assert_true(sharded.slots <= alone.slots / count + 12 * PARAMS);
    }
}

static compile_options options_of(const char *optimizer)
{
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.optimizer = optimizer;
    return o;
}

TEST_SCRATCH(test_elementwise_optimizers)
{
    static const char *const optimizers[] = {"sgd,lr=0.1",
                                             "momentum,lr=0.1",
                                             "nesterov,lr=0.1,weight_decay=0.01",
                                             "adamw,lr=0.02",
                                             "adam",
                                             "adagrad",
                                             "adadelta",
                                             "rmsprop",
                                             "rmsprop,momentum=0.9",
                                             "rmsprop,centered=1",
                                             "adamax",
                                             "nadam",
                                             "lion"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) check(t, options_of(optimizers[i]), 0);
}

TEST_SCRATCH(test_ratios_of_norms)
{
    check(t, options_of("lamb,lr=0.05"), 0);
    check(t, options_of("lars,lr=0.5"), 0);
}

TEST_SCRATCH(test_clipping)
{
    compile_options o = options_of("adamw,lr=0.02");
    o.clip_norm = 0.05;
    check(t, o, 0);
    o.clip_value = 0.01;
    check(t, o, 0);
    o.clip_norm = 0;
    check(t, o, 0);
}

TEST_SCRATCH(test_averages)
{
    compile_options o = options_of("momentum,lr=0.1");
    o.ema = 0.9;
    check(t, o, 0);
}

TEST_SCRATCH(test_scaling)
{
    compile_options o = options_of("adamw,lr=0.02");
    o.level = PASS_O1;
    check(t, o, 0);
    check(t, o, INFINITY); /* every gradient is infinite in that step */
    o.scaling = PASS_SCALE_OFF;
    check(t, o, INFINITY);
    o.level = PASS_O0;
    o.scaling = PASS_SCALE_DYNAMIC;
    o.init_scale = 0x1p125;
    o.clip_norm = 1;
    check(t, o, 3e3f); /* the gradients of the first row of @w are infinite, all others and the loss finite */
    assert_true(train(t, o, 2, 3e3f).numbers[0] == STEPS - 1);
}

/* Parameters that all graphs read in f16 are slices: the graphs have the values of an unsharded training. */
TEST_SCRATCH(test_masters)
{
    compile_options o = options_of("adamw,lr=0.02");
    o.level = PASS_O2;
    check(t, o, 0);
    check(t, o, INFINITY);
    const outcome alone = train(t, o, 1, 0);
    for (int count = 2; count <= MOST_RANKS; count++)
        assert_true(train(t, o, count, 0).masters <= alone.masters / count + 4 * PARAMS);
    o.ema = 0.9; /* which has whole averages of whole parameters */
    check(t, o, 0);
}

TEST_SCRATCH(test_refused)
{
    static const char *const optimizers[] = {"adafactor", "muon"};
    for (size_t i = 0; i < 2; i++) {
        compile_options o = options_of(optimizers[i]);
        diag *d = diag_new(NULL, NULL);
        ir_module *m = test_module(d, network);
        o.loss = "ce";
        o.shard = PASS_SHARD_OPTIMIZER;
        o.distribute = true;
        o.ranks = 2;
        assert_int_equal(test_compile(m, &o, d), AMPC_UNSUPPORTED);
        assert_non_null(strstr(diag_first_error(d), optimizers[i]));
        ir_module_free(m);
        diag_free(d);
    }
}
