/* test_evaluations.c - losses of evaluations against those that PyTorch computes from the whole data set
 * (evaluations.def), in batches of any size, which for a mean of means would be another loss for each size. In low
 * precision they differ from PyTorch's, but not with the size of the batch; nor does what a training decides by them.
 *
 * make_evaluations.py makes the same samples. */
#include "ir/graph/ir.h"
#include "runtime/train/trainer.h"
#include "tests/compile.h"
#include "tests/data.h"
#include "tests/train/noise.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ROWS = 97, TERMS = 3, MAX_ELEMENTS = 24, WHOLE = ROWS };

typedef struct loss_case {
    const char *loss, *nodes;
    double values[1 + TERMS]; /* the loss and its terms in their order; 0: there are no more */
    bool is_accuracy;
} loss_case;

#define BUILT_IN(text, ...) {.loss = text, .values = {__VA_ARGS__}},
#define OF_MODEL(text, value) {.nodes = text, .values = {value}},
#define ACCURACY(text, value) {.loss = text, .values = {value}, .is_accuracy = true},
static const loss_case cases[] = {
#include "tests/train/evaluations.def"
};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- data ---- */

static double between(int64_t i, uint64_t salt, double low, double high) { return low + (high - low) * noise(i, salt); }
static int64_t class_of(int64_t i, uint64_t salt, int count) { return (int64_t)(noise(i, salt) * count); }

/* Element i of each field. */
static double a(int64_t i) { return between(i, 1, -3, 3); }
static double b(int64_t i) { return between(i, 2, -3, 3); }
static double tokens(int64_t i) { return between(i, 3, -2, 2); }
static double label(int64_t i) { return (double)class_of(i, 4, 5); }
static double rare(int64_t i) { return i % 13 < 9 || i > 88 ? -1 : (double)class_of(i, 5, 5); }
static double marks(int64_t i) { return i % 6 >= class_of(i / 6, 6, 7) ? -100 : (double)class_of(i, 7, 4); }
static double words(int64_t i) { return 1 + (double)class_of(i, 8, 3); }
static double goal(int64_t i) { return noise(i, 9); }
static double mask(int64_t i) { return noise(i, 10) < 0.4; }

static const struct field {
    const char *name;
    double (*of)(int64_t i);
    ir_dtype dtype;
    int rank;
    int64_t dims[2];
} fields[] = {
    {"a", a, IR_f32, 1, {5}},         {"b", b, IR_f32, 1, {5}},       {"tokens", tokens, IR_f32, 2, {6, 4}},
    {"label", label, IR_i64, 0, {0}}, {"rare", rare, IR_i64, 0, {0}}, {"marks", marks, IR_i64, 1, {6}},
    {"words", words, IR_i64, 1, {2}}, {"goal", goal, IR_f32, 1, {5}}, {"mask", mask, IR_f32, 1, {5}},
};

static void write_field(scratch *t, const struct field *f)
{
    static char bytes[ROWS * MAX_ELEMENTS * 8];
    char file[32];
    rt_array array = {.dtype = f->dtype, .rank = 1 + f->rank, .dims = {ROWS}, .data = bytes};
    for (int i = 0; i < f->rank; i++) array.dims[1 + i] = f->dims[i];
    assert_true(rt_array_bytes(array.dtype, array.rank, array.dims, &array.bytes));
    for (size_t i = 0; i < array.bytes / ir_dtype_size(f->dtype); i++)
        ir_store_f64(f->dtype, bytes + i * ir_dtype_size(f->dtype), f->of((int64_t)i));
    snprintf(file, sizeof file, "%s.npy", f->name);
    assert_int_equal(npy_write(scratch_path(t, file), &array, t->d), AMPC_OK);
}

static rt_dataset *open_data(scratch *t)
{
    char spec[2048] = "npy:";
    rt_dataset *data = NULL;
    for (size_t i = 0, at = 4; i < sizeof fields / sizeof *fields; i++) {
        char file[32];
        write_field(t, &fields[i]);
        snprintf(file, sizeof file, "%s.npy", fields[i].name);
        at += (size_t)snprintf(spec + at, sizeof spec - at, "%s%s=%s", i ? "," : "", fields[i].name,
                               scratch_path(t, file));
    }
    if (rt_dataset_open(spec, &(rt_dataset_options){.n_fields = 0}, t->d, &data) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return data;
}

/* ---- modules ---- */

static const char head[] =
    "ampc-ir 3\nparam @ws : f32[5] = zero\nconst @half : f32[] = 0.5\nconst @one : f32[] = 1\n"
    "const @w : f32[5] = [1.5, 0.25, 0, 3, 1]\n"
    "param @eye : f32[5,5] = [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]\n"
    "graph @forward(@a : f32[N,5], @b : f32[N,5], @tokens : f32[N,6,4], @label : i64[N], @rare : i64[N], "
    "@marks : i64[N,6], @goal : f32[N,5], @mask : f32[N,5], @words : i64[N,2]) as forward {\n"
    "  %ma = matmul @a, @eye : f32[N,5] !MatMul \"ma\"\n  %xa = add %ma, @ws : f32[N,5] !Add \"xa\"\n"
    "  %mb = matmul @b, @eye : f32[N,5] !MatMul \"mb\"\n  %xb = add %mb, @ws : f32[N,5] !Add \"xb\"\n"
    "  %share = softmax %xb {axis=1} : f32[N,5] !Softmax \"share\"\n"
    "  %log = log_softmax %xa {axis=1} : f32[N,5] !LogSoftmax \"log\"\n"
    "  %h1 = sub %xa, @goal : f32[N,5] !Sub \"h1\"\n  %h2 = mul %h1, %h1 : f32[N,5] !Mul \"h2\"\n"
    "  %h3 = mul %h2, @mask : f32[N,5] !Mul \"h3\"\n"
    "  %h4 = reduce_sum %h3 {axes=[0,1], keepdims=false} : f32[] !ReduceSum \"h4\"\n"
    "  %h5 = reduce_sum @mask {axes=[0,1], keepdims=false} : f32[] !ReduceSum \"h5\"\n"
    "  %weighted = div %h4, %h5 : f32[] !Div \"weighted\"\n"
    "  output \"a\" = %xa\n  output \"b\" = %xb\n  output \"tokens\" = @tokens\n  output \"share\" = %share\n"
    "  output \"log_a\" = %log\n  output \"weighted\" = %weighted\n";

static const struct precision {
    const char *name, *profile;
    pass_level level;
    ir_dtype low;
    double bound; /* of the error, unless it is f32 */
} precisions[] = {
    {"f32", NULL, PASS_O0, IR_bf16, 1e-6},
    {"bf16 at O1", NULL, PASS_O1, IR_bf16, 3e-2},
    {"fp16 at O1", NULL, PASS_O1, IR_f16, 3e-3},
    {"bf16 at O2", NULL, PASS_O2, IR_bf16, 3e-2},
    {"fp16 at O2", NULL, PASS_O2, IR_f16, 3e-3},
    {"bf16 at O2, as PaddlePaddle", "paddle-3", PASS_O2, IR_bf16, 3e-2}, /* whose losses are low */
    {"fp16 at O2, as PaddlePaddle", "paddle-2.4", PASS_O2, IR_f16, 3e-3},
    {"bf16 at O2, without a list", "empty", PASS_O2, IR_bf16, 3e-2},
};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static ir_module *make_module(scratch *t, const loss_case *c, const struct precision *p)
{
    char *text;
    ir_module *m = NULL;
    compile_options o = compile_options_default();
    assert_true(
        asprintf(&text, "%s%s%s}\n", head, c->nodes ? c->nodes : "", c->nodes ? "  output \"own\" = %own\n" : "") > 0);
    o.level = p->level;
    o.low = p->low;
    o.profile = p->profile;
    o.loss = c->loss;
    o.optimizer = "sgd";
    o.loss_output = c->nodes ? "own" : NULL;
    if (ir_parse(text, strlen(text), "evaluations.ir", t->d, &m) != AMPC_OK || test_compile(m, &o, t->d) != AMPC_OK)
        fail_msg("%s: %s", c->loss ? c->loss : c->nodes, diag_first_error(t->d));
    free(text);
    return m;
}

/* ---- evaluation ---- */

static const struct batching {
    int64_t size;
    bool fixed; /* filled up with copies */
} batchings[] = {{1, false},     {2, false}, {7, false}, {64, false},
                 {WHOLE, false}, {7, true},  {64, true}, {2 * WHOLE, true}};
enum { BATCHINGS = sizeof batchings / sizeof *batchings };

/* A session that evaluates in such batches. */
static rt_session *open_session(scratch *t, const ir_module *m, const struct batching *b)
{
    int64_t sizes[] = {b->fixed ? b->size : -1, -1, -1};
    const rt_session_options o = {.device = "cpu", .threads = 1, .symbol_sizes = sizes};
    rt_session *s = NULL;
    assert_int_equal(rt_session_open(m, &o, t->d, &s), AMPC_OK);
    return s;
}

static rt_eval evaluate(scratch *t, rt_session *s, const ir_module *m, rt_dataset *data, const struct batching *b)
{
    rt_eval got;
    if (rt_evaluate(s, m, data, &(rt_eval_options){.batch = b->size}, t->d, &got) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return got;
}

static double value_of(const loss_case *c, const rt_eval *e, int i)
{
    return c->is_accuracy ? rt_eval_number(e, "accuracy") : e->value[i].value;
}

static void expect(const loss_case *c, const struct precision *p, const struct batching *b, double got, double wanted,
                   double bound)
{
    if (!(fabs(got - wanted) <= bound * fmax(1, fabs(wanted))))
        fail_msg("%s, %s: %.9g in %s batches of %d, not %.9g", c->loss ? c->loss : c->nodes, p->name, got,
                 b->fixed ? "padded" : "partial", (int)b->size, wanted);
}

/* Terms follow the loss in their order. `first`: what the first batching had. */
static void compare(const loss_case *c, const struct precision *p, const struct batching *b, const rt_eval *e,
                    double first[1 + TERMS])
{
    for (int i = 0; i <= TERMS && (!i || c->values[i] != 0); i++) {
        if (b == batchings) first[i] = value_of(c, e, i);
        if (!c->is_accuracy || p->level == PASS_O0) expect(c, p, b, value_of(c, e, i), c->values[i], p->bound);
        expect(c, p, b, value_of(c, e, i), first[i], 1e-6);
    }
}

TEST_SCRATCH(test_any_batch)
{
    rt_dataset *data = open_data(t);
    for (int i = 0; i < CASES * PRECISIONS; i++) {
        const loss_case *c = &cases[i / PRECISIONS];
        const struct precision *p = &precisions[i % PRECISIONS];
        double first[1 + TERMS];
        ir_module *m = make_module(t, c, p);
        for (int k = 0; k < BATCHINGS; k++) {
            rt_session *s = open_session(t, m, &batchings[k]);
            rt_eval e = evaluate(t, s, m, data, &batchings[k]);
            compare(c, p, &batchings[k], &e, first);
            rt_eval_clear(&e);
            rt_session_close(s);
        }
        ir_module_free(m);
    }
    rt_dataset_close(data);
}

/* ---- decisions ---- */

enum { EPOCHS = 12 };

/* A training and, after each epoch, evaluations of its weights in all batchings. */
typedef struct observer {
    scratch *t;
    const char *what;
    const ir_module *module;
    rt_trainer *trainer;
    rt_session *training, *sessions[BATCHINGS];
    rt_dataset *data;
    rt_monitor best, stop;
    rt_monitor_state found[BATCHINGS], bad[BATCHINGS];
    uint64_t ended[BATCHINGS]; /* steps */
    int epochs;
} observer;

static void copy_weights(const observer *o, rt_session *to)
{
    for (int i = 0; i < rt_session_storage_count(to); i++) {
        rt_tensor v;
        assert_int_equal(rt_session_read(o->training, i, o->t->d, &v), AMPC_OK);
        assert_int_equal(rt_session_write(to, i, v.data, o->t->d), AMPC_OK);
    }
}

static ampc_status observe(void *user, uint64_t epoch, const rt_eval *of_training)
{
    observer *o = user;
    (void)epoch;
    const uint64_t step = rt_trainer_state(o->trainer)->step;
    o->epochs++;
    for (int k = 0; k < BATCHINGS; k++) {
        copy_weights(o, o->sessions[k]);
        rt_eval e = evaluate(o->t, o->sessions[k], o->module, o->data, &batchings[k]);
        const double loss = rt_eval_number(&e, "loss"), wanted = rt_eval_number(of_training, "loss");
        if (!(fabs(loss - wanted) <= 1e-6 * fmax(1, fabs(wanted))))
            fail_msg("%s: after step %d, %.9g in batches of %d, not %.9g", o->what, (int)step, loss,
                     (int)batchings[k].size, wanted);
        rt_monitor_observe(&o->best, loss, step, &o->found[k]);
        rt_monitor_observe(&o->stop, loss, step, &o->bad[k]);
        if (!o->ended[k] && rt_monitor_exhausted(&o->stop, &o->bad[k])) o->ended[k] = step;
        rt_eval_clear(&e);
    }
    return AMPC_OK;
}

/* The trainer evaluates in batches of its own; every other batch would have led to the same decisions. */
static void expect_one_decision(const observer *o)
{
    const rt_run_state *run = rt_trainer_state(o->trainer);
    if (run->best.step == 0 || run->best.step == run->step || run->early_stop.bad != o->stop.patience)
        fail_msg("%s: best at step %d of %d", o->what, (int)run->best.step, (int)run->step);
    for (int k = 0; k < BATCHINGS; k++)
        if (o->found[k].step != run->best.step || o->ended[k] != run->step)
            fail_msg("%s: in batches of %d the best step is %d and the last %d, not %d and %d", o->what,
                     (int)batchings[k].size, (int)o->found[k].step, (int)o->ended[k], (int)run->best.step,
                     (int)run->step);
}

static void train(observer *o, const loss_case *c, const struct precision *p, double lr)
{
    char folder[64];
    static int number;
    ir_module *m = make_module(o->t, c, p);
    o->module = m;
    o->what = c->loss ? c->loss : c->nodes;
    o->training = open_session(o->t, m, &batchings[0]);
    for (int k = 0; k < BATCHINGS; k++) o->sessions[k] = open_session(o->t, m, &batchings[k]);
    snprintf(folder, sizeof folder, "checkpoints%d", number++);
    const rt_trainer_options options = {
        .batch = 32, .epochs = EPOCHS, .lr = lr, .seed = 1, .allow_skipped_steps = true};
    const rt_train_plan plan = {.checkpoint_dir = scratch_path(o->t, folder),
                                .keep = 2,
                                .on_epoch = observe,
                                .user = o,
                                .eval_data = o->data,
                                .best = &o->best,
                                .early_stop = &o->stop};
    if (rt_trainer_open(o->training, m, o->data, &options, o->t->d, &o->trainer) != AMPC_OK ||
        rt_trainer_run(o->trainer, &plan, o->t->d) != AMPC_OK)
        fail_msg("%s, %s: %s", o->what, p->name, diag_first_error(o->t->d));
    expect_one_decision(o);
    rt_trainer_close(o->trainer);
    for (int k = 0; k < BATCHINGS; k++) rt_session_close(o->sessions[k]);
    rt_session_close(o->training);
    ir_module_free(m);
}

/* Class weights, ignored labels, several terms, and a loss of the model; with rates that are too high to converge. */
static const struct training {
    const char *loss, *nodes; /* begin so */
    double lr;
} trainings[] = {
    {"ce,ignore_index=-1,class_weights=1.5/0.25/0.0/3.0/1.0:", NULL, 4},
    {"scalar:weighted+ce,ignore_index=-1:", NULL, 0.5},
    {"mse,weight=2:a,goal+ce,class_weights=", NULL, 0.5},
    {NULL, "  %own, %lown, %pown = softmax_cross_entropy %xa, @rare {ignore_index=-1} :", 4},
};

static const loss_case *case_of(const struct training *r)
{
    for (int i = 0; i < CASES; i++) {
        const loss_case *c = &cases[i];
        if (!c->is_accuracy && r->loss && c->loss && strncmp(c->loss, r->loss, strlen(r->loss)) == 0) return c;
        if (r->nodes && c->nodes && strncmp(c->nodes, r->nodes, strlen(r->nodes)) == 0) return c;
    }
    fail_msg("no case");
    return NULL;
}

TEST_SCRATCH(test_decisions)
{
    rt_dataset *data = open_data(t);
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++)
        for (int k = 0; k < PRECISIONS; k++) {
            observer o = {.t = t, .data = data};
            assert_int_equal(rt_monitor_parse("loss", OPTION_best, t->d, &o.best), AMPC_OK);
            assert_int_equal(rt_monitor_parse("loss,patience=2", OPTION_early_stop, t->d, &o.stop), AMPC_OK);
            train(&o, case_of(&trainings[i]), &precisions[k], trainings[i].lr);
        }
    rt_dataset_close(data);
}
