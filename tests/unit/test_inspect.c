/* test_inspect.c - observed runs, and what check and compare find in them. */
#include "tests/unit/inspect_models.h"
#include "tests/unit/training.h"

#include <stdlib.h>

TEST_SCRATCH(test_check) { check_faults(t, "cpu"); }
TEST_SCRATCH(test_compare) { compare_losses(t, "cpu"); }

/* ---- observing ----------------------------------------------------------------------------------- */

enum { ROWS = 16, STEPS = 3 };

static float points[ROWS][4];
static int64_t labels[ROWS];

static void make_inputs(rt_tensor *inputs)
{
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++) points[i][k] = 2 * philox_unit(philox_word(5, (uint64_t)k, (uint64_t)i)) - 1;
        labels[i] = points[i][0] > 0;
    }
    inputs[0] = (rt_tensor){.name = "x", .dtype = IR_f32, .rank = 2, .dims = {ROWS, 4}, .data = points};
    inputs[1] = (rt_tensor){.name = "label", .dtype = IR_i64, .rank = 1, .dims = {ROWS}, .data = labels};
}

/* Returns all storage after some training steps. */
static char *bits_after(scratch *t, rt_session *s, size_t *n)
{
    rt_tensor inputs[2];
    char *bits = NULL;
    make_inputs(inputs);
    for (int i = 0; i < STEPS; i++) assert_ok(t, rt_session_run(s, "train_step", inputs, 2, t->d));
    *n = 0;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        assert_ok(t, rt_session_read(s, i, t->d, &v));
        const size_t bytes = (size_t)rt_tensor_count(&v) * ir_dtype_size(v.dtype);
        bits = realloc(bits, *n + bytes + 1);
        memcpy(bits + *n, v.data, bytes);
        *n += bytes;
    }
    return bits;
}

static ampc_status count_value(void *user, const rt_observed *o, diag *d)
{
    (void)d;
    assert_non_null(o->tensor.data);
    assert_true(!o->node || o->node->out[o->output] == o->value);
    ++*(int *)user;
    return AMPC_OK;
}

TEST_SCRATCH(test_observing_changes_nothing)
{
    const compile_options o = training_options(IR_f16);
    ir_module *m = training_module(t, &o, 0);
    const rt_session_options plain = {.threads = 1, .no_fuse = true}, fused = {.threads = 1};
    char *bits[2];
    size_t n[2];
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        rt_session *s = NULL;
        assert_ok(t, rt_session_open(m, i ? &fused : &plain, t->d, &s));
        if (i) rt_session_observe(s, count_value, &seen);
        bits[i] = bits_after(t, s, &n[i]);
        rt_session_close(s);
    }
    assert_true(seen > STEPS * 40);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bits[0], bits[1], n[0]);
    free(bits[0]);
    free(bits[1]);
    ir_module_free(m);
}

static ampc_status stop_in_update(void *user, const rt_observed *o, diag *d)
{
    (void)user;
    if (!o->node || o->node->phase != IR_UPDATE || !ir_op_has(o->node->op, IR_UPDATES)) return AMPC_OK;
    return diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE, "stopped at %s", o->value->name);
}

TEST_SCRATCH(test_stopping_leaves_storage)
{
    const compile_options o = training_options(IR_f16);
    ir_module *m = training_module(t, &o, 0);
    rt_session *s = training_session(t, m);
    rt_tensor inputs[2], before, after;
    make_inputs(inputs);
    assert_ok(t, test_storage(s, "fc1.weight", t->d, &before));
    float copy[32];
    memcpy(copy, before.data, sizeof copy);
    rt_session_observe(s, stop_in_update, NULL);
    assert_int_equal(rt_session_run(s, "train_step", inputs, 2, t->d), AMPC_NUMERIC);
    scratch_expect(t, "stopped at");
    assert_ok(t, test_storage(s, "fc1.weight", t->d, &after));
    assert_memory_equal(after.data, copy, sizeof copy);
    rt_session_observe(s, NULL, NULL);
    assert_ok(t, rt_session_run(s, "train_step", inputs, 2, t->d));
    assert_ok(t, test_storage(s, "fc1.weight", t->d, &after));
    assert_memory_not_equal(after.data, copy, sizeof copy);
    rt_session_close(s);
    ir_module_free(m);
}

/* ---- numbers ------------------------------------------------------------------------------------- */

TEST(test_numbers)
{
    float v[] = {0, -2, NAN, INFINITY, 4, -INFINITY, 1, 0};
    const rt_tensor t = {.dtype = IR_f32, .rank = 1, .dims = {8}, .data = v};
    const rt_numbers n = rt_numbers_of(&t);
    assert_int_equal(n.count, 8);
    assert_int_equal(n.nan, 1);
    assert_int_equal(n.inf, 2);
    assert_int_equal(n.negative_inf, 1);
    assert_int_equal(n.zero, 2);
    assert_int_equal(n.first_bad, 2);
    assert_true(n.min == -2 && n.max == 4 && n.mean == 0.6);
    assert_true(rt_numbers_top(&n) == INFINITY && rt_numbers_bottom(&n) == -INFINITY && isnan(rt_numbers_mean(&n)));
    const rt_tensor empty = {.dtype = IR_f16, .rank = 1, .dims = {0}, .data = v};
    const rt_numbers none = rt_numbers_of(&empty);
    assert_true(rt_numbers_finite(&none) && isnan(none.max) && isnan(rt_numbers_top(&none)));
}
