/* test_windows.c - windows of micro-batches on the CUDA backend: the same bits however slow the device is, for a window of
 * one those of a training step, and an overflow in one micro-batch skips the window. */
#include "tests/cuda/trained.h"

#include <math.h>

enum { STEPS = 4, MICRO_BATCHES = 3, SIZE = 1 << 16 };

typedef struct outcome {
    unsigned char bytes[SIZE]; /* parameters, slots and states except pending ones */
    size_t n;
    double skipped, norm;
} outcome;

static ir_module *accumulating(scratch *t)
{
    compile_options o = training_options(IR_f16);
    o.accumulate = MICRO_BATCHES;
    o.clip_norm = 0.1;
    return training_module(t, &o, 0);
}

static bool is_pending(const ir_storage *s)
{
    return s->role == IR_STATE_loss_sum || s->role == IR_STATE_grad_sum || s->role == IR_STATE_next;
}

static void read_all(scratch *t, const ir_module *m, rt_session *s, outcome *o)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        if (is_pending(m->storage.items[i])) continue;
        assert_ok(t, rt_session_read(s, i, t->d, &v));
        size_t size = ir_dtype_size(v.dtype);
        for (int k = 0; k < v.rank; k++) size *= (size_t)v.dims[k];
        assert_true(o->n + size <= SIZE);
        memcpy(o->bytes + o->n, v.data, size);
        o->n += size;
    }
}

static double number(scratch *t, rt_session *s, const char *name)
{
    const rt_tensor *v = rt_session_output(s, name);
    assert_ok(t, rt_session_fetched(s, t->d));
    assert_non_null(v);
    return ir_load_f64(v->dtype, v->data);
}

/* Runs windows of `batches` micro-batches; 0: runs of @train_step. Micro-batch 2 of step `overflow` overflows. */
static void train(scratch *t, const ir_module *m, int batches, int overflow, outcome *o)
{
    rt_session *s;
    rt_tensor inputs[2];
    *o = (outcome){.n = 0};
    make_inputs(inputs);
    assert_ok(t, rt_session_open(m, &on_cuda, t->d, &s));
    for (int i = 0; i < STEPS; i++) {
        move_points(i);
        for (int k = 0; k < (batches ? batches : 1); k++) {
            const float kept = points[3][1];
            if (i == overflow && k == 2) points[3][1] = 1e30f;
            assert_ok(t, rt_session_run(s, batches ? "accumulate" : "train_step", inputs, 2, t->d));
            points[3][1] = kept;
        }
        if (batches) assert_ok(t, rt_session_run(s, "apply", NULL, 0, t->d));
        o->skipped += number(t, s, "found_inf");
        o->norm = number(t, s, "grad_norm");
        assert_true(batches != 1 || isfinite(number(t, s, "loss")));
    }
    move_points(0);
    read_all(t, m, s, o);
    rt_session_close(s);
    expect_nothing_left("closed");
}

static void compare(const outcome *a, const outcome *b, const char *what)
{
    if (a->n != b->n || memcmp(a->bytes, b->bytes, a->n) != 0) fail_msg("%s: a different result", what);
}

TEST_SCRATCH(windows_are_reproducible)
{
    static const long modes[] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2, 3};
    static outcome first, other;
    ir_module *m = accumulating(t);
    for (int i = 0; i < 5; i++) {
        begin(modes[i]);
        train(t, m, MICRO_BATCHES, 2, i ? &other : &first);
        if (i) compare(&first, &other, "another order");
    }
    assert_true(first.skipped == 1 && first.norm > 0.1);
    ir_module_free(m);
}

TEST_SCRATCH(a_window_of_one_is_a_step)
{
    static outcome window, step;
    ir_module *m = accumulating(t);
    begin(DOUBLE_EAGER);
    train(t, m, 1, -1, &window);
    begin(DOUBLE_EAGER);
    train(t, m, 0, -1, &step);
    compare(&window, &step, "a window of one");
    assert_true(window.skipped == 0);
    ir_module_free(m);
}

TEST_GROUP(group_setup, group_teardown)
