/* test_api_accumulate.c - the training step in three calls: order of the calls, results, checkpoints in between. */
#include "tests/unit/api_fixture.h"

#include <math.h>

static const ampc_compile_options windows = {
    .struct_size = sizeof windows, .loss = "ce", .optimizer = "adamw,lr=0.02", .accumulate = 3};

/* Opens f->fresh; the inputs become points whose first coordinate decides the class. */
static ampc_session *open_windows(fixture *f, const ampc_compile_options *o)
{
    ampc_session *s;
    float *x = ampc_tensor_data(f->in[0]);
    int64_t *label = ampc_tensor_data(f->in[1]);
    for (int i = 0; i < 128; i++) x[i] = (float)(i * 37 % 19) / 9 - 1;
    for (int i = 0; i < 32; i++) label[i] = x[4 * i] > 0;
    OK(f->c, ampc_module_compile(f->fresh, o));
    OK(f->c, ampc_session_open(f->fresh, &one_thread, &s));
    return s;
}

TEST_API(test_a_step_in_three_calls)
{
    ampc_session *s = open_windows(f, &windows);
    ampc_step_result r = {.struct_size = sizeof r};
    double loss, sum, first = 0, norm;
    int found = 1;
    for (int i = 0; i < 60; i++) {
        sum = 0;
        for (int k = 0; k < 3; k++, sum += loss) OK(f->c, ampc_accumulate(s, f->in, 2, &loss));
        OK(f->c, ampc_unscale(s, &norm, &found));
        OK(f->c, ampc_apply(s, &r));
        assert_true(norm > 0 && !found && !r.was_skipped && isnan(r.grad_norm));
        assert_true(fabs(r.loss - sum / 3) <= 1e-5);
        assert_int_equal(r.step, i + 1);
        if (i == 0) first = r.loss;
    }
    assert_true(r.loss < 0.5 * first);
    ampc_session_free(s);
}

TEST_API(test_order_of_calls)
{
    ampc_session *s = open_windows(f, &windows);
    expect_failure(ampc_apply(s, NULL), AMPC_USAGE, f->c, "ampc_accumulate first");
    expect_failure(ampc_unscale(s, NULL, NULL), AMPC_USAGE, f->c, "ampc_accumulate first");
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    expect_failure(ampc_train_step(s, f->in, 2, NULL), AMPC_USAGE, f->c, "ampc_apply");
    OK(f->c, ampc_unscale(s, NULL, NULL));
    expect_failure(ampc_unscale(s, NULL, NULL), AMPC_USAGE, f->c, "unscaled already");
    expect_failure(ampc_accumulate(s, f->in, 2, NULL), AMPC_USAGE, f->c, "unscaled already");
    expect_failure(ampc_session_run(s, "apply", f->in, 0), AMPC_USAGE, f->c, "ampc_apply");
    OK(f->c, ampc_apply(s, NULL));
    expect_failure(ampc_apply(s, NULL), AMPC_USAGE, f->c, "ampc_accumulate first");
    OK(f->c, ampc_train_step(s, f->in, 2, NULL));
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    OK(f->c, ampc_apply(s, NULL));
    ampc_session_free(s);
}

/* Setting the number of micro-batches to 0 ends a window in every place of it. */
TEST_API(test_ended_by_hand)
{
    double norm, again;
    ampc_session *s = open_windows(f, &windows);
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    OK(f->c, ampc_unscale(s, &norm, NULL));
    OK(f->c, ampc_session_set_number(s, "state/micro_batches", 0));
    expect_failure(ampc_apply(s, NULL), AMPC_USAGE, f->c, "ampc_accumulate first");
    expect_failure(ampc_unscale(s, NULL, NULL), AMPC_USAGE, f->c, "ampc_accumulate first");
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    OK(f->c, ampc_unscale(s, &again, NULL));
    assert_true(again > 0.5 * norm && again < 2 * norm); /* another mask of Dropout, the same scale */
    OK(f->c, ampc_session_set_number(s, "state/micro_batches", 0));
    OK(f->c, ampc_session_set_number(s, "state/unscaled", 1)); /* of no window */
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    OK(f->c, ampc_unscale(s, &again, NULL));
    assert_true(again > 0.5 * norm && again < 2 * norm); /* another mask of Dropout, the same scale */
    OK(f->c, ampc_apply(s, NULL));
    ampc_session_free(s);
}

TEST_API(test_values_of_states)
{
    static const struct {
        const char *key;
        double value;
    } refused[] = {{"state/unscaled", 7},        {"state/unscaled", -1},     {"state/unscaled", 0.5},
                   {"state/overflow", 2},        {"state/unscaled", NAN},    {"state/micro_batches", -1},
                   {"state/micro_batches", 1.5}, {"state/good_steps", 0.25}, {"state/step", 2.5}};
    ampc_session *s = open_windows(f, &windows);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ampc_tensor *t;
        double before, after;
        OK(f->c, ampc_session_get_number(s, refused[i].key, &before));
        expect_failure(ampc_session_set_number(s, refused[i].key, refused[i].value), AMPC_USAGE, f->c, refused[i].key);
        OK(f->c, ampc_tensor_create(f->c, "v", AMPC_F64, 0, NULL, &refused[i].value, &t));
        expect_failure(ampc_session_set(s, refused[i].key, t), AMPC_USAGE, f->c, refused[i].key);
        ampc_tensor_free(t);
        OK(f->c, ampc_session_get_number(s, refused[i].key, &after));
        assert_float_equal(before, after, 0);
    }
    ampc_session_free(s);
}

TEST_API(test_modules_without_it)
{
    expect_failure(ampc_accumulate(f->s, f->in, 2, NULL), AMPC_UNSUPPORTED, f->c, "compile it");
    expect_failure(ampc_unscale(f->s, NULL, NULL), AMPC_UNSUPPORTED, f->c, "compile it");
    expect_failure(ampc_apply(f->s, NULL), AMPC_UNSUPPORTED, f->c, "compile it");
}

/* The norm is reported without being selected, because clipping computes it. */
TEST_API(test_the_clipped_norm_is_reported)
{
    ampc_compile_options o = windows;
    ampc_step_result r = {.struct_size = sizeof r};
    double norm;
    o.clip_norm = 0.01;
    ampc_session *s = open_windows(f, &o);
    OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
    OK(f->c, ampc_unscale(s, &norm, NULL));
    OK(f->c, ampc_apply(s, &r));
    assert_true(fabs(r.grad_norm - norm) <= 1e-6 * norm);
    assert_true(norm > 0.01);
    OK(f->c, ampc_train_step(s, f->in, 2, &r));
    assert_true(r.grad_norm > 0.01);
    ampc_session_free(s);
}

static void read_all(const fixture *f, ampc_session *s, char *to, size_t size)
{
    size_t used = 0;
    const char *key;
    for (size_t i = 0; (key = ampc_session_key(s, i)); i++) {
        ampc_tensor *t;
        OK(f->c, ampc_session_get(s, key, &t));
        assert_true(used + ampc_tensor_bytes(t) <= size);
        memcpy(to + used, ampc_tensor_data(t), ampc_tensor_bytes(t));
        used += ampc_tensor_bytes(t);
        ampc_tensor_free(t);
    }
    assert_true(used > 0);
}

/* Runs calls first .. last-1 of a training in which every window is a, a, a, unscale, apply. */
static void run_calls(const fixture *f, ampc_session *s, int first, int last)
{
    for (int i = first; i < last; i++) {
        if (i % 5 < 3) OK(f->c, ampc_accumulate(s, f->in, 2, NULL));
        else if (i % 5 == 3) OK(f->c, ampc_unscale(s, NULL, NULL));
        else OK(f->c, ampc_apply(s, NULL));
    }
}

/* A checkpoint saved at any place of a window continues with the same bits. */
TEST_API(test_checkpoints_within_a_window)
{
    enum { CALLS = 20, SIZE = 1 << 16 };
    static char whole[SIZE], resumed[SIZE];
    ampc_session *s = open_windows(f, &windows), *other;
    char start[80];
    snprintf(start, sizeof start, "%s.start", f->path);
    OK(f->c, ampc_checkpoint_save(s, start, NULL));
    run_calls(f, s, 0, CALLS);
    read_all(f, s, whole, SIZE);
    for (int cut = 1; cut < CALLS; cut++) {
        OK(f->c, ampc_checkpoint_load(s, start, NULL));
        run_calls(f, s, 0, cut);
        OK(f->c, ampc_checkpoint_save(s, f->path, NULL));
        OK(f->c, ampc_session_open(f->fresh, &one_thread, &other));
        OK(f->c, ampc_checkpoint_load(other, f->path, NULL));
        run_calls(f, other, cut, CALLS);
        read_all(f, other, resumed, SIZE);
        assert_memory_equal(whole, resumed, SIZE);
        ampc_session_free(other);
    }
    unlink(start);
    ampc_session_free(s);
}
