/* test_crossing.c - checkpoints that continue with other options: another precision, another optimizer, a replaced
 * head, weights of another program. */
#include "runtime/files/safetensors.h"
#include "tests/unit/training.h"

#include <math.h>

enum { STEPS = 20, SEGMENTS = 4 };

typedef struct losses {
    double of[SEGMENTS * STEPS + 1]; /* of each step; the last is that of an evaluation */
    int count;
} losses;

static bool note_loss(void *user, const rt_step_record *step)
{
    losses *l = user;
    l->of[l->count++] = step->loss;
    return false;
}

static compile_options at(pass_level level, ir_dtype low)
{
    compile_options o = training_options(low);
    o.level = level;
    o.init_scale = 1024;
    return o;
}

/* Trains up to `steps` steps, continuing from the folder's checkpoint. */
static ampc_status train_to(scratch *t, training *r, int64_t steps, bool reset, losses *l)
{
    const rt_trainer_options how = {.batch = 32, .steps = steps, .lr = 0.02, .seed = 1};
    const rt_train_plan plan = {.checkpoint_dir = t->folder,
                                .keep = 9,
                                .resume = true,
                                .reset_optimizer = reset,
                                .on_step = note_loss,
                                .user = l};
    rt_trainer *trainer = NULL;
    assert_ok(t, rt_trainer_open(r->s, r->m, r->data, &how, t->d, &trainer));
    ampc_status status = rt_trainer_run(trainer, &plan, t->d);
    rt_trainer_close(trainer);
    return status;
}

/* The folder has x.npy and label.npy besides checkpoints. */
static void clear_checkpoints(scratch *t)
{
    for (int i = 1; i <= SEGMENTS; i++) {
        char name[40];
        snprintf(name, sizeof name, "ckpt-%010d.safetensors", i * STEPS);
        remove(scratch_path(t, name));
    }
}

static void run_segments(scratch *t, const compile_options *each, losses *l)
{
    l->count = 0;
    for (int i = 0; i < SEGMENTS; i++) {
        training r = training_open(t, &each[i], 512);
        assert_ok(t, train_to(t, &r, (int64_t)(i + 1) * STEPS, false, l));
        rt_eval eval;
        assert_ok(t, rt_evaluate(r.s, r.m, r.data, NULL, t->d, &eval));
        l->of[SEGMENTS * STEPS] = rt_eval_number(&eval, "loss");
        training_close(&r);
    }
    assert_int_equal(l->count, SEGMENTS * STEPS);
    clear_checkpoints(t);
}

/* Losses follow those of fp32: `compared` of them, with or without that of the evaluation. */
static void compare_precisions(scratch *t, const compile_options *o, int compared)
{
    const ir_dtype low[] = {IR_NO_DTYPE, IR_f16, IR_NO_DTYPE, IR_bf16};
    compile_options pure[SEGMENTS], mixed[SEGMENTS];
    losses expected, l;
    for (int i = 0; i < SEGMENTS; i++) {
        pure[i] = mixed[i] = *o;
        if (!low[i]) continue;
        mixed[i].level = PASS_O1;
        mixed[i].low = low[i];
    }
    run_segments(t, pure, &expected);
    run_segments(t, mixed, &l);
    for (int i = 0; i < compared; i++) {
        if (i < STEPS) assert_true(l.of[i] == expected.of[i]);
        if (fabs(l.of[i] - expected.of[i]) > 0.01 * expected.of[i])
            fail_msg("step %d: loss %g, in fp32 %g", i + 1, l.of[i], expected.of[i]);
    }
}

/* The gradient of fc1.bias is 0, since BatchNormalization follows. Adam makes steps of its rounding errors, which change
 * nothing but the mean that an evaluation expects, so its evaluation cannot be compared. */
TEST_SCRATCH(test_precisions)
{
    compile_options o = at(PASS_O0, IR_f16);
    compare_precisions(t, &o, SEGMENTS * STEPS);
    o.optimizer = "momentum,lr=0.02";
    o.ema = 0.9;
    compare_precisions(t, &o, SEGMENTS * STEPS + 1);
    o.accumulate = 2;
    o.clip_norm = 0.5;
    compare_precisions(t, &o, SEGMENTS * STEPS + 1);
}

/* ---- what is loaded ---- */

static double number_of(scratch *t, const training *r, ir_state_role role)
{
    double v = NAN;
    const ir_storage *s = ir_state_by_role(r->m, role);
    if (s) assert_ok(t, rt_session_get_number(r->s, s->name, t->d, &v));
    return v;
}

static void set_number(scratch *t, const training *r, ir_state_role role, double v)
{
    const ir_storage *s = ir_state_by_role(r->m, role);
    if (s) assert_ok(t, rt_session_set_number(r->s, s->name, v, t->d));
}

static bool is_scaler(const ir_storage *s)
{
    return s->kind == IR_STATE &&
           (s->role == IR_STATE_loss_scale || s->role == IR_STATE_good_steps || s->role == IR_STATE_bad_steps);
}

static bool is_of_window(const ir_storage *s)
{
    return s->kind == IR_STATE && s->role >= IR_STATE_grad_sum && s->role <= IR_STATE_overflow;
}

/* Asserts that every storage of `b` is that of `a`, except the scaler's, and sums of gradients, which are void between
 * steps. A moving average that `a` lacks is the parameter. */
static void expect_same(scratch *t, const training *a, const training *b)
{
    int compared = 0;
    const bool within = number_of(t, a, IR_STATE_micro_batches) > 0;
    for (int i = 0; i < rt_session_storage_count(b->s); i++) {
        rt_tensor x, y;
        const ir_storage *s = b->m->storage.items[i];
        if (s->kind == IR_CONST || is_scaler(s) || (is_of_window(s) && !within)) continue;
        assert_ok(t, rt_session_read(b->s, i, t->d, &y));
        x = training_storage(t, a->s, test_storage_find(a->s, s->name) < 0 ? s->of->name : s->name);
        size_t n = ir_dtype_size(y.dtype);
        for (int k = 0; k < y.rank; k++) n *= (size_t)y.dims[k];
        assert_memory_equal(x.data, y.data, n);
        compared++;
    }
    assert_true(compared > 20);
}

TEST_SCRATCH(test_nothing_but_the_scaler)
{
    compile_options all[] = {at(PASS_O0, IR_f16), at(PASS_O1, IR_f16), at(PASS_O1, IR_bf16)};
    const char *path = scratch_path(t, "a.safetensors");
    for (int i = 0; i < 3; i++) all[i].ema = 0.9;
    compile_options larger = all[1];
    larger.init_scale = 4096;
    larger.incr_every = 77;
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 4; to++) {
            const rt_run_state at_step = {.step = 12};
            training a = training_open(t, &all[from], 64);
            training b = training_open(t, to == 3 ? &larger : &all[to], 64);
            training_scramble(a.s, 0);
            if (number_of(t, &a, IR_STATE_loss_scale) == number_of(t, &a, IR_STATE_loss_scale))
                assert_ok(t, rt_session_set_number(a.s, ir_state_by_role(a.m, IR_STATE_loss_scale)->name, 64, t->d));
            training_scramble(b.s, 0x11);
            assert_ok(t, rt_checkpoint_write(a.s, a.m, &at_step, path, t->d));
            assert_ok(t, rt_checkpoint_read(b.s, b.m, path, &rt_checkpoint_all, t->d, NULL));
            expect_same(t, &a, &b);
            const double scale = number_of(t, &b, IR_STATE_loss_scale);
            if (to == 0) assert_true(isnan(scale));
            else if (from == 1 && to != 2) assert_true(scale == 64);          /* kept */
            else if (from == 2 && to == 2) assert_true(scale == 64);          /* the same module */
            else assert_true(scale == (to == 1 ? 1024 : to == 3 ? 4096 : 1)); /* initial */
            training_close(&a);
            training_close(&b);
        }
}

/* ---- averages and windows of micro-batches ---- */

/* Loads what `from` saves into a session of `to`; NULL is returned if that succeeds, or the message. */
static const char *cross(scratch *t, const compile_options *from, const compile_options *to, double micro_batches)
{
    static char message[512];
    const char *path = scratch_path(t, "a.safetensors");
    const rt_run_state run = {.step = 12};
    training a = training_open(t, from, 64), b = training_open(t, to, 64);
    training_scramble(a.s, 0);
    training_scramble(b.s, 0x11);
    set_number(t, &a, IR_STATE_micro_batches, micro_batches);
    set_number(t, &a, IR_STATE_loss_scale, 64);
    assert_ok(t, rt_checkpoint_write(a.s, a.m, &run, path, t->d));
    const ampc_status status = rt_checkpoint_read(b.s, b.m, path, &rt_checkpoint_all, t->d, NULL);
    snprintf(message, sizeof message, "%s", diag_first_error(t->d));
    if (status == AMPC_OK) expect_same(t, &a, &b);
    if (status == AMPC_OK && to->accumulate) assert_true(number_of(t, &b, IR_STATE_micro_batches) == micro_batches);
    diag_clear(t->d);
    training_close(&a);
    training_close(&b);
    return status == AMPC_OK ? NULL : message;
}

TEST_SCRATCH(test_averages)
{
    compile_options without = at(PASS_O1, IR_f16), with = without;
    with.ema = 0.9;
    assert_null(cross(t, &with, &without, 0));
    assert_null(cross(t, &without, &with, 0));
}

/* Sums of gradients are scaled, so that only the same options continue a window. Between windows they are void. */
TEST_SCRATCH(test_windows)
{
    static const char *const refusal = "saved within a window of micro-batches";
    compile_options f32 = at(PASS_O0, IR_f16), f16 = at(PASS_O1, IR_f16), window = f16, more = f16, window32 = f32;
    window.accumulate = window32.accumulate = 3;
    more.accumulate = 8;
    assert_null(cross(t, &f16, &window, 0));
    assert_null(cross(t, &f32, &window, 0));
    assert_null(cross(t, &window, &f16, 0));
    assert_null(cross(t, &window, &f32, 0));
    assert_null(cross(t, &window, &window32, 0));
    assert_null(cross(t, &window, &more, 0));
    assert_null(cross(t, &window, &more, 2));
    assert_non_null(strstr(cross(t, &window, &window32, 2), refusal));
    assert_non_null(strstr(cross(t, &window32, &window, 2), refusal));
    assert_non_null(strstr(cross(t, &window, &f16, 2), refusal));
}

/* ---- another optimizer ---- */

TEST_SCRATCH(test_optimizers)
{
    compile_options adam = at(PASS_O1, IR_f16), momentum = adam, decay = adam;
    losses l = {.count = 0};
    momentum.optimizer = "momentum,lr=0.02";
    decay.optimizer = "adamw,lr=0.02,weight_decay=0.1";
    training a = training_open(t, &adam, 512), b = training_open(t, &momentum, 512), c = training_open(t, &decay, 512);
    assert_ok(t, train_to(t, &a, STEPS, false, &l));
    assert_int_equal(train_to(t, &b, 2 * STEPS, false, &l), AMPC_REJECTED);
    scratch_expect(t, "another optimizer: it was adamw,");
    diag_clear(t->d);
    assert_ok(t, train_to(t, &b, STEPS + 5, true, &l));
    assert_true(number_of(t, &b, IR_STATE_step) == 5);
    diag_clear(t->d);
    remove(scratch_path(t, "ckpt-0000000025.safetensors"));
    assert_ok(t, train_to(t, &c, STEPS + 5, false, &l)); /* the same state, with a warning */
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 1); /* the optimizer; the longer schedule is constant */
    assert_true(number_of(t, &c, IR_STATE_step) == STEPS + 5);
    remove(scratch_path(t, "ckpt-0000000020.safetensors"));
    remove(scratch_path(t, "ckpt-0000000025.safetensors"));
    training_close(&a);
    training_close(&b);
    training_close(&c);
}

/* A reset of the optimizer does not restart the schedule. */
TEST_SCRATCH(test_schedule_after_reset)
{
    const char *path = scratch_path(t, "a.safetensors");
    const rt_checkpoint_how reset = {.part = RT_CHECKPOINT_ALL, .reset_optimizer = true};
    compile_options o = at(PASS_O0, IR_f16);
    training a = training_open(t, &o, 64);
    rt_run_state run = {.step = 12};
    const ir_storage *step = ir_state_by_role(a.m, IR_STATE_step);
    assert_ok(t, rt_session_set_number(a.s, step->name, 12, t->d));
    for (int i = 1; i <= 2; i++) {
        assert_ok(t, rt_checkpoint_write(a.s, a.m, &run, path, t->d));
        assert_ok(t, rt_checkpoint_read(a.s, a.m, path, &reset, t->d, &run));
        assert_int_equal(run.before_reset, i == 1 ? 12 : 15);
        assert_true(number_of(t, &a, IR_STATE_step) == 0);
        rt_tensor m = training_storage(t, a.s, "opt.m.fc1.weight");
        for (int k = 0; k < 32; k++) assert_true(((const float *)m.data)[k] == 0);
        assert_ok(t, rt_session_set_number(a.s, step->name, 3, t->d));
    }
    training_close(&a);
}

/* The memory of a plateau is exact; impossible counts are refused. */
TEST_SCRATCH(test_plateau)
{
    const char *path = scratch_path(t, "a.safetensors");
    compile_options o = at(PASS_O0, IR_f16);
    training a = training_open(t, &o, 64);
    rt_run_state run = {.step = 12, .plateau = {0.1, 1.0 / 3, 2, 5, 1, 4, 0.7}}, back;
    assert_ok(t, rt_checkpoint_write(a.s, a.m, &run, path, t->d));
    assert_ok(t, rt_checkpoint_read(a.s, a.m, path, &rt_checkpoint_all, t->d, &back));
    assert_memory_equal(&back.plateau, &run.plateau, sizeof run.plateau);
    run.plateau.steps = INT64_MAX;
    assert_ok(t, rt_checkpoint_write(a.s, a.m, &run, path, t->d));
    assert_int_equal(rt_checkpoint_read(a.s, a.m, path, &rt_checkpoint_all, t->d, &back), AMPC_REJECTED);
    scratch_expect(t, "'plateau'");
    diag_clear(t->d);
    run = (rt_run_state){.before_reset = INT64_MAX};
    assert_ok(t, rt_checkpoint_write(a.s, a.m, &run, path, t->d));
    assert_int_equal(rt_checkpoint_read(a.s, a.m, path, &rt_checkpoint_all, t->d, &back), AMPC_REJECTED);
    scratch_expect(t, "'before_reset'");
    diag_clear(t->d);
    training_close(&a);
}

/* ---- fine-tuning ---- */

/* Writes a file as another program does: names of the model, no hashes. fc1.weight has the type `first`, 0.25 * i as
 * element i, and `last` as its last one. */
static void write_foreign(const char *path, ir_dtype first, double last, int64_t classes)
{
    static double w1[32];
    static float b1[8], w2[64], b2[8], scale[8], bias[8], mean[8], var[8];
    const struct {
        const char *name;
        int64_t dims[2];
        const void *data;
    } rows[] = {
        {"fc1.weight", {4, 8}, w1},     {"fc1.bias", {8, 0}, b1},    {"fc2.weight", {8, classes}, w2},
        {"fc2.bias", {classes, 0}, b2}, {"bn.scale", {8, 0}, scale}, {"bn.bias", {8, 0}, bias},
        {"bn.mean", {8, 0}, mean},      {"bn.var", {8, 0}, var},
    };
    char header[2048] = "{\"__metadata__\":{\"format\":\"pt\"}", data[4096];
    size_t at = 0, n = strlen(header);
    for (int i = 0; i < 32; i++) w1[i] = i < 31 ? 0.25 * i : last;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ir_dtype from = rows[i].data == w1 ? IR_f64 : IR_f32, type = rows[i].data == w1 ? first : IR_f32;
        const size_t elements = (size_t)rows[i].dims[0] * (size_t)(rows[i].dims[1] ? rows[i].dims[1] : 1);
        const size_t bytes = elements * ir_dtype_size(type);
        char shape[32];
        if (rows[i].dims[1]) snprintf(shape, sizeof shape, "%d,%d", (int)rows[i].dims[0], (int)rows[i].dims[1]);
        else snprintf(shape, sizeof shape, "%d", (int)rows[i].dims[0]);
        ir_convert(type, data + at, from, rows[i].data, elements);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", rows[i].name,
                              type == IR_f16   ? "F16"
                              : type == IR_f64 ? "F64"
                                               : "F32",
                              shape, at, at + bytes);
        at += bytes;
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    const uint64_t length = n;
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    fwrite(&length, sizeof length, 1, f);
    fwrite(header, 1, n, f);
    fwrite(data, 1, at, f);
    assert_int_equal(fclose(f), 0);
}

TEST_SCRATCH(test_foreign_weights)
{
    const char *path = scratch_path(t, "pytorch.safetensors");
    compile_options o = at(PASS_O1, IR_f16);
    training r = training_open(t, &o, 64);
    for (int k = 0; k < 3; k++) {
        write_foreign(path, (ir_dtype[]){IR_f16, IR_f32, IR_f64}[k], 7.75, 2);
        training_scramble(r.s, 0x11);
        assert_ok(t, rt_checkpoint_read(r.s, r.m, path, &rt_checkpoint_weights, t->d, NULL));
        rt_tensor w = training_storage(t, r.s, "fc1.weight");
        for (int i = 0; i < 32; i++) assert_true(((const float *)w.data)[i] == 0.25f * (float)i);
        w = training_storage(t, r.s, "lr");
        assert_memory_equal(w.data, "\x11\x11\x11\x11", 4);
    }
    assert_int_equal(rt_checkpoint_read(r.s, r.m, path, &rt_checkpoint_all, t->d, NULL), AMPC_REJECTED);
    diag_clear(t->d);
    training_close(&r);
}

/* A number that f32 does not have is refused before any parameter changes; infinities are kept. */
TEST_SCRATCH(test_foreign_range)
{
    static const struct {
        double number;
        const char *message; /* NULL: accepted */
    } rows[] = {
        {3.4028235e38, NULL},
        {INFINITY, NULL},
        {-1e-300, NULL}, /* becomes 0 */
        {1e300, "pytorch.safetensors: error: fc1.weight: element 31 is 1e+300, which is beyond the range of f32"},
        {-3.5e38, "pytorch.safetensors: error: fc1.weight: element 31 is -3.5e+38, which is beyond the range of f32"},
    };
    const char *path = scratch_path(t, "pytorch.safetensors");
    compile_options o = at(PASS_O1, IR_f16);
    training r = training_open(t, &o, 64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        write_foreign(path, IR_f64, rows[i].number, 2);
        training_scramble(r.s, 0x11);
        char *before = training_bytes(r.s, &n);
        const ampc_status s = rt_checkpoint_read(r.s, r.m, path, &rt_checkpoint_weights, t->d, NULL);
        if (rows[i].message) {
            assert_int_equal(s, AMPC_REJECTED);
            scratch_expect(t, rows[i].message);
            char *after = training_bytes(r.s, &n);
            assert_memory_equal(before, after, n);
            free(after);
        } else {
            assert_ok(t, s);
            assert_true(((const float *)training_storage(t, r.s, "fc1.weight").data)[31] == (float)rows[i].number);
        }
        free(before);
    }
    training_close(&r);
}

TEST_SCRATCH(test_new_head)
{
    static const char *const globs[] = {"fc2.*", "fc3.*"};
    const char *path = scratch_path(t, "pytorch.safetensors");
    compile_options o = at(PASS_O1, IR_f16);
    const rt_checkpoint_how head = {RT_CHECKPOINT_WEIGHTS, .reinit = globs, .n_reinit = 1};
    const rt_checkpoint_how unknown = {RT_CHECKPOINT_WEIGHTS, .reinit = globs, .n_reinit = 2};
    training r = training_open(t, &o, 64), same = training_open(t, &o, 64);
    write_foreign(path, IR_f32, 7.75, 7); /* the model has 2 classes */
    assert_int_equal(rt_checkpoint_read(r.s, r.m, path, &rt_checkpoint_weights, t->d, NULL), AMPC_REJECTED);
    scratch_expect(t, "the file has f32[8,7], the model f32[8,2]");
    diag_clear(t->d);
    assert_int_equal(rt_checkpoint_read(r.s, r.m, path, &unknown, t->d, NULL), AMPC_USAGE);
    scratch_expect(t, "'fc3.*'");
    diag_clear(t->d);
    assert_ok(t, rt_checkpoint_read(r.s, r.m, path, &head, t->d, NULL));
    rt_tensor a = training_storage(t, r.s, "fc2.weight"), b = training_storage(t, same.s, "fc2.weight");
    assert_memory_equal(a.data, b.data, 2 * 8 * sizeof(float));
    a = training_storage(t, r.s, "fc1.weight");
    assert_true(((const float *)a.data)[31] == 7.75f);
    training_close(&r);
    training_close(&same);
}
