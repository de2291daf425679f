/* test_trainer.c - data feeding, the training loop, its failures, resuming, evaluation. */
#include "runtime/data/loader.h"
#include "runtime/train/stepper.h"
#include "tests/unit/training.h"

#include <math.h>

enum { ROWS = 96, BATCH = 16 };

static const rt_trainer_options few_steps = {.batch = BATCH, .steps = 24, .lr = -1, .seed = 3};

static rt_trainer *open_trainer(scratch *t, const training *r, const rt_trainer_options *o)
{
    rt_trainer *trainer = NULL;
    assert_ok(t, rt_trainer_open(r->s, r->m, r->data, o, t->d, &trainer));
    return trainer;
}

/* ---- learning ---- */

static bool stop_after(void *user, const rt_step_record *step)
{
    *(rt_step_record *)user = *step;
    return true;
}

/* Runs exactly one step: save_every waits for each step, although there is no folder to save in. */
static ampc_status run_step(rt_trainer *trainer, diag *d, rt_step_record *step)
{
    const rt_train_plan plan = {.save_every = 1, .on_step = stop_after, .user = step};
    return rt_trainer_run(trainer, &plan, d);
}

TEST_SCRATCH(test_learns)
{
    static const ir_dtype low[] = {IR_NO_DTYPE, IR_f16, IR_bf16};
    for (size_t i = 0; i < 3; i++) {
        compile_options o = training_options(low[i] ? low[i] : IR_f16);
        if (!low[i]) o.level = PASS_O0;
        training r = training_open(t, &o, 512);
        const rt_trainer_options long_run = {.batch = 32, .epochs = 15, .lr = 0.02, .lr_schedule = "cosine", .seed = 1};
        const rt_train_plan plan = {0};
        rt_eval before, after;
        rt_trainer *trainer = open_trainer(t, &r, &long_run);
        assert_int_equal(rt_trainer_steps(trainer), 15 * 16);
        assert_ok(t, rt_evaluate(r.s, r.m, r.data, &(rt_eval_options){.batch = 100}, t->d, &before));
        assert_ok(t, rt_trainer_run(trainer, &plan, t->d));
        assert_ok(t, rt_evaluate(r.s, r.m, r.data, &(rt_eval_options){.batch = 100}, t->d, &after));
        assert_true(rt_eval_number(&after, "loss") < 0.5 * rt_eval_number(&before, "loss"));
        assert_true(rt_eval_number(&after, "accuracy") > 0.95);
        assert_int_equal(after.samples, 512);
        assert_true(rt_trainer_done(trainer));
        rt_trainer_close(trainer);
        training_close(&r);
    }
}

/* The learning rate depends on good steps: while all steps are skipped it stays at the start of the warm-up. */
TEST_SCRATCH(test_skipped_steps_move_nothing)
{
    compile_options o = training_options(IR_f16);
    o.init_scale = 0x1p40;
    training r = training_open(t, &o, ROWS);
    rt_trainer_options options = few_steps;
    options.lr_schedule = "constant,warmup=8";
    options.lr = 0.8;
    rt_trainer *trainer = open_trainer(t, &r, &options);
    rt_step_record step;
    rt_tensor w = training_storage(t, r.s, "fc1.weight"), mean = training_storage(t, r.s, "bn.mean");
    float before[32], buffer[8];
    memcpy(before, w.data, sizeof before);
    memcpy(buffer, mean.data, sizeof buffer);
    assert_ok(t, run_step(trainer, t->d, &step));
    assert_int_equal(step.skipped, 1);
    assert_float_equal(step.scale, 0x1p40, 0);
    assert_memory_equal(before, w.data, sizeof before);
    assert_memory_equal(buffer, mean.data, sizeof buffer);
    while (step.skipped == step.step) {
        assert_float_equal(step.lr, 0.1, 1e-7);
        assert_ok(t, run_step(trainer, t->d, &step));
        assert_true(step.step < 40);
    }
    assert_float_equal(step.lr, 0.1, 1e-7);
    assert_memory_not_equal(before, w.data, sizeof before);
    assert_ok(t, run_step(trainer, t->d, &step));
    assert_float_equal(step.lr, 0.2, 1e-7);
    assert_int_equal(rt_trainer_state(trainer)->position.epoch, step.step / 6);
    rt_trainer_close(trainer);
    training_close(&r);
}

/* ---- numeric failures ---- */

TEST_SCRATCH(test_scale_stuck_at_floor)
{
    compile_options o = training_options(IR_f16);
    o.init_scale = o.min_scale = 0x1p40;
    training r = training_open(t, &o, ROWS);
    rt_trainer_options options = few_steps;
    options.steps = 1000;
    rt_trainer *trainer = open_trainer(t, &r, &options);
    ampc_status status = AMPC_OK;
    rt_step_record step;
    const rt_tensor scale = training_storage(t, r.s, "loss_scale");
    int steps = 0;
    while (status == AMPC_OK) {
        const bool is_interrupted = steps == 20; /* by a step without overflow, so that the count begins again */
        if (is_interrupted) ir_store_f64(IR_f32, scale.data, 1);
        status = run_step(trainer, t->d, &step);
        if (is_interrupted) ir_store_f64(IR_f32, scale.data, 0x1p40);
        steps++;
        if (status == AMPC_OK) assert_int_equal(step.skipped, steps - (steps > 20));
    }
    assert_int_equal(status, AMPC_NUMERIC);
    assert_int_equal(steps, 20 + 1 + 50);
    assert_non_null(strstr(diag_first_error(t->d), "of the backward (softmax_cross_entropy_grad) has"));
    scratch_expect(t, "step 71: 50 steps in a row were skipped with the loss scale at 1.09951e+12: 'd.scores'");
    rt_trainer_close(trainer);
    training_close(&r);
}

TEST_SCRATCH(test_loss_not_finite)
{
    compile_options o = training_options(IR_f16);
    training r = training_open(t, &o, ROWS);
    const rt_train_plan plan = {.checkpoint_dir = t->folder, .save_every = 1};
    rt_trainer *trainer = open_trainer(t, &r, &few_steps);
    ir_store_f64(IR_f32, training_storage(t, r.s, "fc2.bias").data, NAN);
    assert_int_equal(rt_trainer_run(trainer, &plan, t->d), AMPC_NUMERIC);
    scratch_expect(t, "step 1: the loss is");
    assert_int_equal(scratch_count(t), 2); /* only the data, no checkpoint */
    rt_trainer_close(trainer);
    training_close(&r);
}

/* ---- plans ---- */

enum { BITS_STEPS = 5, BITS_SKIPPED = 2 };

/* The outputs that the steps compute. */
typedef enum computed { ALL_OUTPUTS, NEEDED_AND_NORM, NEEDED } computed;

/* Returns all parameters and states after some steps, one of them skipped, and the reported values of each step. */
static char *bits_after(scratch *t, const ir_module *m, bool no_fuse, computed which, size_t *n)
{
    static const char *const outputs[] = {"loss", "found_inf", "grad_norm"};
    float x[BATCH][4];
    int64_t label[BATCH];
    uint32_t said[BITS_STEPS][3] = {0};
    double scale;
    rt_session *s = NULL;
    const rt_session_options o = {.device = "cpu", .threads = 1, .deterministic = 1, .no_fuse = no_fuse};
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {BATCH, 4}, .data = x},
                            {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {BATCH}, .data = label}};
    assert_ok(t, rt_session_open(m, &o, t->d, &s));
    if (which != ALL_OUTPUTS) assert_ok(t, rt_stepper_select(s, m, &outputs[2], which == NEEDED_AND_NORM, t->d));
    assert_ok(t, rt_session_get_number(s, "loss_scale", t->d, &scale));
    for (int step = 0; step < BITS_STEPS; step++) {
        for (int i = 0; i < BATCH; i++) {
            for (int k = 0; k < 4; k++)
                x[i][k] = 2 * philox_unit(philox_word(5, (uint64_t)k, (uint64_t)(i + step))) - 1;
            label[i] = x[i][0] > 0;
        }
        assert_ok(t, rt_session_set_number(s, "loss_scale", step == BITS_SKIPPED ? (double)INFINITY : scale, t->d));
        assert_ok(t, rt_session_run(s, "train_step", in, 2, t->d));
        for (int k = 0; k < 3; k++) {
            const rt_tensor *out = rt_session_output(s, outputs[k]);
            assert_true((out != NULL) == (k < 2 || which != NEEDED));
            if (out) memcpy(&said[step][k], out->data, ir_dtype_size(out->dtype));
        }
        assert_int_equal(said[step][1], step == BITS_SKIPPED);
    }
    char *bytes = training_bytes(s, n);
    bytes = realloc(bytes, *n + sizeof said);
    memcpy(bytes + *n, said, sizeof said);
    *n += sizeof said;
    rt_session_close(s);
    return bytes;
}

TEST_SCRATCH(test_fusing_keeps_the_bits)
{
    static const char *const optimizers[] = {"sgd,lr=0.1", "momentum,lr=0.05", "adamw,lr=0.02"};
    for (int i = 0; i < 6; i++) {
        size_t n, again;
        compile_options o = training_options(i < 3 ? IR_f16 : IR_bf16);
        o.optimizer = optimizers[i % 3];
        o.scaling = PASS_SCALE_DYNAMIC;
        o.mode = PASS_MODE_EVAL; /* the product of a dropout in an epilogue is rounded less often */
        ir_module *m = training_module(t, &o, 0);
        char *fused = bits_after(t, m, false, ALL_OUTPUTS, &n), *apart = bits_after(t, m, true, ALL_OUTPUTS, &again);
        assert_int_equal(n, again);
        if (memcmp(fused, apart, n) != 0) fail_msg("%s: other bits", o.optimizer);
        free(fused);
        free(apart);
        ir_module_free(m);
    }
}

/* Training and the norm do not depend on which other outputs are computed. */
TEST_SCRATCH(test_selecting_keeps_the_bits)
{
    for (int i = 0; i < 4; i++) {
        size_t n, again, norms = BITS_STEPS * 3 * sizeof(uint32_t);
        compile_options o = training_options(i & 1 ? IR_bf16 : IR_f16);
        o.optimizer = "adamw,lr=0.02";
        o.scaling = PASS_SCALE_DYNAMIC;
        ir_module *m = training_module(t, &o, 0);
        char *all = bits_after(t, m, i & 2, ALL_OUTPUTS, &n), *norm = bits_after(t, m, i & 2, NEEDED_AND_NORM, &again);
        assert_int_equal(n, again);
        assert_memory_equal(all, norm, n);
        char *needed = bits_after(t, m, i & 2, NEEDED, &again);
        assert_int_equal(n, again);
        assert_memory_equal(all, needed, n - norms);
        free(all);
        free(norm);
        free(needed);
        ir_module_free(m);
    }
}

/* ---- resuming ---- */

static bool stop_at(void *user, const rt_step_record *step) { return step->step == *(uint64_t *)user; }

/* Trains in a new session until `stop` (0: the end) and returns its parameters and states. */
static char *train_until(scratch *t, const ir_module *m, rt_dataset *data, const char *folder, uint64_t stop,
                         bool resume, size_t *n)
{
    rt_session *s = training_session(t, m);
    rt_trainer *trainer;
    const rt_train_plan plan = {
        .checkpoint_dir = folder, .save_every = 5, .keep = 2, .resume = resume, .on_step = stop_at, .user = &stop};
    rt_trainer_options o = few_steps;
    o.lr_schedule = "cosine,warmup=4";
    assert_ok(t, rt_trainer_open(s, m, data, &o, t->d, &trainer));
    assert_ok(t, rt_trainer_run(trainer, &plan, t->d));
    char *bytes = training_bytes(s, n);
    rt_trainer_close(trainer);
    rt_session_close(s);
    return bytes;
}

TEST_SCRATCH(test_resume_is_bitwise)
{
    compile_options o = training_options(IR_f16);
    ir_module *m = training_module(t, &o, 0);
    rt_dataset *data = training_data(t, ROWS);
    size_t n, half, resumed;
    char *whole = train_until(t, m, data, NULL, 0, false, &n);
    free(train_until(t, m, data, t->folder, 12, false, &half));
    remove(scratch_path(t, "ckpt-0000000012.safetensors")); /* killed after step 12, saved at 10 */
    char *end = train_until(t, m, data, t->folder, 0, true, &resumed);
    assert_int_equal(n, resumed);
    assert_memory_equal(whole, end, n);
    assert_int_equal(access(scratch_path(t, "ckpt-0000000024.safetensors"), F_OK), 0);
    free(whole);
    free(end);
    rt_dataset_close(data);
    ir_module_free(m);
}

static void expect_resume(scratch *t, const ir_module *m, const training *r, const rt_trainer_options *o, bool resume,
                          ampc_status status, const char *text)
{
    rt_session *s = training_session(t, m);
    rt_trainer *trainer;
    const rt_train_plan plan = {.checkpoint_dir = t->folder, .resume = resume};
    assert_ok(t, rt_trainer_open(s, m, r->data, o, t->d, &trainer));
    assert_int_equal(rt_trainer_run(trainer, &plan, t->d), status);
    scratch_expect(t, text);
    rt_trainer_close(trainer);
    rt_session_close(s);
}

TEST_SCRATCH(test_resume_refused)
{
    compile_options o = training_options(IR_f16);
    training r = training_open(t, &o, ROWS);
    const rt_train_plan plan = {.checkpoint_dir = t->folder};
    rt_trainer_options other = few_steps;
    rt_trainer *trainer = open_trainer(t, &r, &few_steps);
    assert_ok(t, rt_trainer_run(trainer, &plan, t->d));
    rt_trainer_close(trainer);
    expect_resume(t, r.m, &r, &few_steps, false, AMPC_USAGE, "set resume to continue it");
    other.batch = 8;
    expect_resume(t, r.m, &r, &other, true, AMPC_USAGE, "batch size of 16, not 8");
    o.optimizer = "sgd";
    ir_module *m = training_module(t, &o, 0);
    expect_resume(t, m, &r, &few_steps, true, AMPC_REJECTED, "another optimizer");
    ir_module_free(m);
    other = few_steps;
    other.steps = 30;
    expect_resume(t, r.m, &r, &other, true, AMPC_OK, "");
    training_close(&r);
}

TEST_SCRATCH(test_stop_flag)
{
    compile_options o = training_options(IR_f16);
    training r = training_open(t, &o, ROWS);
    volatile sig_atomic_t stop = 1;
    const rt_train_plan plan = {.checkpoint_dir = t->folder, .stop = &stop};
    rt_trainer *trainer = open_trainer(t, &r, &few_steps);
    rt_step_record step;
    assert_ok(t, run_step(trainer, t->d, &step));
    assert_ok(t, rt_trainer_run(trainer, &plan, t->d));
    assert_int_equal(rt_trainer_state(trainer)->step, 1);
    rt_trainer_close(trainer);
    training_close(&r);
}

/* ---- feeding ---- */

static void expect_feed(scratch *t, const char *spec, int64_t batch, ampc_status status, const char *text)
{
    rt_dataset *data;
    rt_loader *feed = NULL;
    const rt_dataset_options none = {0};
    compile_options o = training_options(IR_f16);
    ir_module *m = training_module(t, &o, 16);
    assert_ok(t, rt_dataset_open(spec, &none, t->d, &data));
    assert_int_equal(rt_loader_open(ir_graph_find(m, "train_step"), data, NULL, batch, t->d, &feed), status);
    scratch_expect(t, text);
    rt_loader_close(feed);
    rt_dataset_close(data);
    ir_module_free(m);
}

TEST_SCRATCH(test_feed_refuses)
{
    char *spec;
    const char *x, *label;
    rt_dataset_close(training_data(t, ROWS));
    x = scratch_path(t, "x.npy"), label = scratch_path(t, "label.npy");
    assert_true(asprintf(&spec, "npy:x=%s,label=%s", x, label) > 0);
    expect_feed(t, spec, 0, AMPC_OK, "");
    expect_feed(t, spec, 8, AMPC_USAGE, "a batch of 8 does not fit input 'x', which has 16 samples");
    free(spec);
    assert_true(asprintf(&spec, "npy:x=%s,y=%s", x, label) > 0); /* "y" may be the labels */
    expect_feed(t, spec, 0, AMPC_OK, "");
    free(spec);
    assert_true(asprintf(&spec, "npy:points=%s,label=%s", x, label) > 0);
    expect_feed(t, spec, 0, AMPC_REJECTED, "the data have no field for input 'x', only: points, label");
    free(spec);
    assert_true(asprintf(&spec, "npy:x=%s,label=%s", label, label) > 0);
    expect_feed(t, spec, 0, AMPC_REJECTED, "does not fit input 'x'");
    free(spec);
}

TEST_SCRATCH(test_synthetic_fields)
{
    compile_options o = training_options(IR_f16);
    ir_module *m = training_module(t, &o, 0);
    rt_field *fields;
    size_t n;
    assert_ok(t, rt_loader_fields(ir_graph_find(m, "train_step"), NULL, t->d, &fields, &n));
    assert_int_equal(n, 2);
    assert_string_equal(fields[0].name, "x");
    assert_int_equal(fields[0].dims[0], 4);
    assert_int_equal(fields[1].rank, 0);
    assert_int_equal(fields[1].bound, 2); /* classes */
    free(fields);
    ir_module_free(m);
}

/* ---- evaluation ---- */

/* Every partition of the samples yields the same loss and accuracy, including a fixed batch with padding. */
TEST_SCRATCH(test_evaluation_counts_every_sample)
{
    static const int64_t batches[] = {1, 7, 40, 64, 0};
    compile_options o = training_options(IR_f16);
    o.level = PASS_O0;
    training r = training_open(t, &o, 40);
    rt_eval whole, part;
    assert_ok(t, rt_evaluate(r.s, r.m, r.data, &(rt_eval_options){.batch = 40}, t->d, &whole));
    assert_int_equal(whole.samples, 40);
    assert_true(isfinite(rt_eval_number(&whole, "loss")));
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        assert_ok(t, rt_evaluate(r.s, r.m, r.data, &(rt_eval_options){.batch = batches[i]}, t->d, &part));
        assert_float_equal(rt_eval_number(&part, "loss"), rt_eval_number(&whole, "loss"), 1e-5);
        assert_float_equal(rt_eval_number(&part, "accuracy"), rt_eval_number(&whole, "accuracy"), 0);
    }
    static const int64_t fixed[] = {16, 64};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        ir_module *m = training_module(t, &o, fixed[i]);
        rt_session *s = training_session(t, m);
        assert_ok(t, rt_evaluate(s, m, r.data, NULL, t->d, &part));
        assert_float_equal(rt_eval_number(&part, "loss"), rt_eval_number(&whole, "loss"), 1e-5);
        assert_float_equal(rt_eval_number(&part, "accuracy"), rt_eval_number(&whole, "accuracy"), 0);
        rt_session_close(s);
        ir_module_free(m);
    }
    training_close(&r);
}

TEST_SCRATCH(test_no_training_step)
{
    compile_options o = compile_options_default();
    training r = training_open(t, &o, ROWS);
    rt_trainer *trainer;
    rt_eval eval;
    assert_int_equal(rt_trainer_open(r.s, r.m, r.data, &few_steps, t->d, &trainer), AMPC_UNSUPPORTED);
    scratch_expect(t, "because it has no loss");
    assert_ok(t, rt_evaluate(r.s, r.m, r.data, NULL, t->d, &eval));
    assert_true(isnan(rt_eval_number(&eval, "loss")));
    assert_true(rt_eval_number(&eval, "accuracy") >= 0 && rt_eval_number(&eval, "accuracy") <= 1);
    training_close(&r);
}
