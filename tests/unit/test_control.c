/* test_control.c - `if` and `loop` at run time: both branches, 0, 1 and 17 iterations, scanned and stacked values,
 * nodes within bodies, memory of the plans of bodies, and what is refused. */
#include "runtime/plan/plan.h"
#include "tests/unit/session_fixture.h"

#define IF(branches) \
    "graph @g(@c : bool[K], @x : f32[N]) {\n  %y = if @c (" branches \
    ") : f32[N] !If \"choose\"\n  output \"y\" = %y\n}\n"
#define BRANCH(name, nodes) name ": graph(@x : f32[N]) {\n" nodes "} captures @x\n"
#define THEN BRANCH("then_branch", "  %a = add @x, @x : f32[N]\n  output \"a\" = %a\n")
#define ELSE(nodes) IF(THEN BRANCH("else_branch", nodes))

static rt_tensor truth(bool *value, int64_t n) { return vector("c", IR_bool, n, value); }

static void choose(scratch *t, bool value, const float *expected)
{
    float x[] = {1, -2, 3};
    rt_tensor in[] = {truth(&value, 1), vector("x", IR_f32, 3, x)};
    run_ok(t, "g", in, 2);
    expect_floats("y", 3, expected);
}

TEST_SESSION(if_runs_one_branch)
{
    start(t, ELSE("  %b = relu @x : f32[N]\n  %c = neg %b : f32[N]\n  output \"b\" = %c\n"));
    choose(t, true, (float[]){2, -4, 6});
    choose(t, false, (float[]){-1, 0, -3});
}

static void if_is_refused(scratch *t, const char *text, int64_t conditions, int64_t length, const char *message)
{
    bool value[2] = {true, true};
    float x[4] = {0};
    rt_tensor in[] = {truth(value, conditions), vector("x", IR_f32, length, x)};
    start(t, text);
    assert_int_not_equal(rt_session_run(session, "g", in, 2, t->d), AMPC_OK);
    scratch_expect(t, message);
}

TEST_SESSION(conditions_have_one_element)
{
    if_is_refused(t, ELSE("  output \"b\" = @x\n"), 0, 3, "operand 'c' must have one element, is bool[0]");
}

TEST_SESSION(branches_return_the_same_shape)
{
    if_is_refused(t, ELSE("  %b = slice @x {start=[0], size=[2], step=[1]} : f32[2]\n  output \"b\" = %b\n"), 1, 3,
                  "output 'b' of @choose.else_branch is f32[2], but must be f32[3]");
}

TEST_SESSION(branches_return_all_results)
{
    if_is_refused(t, ELSE(""), 1, 3, "@choose.else_branch has 0 outputs, expected 1");
}

TEST_SESSION(both_branches_exist) { if_is_refused(t, IF(THEN), 1, 3, "it has no region 'else_branch'"); }

/* The layout of the result changes after the node, in a step that has its name. */
TEST_SESSION(a_branch_feeds_a_convolution)
{
    static float x[1 * 8 * 4 * 4];
    bool value = false;
    rt_tensor in[] = {{"c", IR_bool, 0, {0}, &value}, {"x", IR_f32, 4, {1, 8, 4, 4}, x}};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = 2;
    start(t, "param @w : f16[8,8,3,3] = zero\ngraph @g(@c : bool[], @x : f16[1,8,4,4]) {\nforward:\n"
             "  %y = if @c (then_branch: graph(@x : f16[1,8,4,4]) {\n  output \"a\" = @x\n} captures @x\n"
             "else_branch: graph(@x : f16[1,8,4,4]) {\n  %b = neg @x : f16[1,8,4,4]\n  output \"b\" = %b\n} "
             "captures @x) : f16[1,8,4,4]\n"
             "  %z = conv %y, @w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f16[1,8,4,4]\n"
             "  %r = relu %z : f16[1,8,4,4]\n  %s = conv %r, @w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : "
             "f16[1,8,4,4]\n  output \"y\" = %s\n}\n");
    run_ok(t, "g", in, 2);
    assert_non_null(rt_session_output(session, "y"));
}

/* ---- loop ---------------------------------------------------------------------------------------- */

/* Doubles s and stacks it while it is below the limit. */
#define LOOP(length) \
    "const @limit : f32[] = 1000\n" \
    "graph @g(@m : i64[], @s : f32[]) {\n  %y, %z = loop @m, @s [x_x:xx] " \
    "(body: graph(@i : i64[], @go : bool[], @s : f32[]) {\n  %t = add @s, @s : f32[]\n" \
    "  %again = less %t, @limit : bool[]\n  output \"again\" = %again\n  output \"t\" = %t\n  output \"s\" = @s\n" \
    "}) : f32[], f32[" length "] !Loop \"L\"\n  output \"y\" = %y\n  output \"z\" = %z\n}\n"

static void loop_from(scratch *t, int64_t trips, float first, int places, float last)
{
    float stack[17], s = first;
    rt_tensor in[] = {{"m", IR_i64, 0, {0}, &trips}, {"s", IR_f32, 0, {0}, &first}};
    for (int i = 0; i < places; i++, s *= 2) stack[i] = s;
    run_ok(t, "g", in, 2);
    expect_floats("y", 1, &last);
    expect_floats("z", places, stack);
}

TEST_SESSION(loops_stop_at_the_trip_count)
{
    start(t, LOOP("17"));
    loop_from(t, 17, 0x1p-10f, 17, 0x1p7f);
    drop();
    start(t, LOOP("1"));
    loop_from(t, 1, 3, 1, 6);
    drop();
    start(t, LOOP("0"));
    loop_from(t, 0, 3, 0, 3);
    loop_from(t, -5, 3, 0, 3);
}

TEST_SESSION(loops_stop_at_the_condition)
{
    start(t, LOOP("4"));
    loop_from(t, 100, 100, 4, 1600);
}

TEST_SESSION(stacks_have_a_place_for_each_iteration)
{
    int64_t trips = 3;
    float s = 1;
    const rt_tensor in[] = {{"m", IR_i64, 0, {0}, &trips}, {"s", IR_f32, 0, {0}, &s}};
    start(t, LOOP("2"));
    assert_int_equal(rt_session_run(session, "g", in, 2, t->d), AMPC_REJECTED);
    scratch_expect(t, "'z' has 2 places, but there are more iterations");
    trips = 1;
    assert_int_equal(rt_session_run(session, "g", in, 2, t->d), AMPC_REJECTED);
    scratch_expect(t, "'z' has 2 places, but there were 1 iterations");
}

/* A body that swaps its carried values, each read from the place of the other. */
TEST_SESSION(carried_values_are_exchanged)
{
    int64_t trips = 3;
    float a[] = {1, 2}, b[] = {3, 4};
    const rt_tensor in[] = {{"m", IR_i64, 0, {0}, &trips}, vector("a", IR_f32, 2, a), vector("b", IR_f32, 2, b)};
    start(t, "graph @g(@m : i64[], @a : f32[2], @b : f32[2]) {\n  %y, %z = loop @m, @a, @b [x_xx:xx] "
             "(body: graph(@i : i64[], @go : bool[], @a : f32[2], @b : f32[2]) {\n  output \"go\" = @go\n"
             "  output \"a\" = @b\n  output \"b\" = @a\n}) : f32[2], f32[2]\n"
             "  output \"y\" = %y\n  output \"z\" = %z\n}\n");
    run_ok(t, "g", in, 3);
    expect_floats("y", 2, b);
    expect_floats("z", 2, a);
}

/* The arena of a body is part of the workspace of its step. */
TEST_SESSION(memory_of_bodies_is_planned)
{
    bool value = true;
    static float x[4096];
    rt_tensor in[] = {truth(&value, 1), vector("x", IR_f32, 4096, x)};
    const rt_plan *p;
    start(t, ELSE("  %b = exp @x : f32[N]\n  %c = cum_sum %b : f32[N]\n  output \"b\" = %c\n"));
    assert_int_equal(rt_session_plan(session, "g", in, 2, NULL, t->d, &p), AMPC_OK);
    const rt_control *c = p->steps[0]->control;
    assert_non_null(c);
    for (int i = 0; i < 2; i++) {
        assert_true(c->bodies[i].plan->arena_bytes >= 4096 * 4);
        assert_true(p->arena_bytes >= c->bodies[i].plan->arena_bytes + 4096 * 4);
    }
}
