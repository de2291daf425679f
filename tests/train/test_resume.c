/* test_resume.c - a training of 200 steps with all kinds of state, resumed after each of its steps and at each place
 * within its windows of micro-batches: fp16 with a loss scale that overflows now and then, BatchNormalization, Dropout,
 * accumulation, clipping, moving averages, a schedule.
 *
 * A new session loads each checkpoint of the uninterrupted run, continues for a few steps and saves. The file must have
 * the same bytes as the one that the uninterrupted run saved there. By induction, a run resumed anywhere is then equal
 * at every later step; a state outside of the files would have to be equal for these few steps and differ later, for
 * which some of the resumed runs go to the end. */
#include "tests/data.h"
#include "tests/unit/api_calls.h"

#include <math.h>

enum { STEPS = 200, MICRO_BATCHES = 3, BATCH = 16, ROWS = 160, AHEAD = 2, TO_THE_END = 50 };

typedef struct runs {
    scratch *whole, *cut; /* folders of the uninterrupted run, with the data, and of a resumed one */
    ampc_context *c;
    ampc_module *m;
} runs;

static const ampc_compile_options everything = {.struct_size = sizeof everything,
                                                .loss = "ce",
                                                .optimizer = "adamw,lr=0.02",
                                                .init_loss_scaling = 0x1p24,
                                                .incr_every_n_steps = 5,
                                                .accumulate = MICRO_BATCHES,
                                                .clip_norm = 0.5,
                                                .ema = 0.98};

static int close_runs(void **state)
{
    runs *r = *state;
    void *whole = r->whole, *cut = r->cut;
    ampc_module_free(r->m);
    ampc_context_free(r->c);
    return scratch_teardown(&whole) | scratch_teardown(&cut);
}

static int open_runs(void **state)
{
    static runs r;
    void *whole, *cut;
    if (scratch_setup_in_memory(&whole) || scratch_setup_in_memory(&cut)) return -1;
    r = (runs){.whole = whole, .cut = cut};
    *state = &r;
    return ampc_context_create(NULL, &r.c) || ampc_module_import(r.c, MLP, NULL, 0, &r.m) ||
           ampc_module_compile(r.m, &everything);
}

static ampc_session *open_session(const runs *r)
{
    ampc_session *s;
    OK(r->c, ampc_session_open(r->m, &one_thread, &s));
    return s;
}

/* Asserts that a file has the same bytes in both folders. */
static void compare_file(const runs *r, const char *name)
{
    size_t n, m;
    char *expected = scratch_read(r->whole, name, &n), *have = scratch_read(r->cut, name, &m);
    if (n != m || memcmp(expected, have, n) != 0) fail_msg("%s differs", name);
    free(expected);
    free(have);
}

/* ---- ampc_train ------------------------------------------------------------------------------------- */

/* The steps of the uninterrupted run, or those that a resumed run must repeat. */
typedef struct trace {
    ampc_step_result step[STEPS + 1];
    int64_t last, overflows;
    bool repeats;
} trace;

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static int follow(void *user, const ampc_step_result *now)
{
    trace *t = user;
    ampc_step_result *step = &t->step[now->step];
    if (t->repeats) {
        assert_true(now->loss == step->loss && now->lr == step->lr && now->loss_scale == step->loss_scale);
        assert_true(now->epoch == step->epoch && same(now->grad_norm, step->grad_norm));
        assert_true(now->skipped == step->skipped && now->was_skipped == step->was_skipped);
    }
    *step = *now;
    t->overflows += now->was_skipped;
    return now->step == t->last;
}

/* The sign of the first coordinate decides the class. */
static const char *write_data(const runs *r)
{
    static char spec[256];
    float x[ROWS][4];
    int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = (float)((i * 4 + k) * 37 % 101) / 50 - 1;
        label[i] = x[i][0] > 0;
    }
    const rt_array points = {.dtype = IR_f32, .rank = 2, .dims = {ROWS, 4}, .bytes = sizeof x, .data = x};
    const rt_array labels = {.dtype = IR_i64, .rank = 1, .dims = {ROWS}, .bytes = sizeof label, .data = label};
    assert_int_equal(npy_write(scratch_path(r->whole, "x.npy"), &points, r->whole->d), AMPC_OK);
    assert_int_equal(npy_write(scratch_path(r->whole, "label.npy"), &labels, r->whole->d), AMPC_OK);
    snprintf(spec, sizeof spec, "npy:x=%s,label=%s", scratch_path(r->whole, "x.npy"),
             scratch_path(r->whole, "label.npy"));
    return spec;
}

static const char *checkpoint_name(int64_t step)
{
    static char name[40];
    snprintf(name, sizeof name, "ckpt-%010d.safetensors", (int)step);
    return name;
}

static void train(const runs *r, ampc_train_options *o, const char *folder, trace *t)
{
    ampc_session *s = open_session(r);
    o->checkpoint_dir = folder;
    o->user = t;
    OK(r->c, ampc_train(s, o));
    ampc_session_free(s);
}

/* Resumes after step k, up to step k + ahead. */
static void resume(const runs *r, const ampc_train_options *o, trace *t, int k, int ahead)
{
    ampc_train_options resumed = *o;
    const char *from = scratch_path(r->cut, checkpoint_name(k));
    resumed.resume = 1;
    resumed.save_every = 0;
    t->last = k + ahead < STEPS ? k + ahead : STEPS;
    assert_int_equal(link(scratch_path(r->whole, checkpoint_name(k)), from), 0);
    train(r, &resumed, r->cut->folder, t);
    compare_file(r, checkpoint_name(t->last));
    scratch_clear(r->cut->folder);
}

static void resume_each_step(const runs *r, const char *schedule)
{
    trace t = {.last = STEPS};
    ampc_train_options o = {.struct_size = sizeof o,
                            .data = write_data(r),
                            .steps = STEPS,
                            .batch = BATCH,
                            .lr_schedule = schedule,
                            .seed = 3,
                            .save_every = 1,
                            .keep = STEPS + 1,
                            .progress = follow};
    train(r, &o, r->whole->folder, &t);
    assert_true(t.overflows > 10 && t.overflows < STEPS / 4);
    assert_true(t.step[STEPS].loss < t.step[1].loss);
    t.repeats = true;
    for (int k = 1; k < STEPS; k++) resume(r, &o, &t, k, k % TO_THE_END == 1 ? STEPS : AHEAD);
}

#define TEST_RESUME(name) TEST_WITH(open_runs, close_runs, const runs *r, name)

TEST_RESUME(test_each_step) { resume_each_step(r, "one-cycle,steps=150,warmup=20;constant,lr=1e-3"); }

TEST_RESUME(test_each_step_of_a_plateau) { resume_each_step(r, "plateau,every=7,patience=1"); }

/* ---- micro-batches ---------------------------------------------------------------------------------- */

enum { CALLS = STEPS * (MICRO_BATCHES + 2) };

static void accumulate(const runs *r, ampc_session *s, int batch)
{
    const int64_t dims[] = {BATCH, 4};
    float x[BATCH][4];
    int64_t label[BATCH];
    ampc_tensor *in[2];
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = (float)(((batch * BATCH + i) * 4 + k) * 37 % 101) / 50 - 1;
        label[i] = x[i][0] > 0;
    }
    OK(r->c, ampc_tensor_create(r->c, "x", AMPC_F32, 2, dims, x, &in[0]));
    OK(r->c, ampc_tensor_create(r->c, "label", AMPC_I64, 1, dims, label, &in[1]));
    OK(r->c, ampc_accumulate(s, in, 2, NULL));
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
}

/* Updates with the rate of the schedule, and returns whether the step was skipped. */
static bool apply(const runs *r, ampc_session *s)
{
    double accepted, rate;
    ampc_step_result step = {.struct_size = sizeof step};
    OK(r->c, ampc_session_get_number(s, "state/step", &accepted));
    OK(r->c, ampc_schedule_rate(r->c, "cosine,warmup=20", 0.02, STEPS, (int64_t)accepted, &rate));
    OK(r->c, ampc_session_set_number(s, "state/lr", rate));
    OK(r->c, ampc_apply(s, &step));
    return step.was_skipped;
}

/* Call `number` of a training whose steps are a, a, a, unscale, apply; every third step is without unscale. */
static bool make_call(const runs *r, ampc_session *s, int number)
{
    const int step = number / (MICRO_BATCHES + 2), place = number % (MICRO_BATCHES + 2);
    if (place < MICRO_BATCHES) accumulate(r, s, step * MICRO_BATCHES + place);
    else if (place > MICRO_BATCHES) return apply(r, s);
    else if (step % 3) OK(r->c, ampc_unscale(s, NULL, NULL));
    return false;
}

static const char *call_name(int number)
{
    static char name[40];
    snprintf(name, sizeof name, "%04d.safetensors", number);
    return name;
}

static void save(const runs *r, ampc_session *s, scratch *folder, int number)
{
    const ampc_position position = {.seed = 1, .batch = (uint64_t)number};
    OK(r->c, ampc_checkpoint_save(s, scratch_path(folder, call_name(number)), &position));
}

/* Loads the state before call `number`, and makes calls up to `end`. */
static void resume_call(const runs *r, int number, int end)
{
    ampc_session *s = open_session(r);
    ampc_position position;
    OK(r->c, ampc_checkpoint_load(s, scratch_path(r->whole, call_name(number)), &position));
    assert_int_equal(position.batch, number);
    for (int i = number; i < end; i++) make_call(r, s, i);
    save(r, s, r->cut, end);
    compare_file(r, call_name(end));
    scratch_clear(r->cut->folder);
    ampc_session_free(s);
}

TEST_RESUME(test_each_micro_batch)
{
    ampc_session *s = open_session(r);
    int overflows = 0;
    for (int i = 0; i < CALLS; i++) {
        save(r, s, r->whole, i);
        overflows += make_call(r, s, i);
    }
    save(r, s, r->whole, CALLS);
    ampc_session_free(s);
    assert_true(overflows > 10 && overflows < STEPS / 4);
    for (int i = 1; i < CALLS; i++) {
        const int end = i % (5 * TO_THE_END) == 3 ? CALLS : i + AHEAD + 1;
        resume_call(r, i, end < CALLS ? end : CALLS);
    }
}
