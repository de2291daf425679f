/* test_session_outputs.c - only selected outputs are computed, and plans of selections are cached. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"
#include "tests/unit/session_fixture.h"

static const char selecting[] = "state @s : f32[2] = [1, 2]\n"
                                "graph @g(@x : f32[2]) {\nforward:\n  %a = add @x, @s : f32[2]\n"
                                "  %b = exp @x : f32[2]\n  %c = neg %b : f32[2]\n"
                                "  output \"a\" = %a\n  output \"b\" = %b\n  output \"c\" = %c\n  store @s, %a\n}\n"
                                "graph @h(@x : f32[2]) {\nforward:\n  %d = neg @x : f32[2]\n  output \"d\" = %d\n}\n";

static ampc_status pick(scratch *t, const char *graph, int n, const char *first, const char *second)
{
    const char *const names[] = {first, second};
    return rt_session_select(session, graph, names, n, t->d);
}

/* Runs @g and returns whether its plan has a step of this op. */
static bool computes(scratch *t, const rt_tensor *in, const char *op)
{
    const rt_plan *plan;
    run_ok(t, "g", in, 1);
    assert_int_equal(rt_session_plan(session, "g", in, 1, NULL, t->d, &plan), AMPC_OK);
    for (int i = 0; i < plan->n_steps; i++)
        if (strcmp(rt_step_name(plan->steps[i]), op) == 0) return true;
    return false;
}

TEST_SESSION(only_selected_outputs_are_computed)
{
    load(t, selecting);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .no_fuse = true}), AMPC_OK);
    float x[] = {0, 0};
    rt_tensor in = vector("x", IR_f32, 2, x);
    assert_true(computes(t, &in, "neg"));
    assert_int_equal(rt_session_output_count(session), 3);
    assert_null(rt_session_not_selected(session, "c"));
    assert_int_equal(pick(t, "g", 1, "b", NULL), AMPC_OK);
    assert_false(computes(t, &in, "neg"));
    assert_int_equal(rt_session_output_count(session), 1);
    expect_floats("b", 2, (float[]){1, 1});
    assert_null(rt_session_output(session, "c"));
    assert_string_equal(rt_session_not_selected(session, "c"), "g");
    assert_null(rt_session_not_selected(session, "b"));
    assert_null(rt_session_not_selected(session, "none"));
    assert_int_equal(pick(t, "g", 0, NULL, NULL), AMPC_OK); /* only the store */
    assert_false(computes(t, &in, "exp"));
    assert_true(computes(t, &in, "add"));
    assert_int_equal(rt_session_output_count(session), 0);
    run_ok(t, "h", &in, 1); /* each graph has its own selection */
    assert_int_equal(rt_session_output_count(session), 1);
    assert_int_equal(rt_session_select(session, "g", NULL, 0, t->d), AMPC_OK);
    run_ok(t, "g", &in, 1);
    assert_int_equal(rt_session_output_count(session), 3);
    assert_float_equal(storage_floats(t, "s")[1], 2, 0);
}

/* A repeated selection reuses its plan and allocates only the list of its names. */
TEST_SESSION(plans_of_selections_are_cached)
{
    start(t, selecting);
    float x[] = {0, 0};
    rt_tensor in = vector("x", IR_f32, 2, x);
    run_ok(t, "g", &in, 1);
    assert_int_equal(pick(t, "g", 2, "c", "a"), AMPC_OK);
    run_ok(t, "g", &in, 1);
    assert_int_equal(rt_session_select(session, "g", NULL, 0, t->d), AMPC_OK);
    rt_alloc_fail(1);
    run_ok(t, "g", &in, 1);
    rt_alloc_fail(0);
    assert_int_equal(pick(t, "g", 2, "a", "c"), AMPC_OK); /* in any order */
    rt_alloc_fail(1);
    run_ok(t, "g", &in, 1);
    rt_alloc_fail(0);
    assert_int_equal(rt_session_output_count(session), 2);
    rt_alloc_fail(1);
    assert_int_equal(pick(t, "g", 1, "a", NULL), AMPC_NO_MEMORY);
    rt_alloc_fail(0);
    run_ok(t, "g", &in, 1);
    assert_int_equal(rt_session_output_count(session), 2);
}

TEST_SESSION(unknown_outputs_are_rejected)
{
    start(t, selecting);
    float x[] = {0, 0};
    rt_tensor in = vector("x", IR_f32, 2, x);
    assert_int_equal(pick(t, "g", 2, "a", "grad_norm"), AMPC_REJECTED);
    scratch_expect(t, "graph @g has no output 'grad_norm'; its outputs are: a, b, c");
    run_ok(t, "g", &in, 1); /* as before */
    assert_int_equal(rt_session_output_count(session), 3);
    assert_int_equal(pick(t, "none", 1, "a", NULL), AMPC_REJECTED);
    scratch_expect(t, "no graph @none");
}
