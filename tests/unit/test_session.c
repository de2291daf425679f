/* test_session.c - runs: inputs and symbols, results, storage before and after, failures during a run, threads,
 * repeated runs, hoisted values. */
#include "runtime/plan/plan.h"
#include "tests/unit/session_fixture.h"

#include <sched.h>

static void run_rejected(scratch *t, const rt_tensor *inputs, int n, const char *text)
{
    assert_int_equal(rt_session_run(session, "g", inputs, n, t->d), AMPC_REJECTED);
    assert_null(rt_session_output(session, "y"));
    scratch_expect(t, text);
}

/* ---- inputs and symbols ---------------------------------------------------------------------- */

TEST_SESSION(symbols_come_from_inputs)
{
    start(t, doubled);
    float x[] = {1, 2, 3};
    for (int64_t n = 3; n >= 0; n--) { /* including 0 */
        rt_tensor in = vector("x", IR_f32, n, x);
        run_ok(t, "g", &in, 1);
        expect_floats("y", (int)n, (float[]){2, 4, 6});
    }
    assert_int_equal(rt_session_output_count(session), 1);
    assert_string_equal(rt_session_output_at(session, 0)->name, "y");
}

TEST_SESSION(symbols_are_solved_from_expressions)
{
    start(t, "graph @g(@x : f32[2*N+1], @z : f32[N*T]) {\nforward:\n"
             "  %y = expand @x {shape=[T,2*N+1]} : f32[T,2*N+1]\n  output \"y\" = %y\n}\n");
    float x[9] = {0};
    rt_tensor in[] = {vector("x", IR_f32, 7, x), vector("z", IR_f32, 6, x)};
    run_ok(t, "g", in, 2);
    assert_int_equal(rt_session_output(session, "y")->dims[0], 2);
    in[0].dims[0] = 8;
    run_rejected(t, in, 2, "input 'x': axis 0 is 2*N+1, which is 8 for no size of 'N'");
    in[0].dims[0] = 9;
    run_rejected(t, in, 2, "input 'z': axis 0 is N*T");
}

TEST_SESSION(wrong_inputs_are_rejected)
{
    start(t, "graph @g(@x : f32[N,2], @z : f32[N], @i : i32[2], @b : bool[]) {\nforward:\n"
             "  %y = neg @z : f32[N]\n  output \"y\" = %y\n}\n");
    float x[6] = {0};
    int64_t i[2] = {1, 2};
    bool b = true;
    rt_tensor in[] = {
        {"x", IR_f32, 2, {3, 2}, x}, vector("z", IR_f32, 3, x), vector("i", IR_i64, 2, i), {"b", IR_bool, 0, {0}, &b}};
    run_ok(t, "g", in, 4);
    run_rejected(t, in, 3, "input 'b' of graph @g is missing");
    in[1].dims[0] = 2;
    run_rejected(t, in, 4, "input 'z': axis 0 has size 2, but N is 3");
    in[1].dims[0] = 3;
    in[0].dims[1] = 3;
    run_rejected(t, in, 4, "input 'x': axis 1 has size 3, but the graph requires 2");
    in[0].rank = 1;
    run_rejected(t, in, 4, "input 'x' has 1 dimensions, but the graph requires 2");
    in[0].rank = 2, in[0].dims[1] = 2;
    in[2].dtype = IR_f32;
    run_rejected(t, in, 4, "input 'i' is f32, but the graph requires i32");
    in[2].dtype = IR_i64;
    i[1] = INT64_C(1) << 40;
    run_rejected(t, in, 4, "input 'i': element 1 is 1099511627776, which i32 cannot represent");
    in[2].name = "j";
    run_rejected(t, in, 4, "graph @g has no input 'j'");
    assert_int_equal(rt_session_run(session, "h", in, 4, t->d), AMPC_REJECTED);
    scratch_expect(t, "no graph @h");
}

TEST_SESSION(inputs_are_converted)
{
    start(t, doubled);
    double x[] = {1.5, -2, __builtin_inf()};
    rt_tensor in = vector("x", IR_f64, 3, x);
    run_ok(t, "g", &in, 1);
    expect_floats("y", 3, (float[]){3, -4, __builtin_inff()});
    x[2] = 1e300;
    run_rejected(t, &in, 1, "x: element 2 is 1e+300, which is beyond the range of f32");
    uint16_t h[] = {0x3c00, 0xc000};
    in = vector("x", IR_f16, 2, h);
    run_ok(t, "g", &in, 1);
    expect_floats("y", 2, (float[]){2, -4});
}

TEST_SESSION(bound_symbols_are_checked)
{
    load(t, doubled);
    int64_t sizes[] = {2};
    assert_int_equal(open_with(t, &(rt_session_options){.symbol_sizes = sizes}), AMPC_OK);
    float x[3] = {1, 2, 3};
    rt_tensor in = vector("x", IR_f32, 3, x);
    run_rejected(t, &in, 1, "input 'x': axis 0 has size 3, but N is 2");
    rt_memory memory;
    assert_int_equal(rt_session_memory(session, "g", NULL, 0, t->d, &memory), AMPC_OK);
    assert_int_equal(memory.arena, 64);
    assert_int_equal(memory.storage, 0);
    const rt_plan *plan;
    assert_int_equal(rt_session_plan(session, "g", NULL, 0, NULL, t->d, &plan), AMPC_OK);
    assert_int_equal(plan->sizes[0], 2);
    assert_int_equal(plan->n_steps, 1);
}

TEST_SESSION(devices)
{
    load(t, doubled);
    assert_int_equal(open_with(t, &(rt_session_options){.device = "tpu"}), AMPC_DEVICE);
    scratch_expect(t, "device 'tpu'");
    assert_null(session);
    assert_int_equal(open_with(t, &(rt_session_options){.device = "cpu"}), AMPC_OK);
}

/* ---- storage --------------------------------------------------------------------------------- */

TEST_SESSION(storage_commits_at_the_end)
{
    start(t, counting);
    float d[] = {2, 2, 2};
    int64_t i[] = {2, -3};
    rt_tensor in[] = {vector("d", IR_f32, 3, d), vector("i", IR_i64, 2, i)};
    run_ok(t, "g", in, 2);
    expect_floats("y", 2, (float[]){3, 1});
    expect_floats("old", 3, (float[]){1, 2, 3});
    assert_memory_equal(storage_floats(t, "w"), ((float[]){0, 1, 2}), 12);
    run_ok(t, "g", in, 2);
    expect_floats("old", 3, (float[]){0, 1, 2});
    assert_int_equal(*(const int64_t *)storage_floats(t, "n"), 2);
    rt_tensor v;
    ir_storage_kind kind;
    assert_int_equal(rt_session_storage_count(session), 4);
    rt_session_storage_at(session, 0, &v, &kind);
    assert_string_equal(v.name, "w");
    assert_int_equal(kind, IR_PARAM);
}

TEST_SESSION(failed_run_changes_nothing)
{
    start(t, counting);
    float d[] = {2, 2, 2};
    int64_t i[] = {0, 3};
    rt_tensor in[] = {vector("d", IR_f32, 3, d), vector("i", IR_i64, 2, i)};
    run_rejected(t, in, 2, "gather");
    assert_memory_equal(storage_floats(t, "w"), ((float[]){1, 2, 3}), 12);
    assert_int_equal(*(const int64_t *)storage_floats(t, "n"), 0);
    i[1] = 2;
    run_ok(t, "g", in, 2);
    assert_int_equal(*(const int64_t *)storage_floats(t, "n"), 1);
}

TEST_SESSION(states_are_swapped)
{
    start(t, "state @a : f32[2] = [1, 2]\nstate @b : f32[2] = [3, 4]\n"
             "graph @g() {\nforward:\n  store @a, @b\n  store @b, @a\n  output \"a\" = @a\n}\n");
    run_ok(t, "g", NULL, 0);
    expect_floats("a", 2, (float[]){1, 2});
    assert_memory_equal(storage_floats(t, "a"), ((float[]){3, 4}), 8);
    assert_memory_equal(storage_floats(t, "b"), ((float[]){1, 2}), 8);
}

TEST_SESSION(skipped_step_in_place)
{
    start(t, "param @w : f32[2] = [1, 2]\nstate @m : f32[2] = [5, 6]\nstate @lr : f32[] = 1\n"
             "graph @g(@d : f32[2], @s : bool[]) {\nupdate:\n"
             "  %w1 = sgd @w, @d, @lr, @s : f32[2]\n  %m1 = add @m, @d : f32[2]\n"
             "  %m2 = select @s, @m, %m1 : f32[2]\n  store @w, %w1\n  store @m, %m2\n}\n");
    float d[] = {1, 1};
    bool skip = true;
    rt_tensor in[] = {vector("d", IR_f32, 2, d), {"s", IR_bool, 0, {0}, &skip}};
    run_ok(t, "g", in, 2);
    assert_memory_equal(storage_floats(t, "w"), ((float[]){1, 2}), 8);
    assert_memory_equal(storage_floats(t, "m"), ((float[]){5, 6}), 8);
    skip = false;
    run_ok(t, "g", in, 2);
    assert_memory_equal(storage_floats(t, "w"), ((float[]){0, 1}), 8);
    assert_memory_equal(storage_floats(t, "m"), ((float[]){6, 7}), 8);
}

/* ---- threads --------------------------------------------------------------------------------- */

static const char network[] = "graph @g(@x : f32[N,3,8,8], @y : f32[64,N]) {\nforward:\n"
                              "  %c = conv @x, @x {strides=[1,1], pads=[7,7,7,7], dilations=[1,1]} : f32[N,N,15,15]\n"
                              "  %d = matmul @y, @y {trans_a=true} : f32[N,N]\n"
                              "  output \"c\" = %c\n  output \"d\" = %d\n}\n";

static void use_cores(int n, const cpu_set_t *all)
{
    cpu_set_t some;
    CPU_ZERO(&some);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&some) < n; i++)
        if (CPU_ISSET(i, all)) CPU_SET(i, &some);
    sched_setaffinity(0, sizeof some, &some);
}

/* With `deterministic`, work is split independently of the number of threads and cores. */
TEST_SESSION(deterministic_runs_are_equal)
{
    load(t, network);
    enum { N = 17 };
    static float x[N * 3 * 64], y[64 * N], first[N * N * 225];
    for (int i = 0; i < N * 3 * 64; i++) x[i] = (float)(i * 37 % 101) / 7;
    for (int i = 0; i < 64 * N; i++) y[i] = (float)(i * 53 % 97) / 11;
    rt_tensor in[] = {{"x", IR_f32, 4, {N, 3, 8, 8}, x}, {"y", IR_f32, 2, {64, N}, y}};
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    for (int threads = 1; threads <= 3; threads++) {
        use_cores(threads, &all);
        rt_session_options o = {.threads = threads, .deterministic = 4};
        assert_int_equal(open_with(t, &o), AMPC_OK);
        run_ok(t, "g", in, 2);
        const rt_tensor *c = rt_session_output(session, "c");
        if (threads == 1) memcpy(first, c->data, sizeof first);
        assert_memory_equal(first, c->data, sizeof first);
        rt_session_close(session);
        session = NULL;
    }
    sched_setaffinity(0, sizeof all, &all);
}

/* ---- repeating the last run ---- */

/* Each run adds a table row to a sum and advances to the next row; after three runs no row is left. */
static const char indexing[] =
    "state @at : i64[1] = [0]\nstate @sum : f32[1] = [0]\nconst @table : f32[3] = [1, 2, 4]\nconst @one : i64[1] = "
    "[1]\n"
    "graph @g(@x : f32[1]) {\nforward:\n  %row = gather @table, @at {axis=0} : f32[1]\n  %y = mul %row, @x : f32[1]\n"
    "  output \"y\" = %y\nupdate:\n  %next = add @at, @one : i64[1]\n  %more = add @sum, %y : f32[1]\n"
    "  store @at, %next\n  store @sum, %more\n}\n";

/* A repetition counts as a run; inputs are converted once. */
TEST_SESSION(repetitions_are_timed)
{
    start(t, indexing);
    double x[] = {10}, ms[2] = {-1, -1}, wrong[1];
    rt_tensor in = vector("x", IR_f64, 1, x);
    assert_false(rt_session_has_clock(session));
    run_ok(t, "g", &in, 1);
    x[0] = 1000; /* f64: the session has a converted copy */
    assert_int_equal(rt_session_time(session, 1, 1, t->d, ms), AMPC_OK);
    assert_true(ms[0] >= 0 && ms[0] < 60e3 && ms[1] == -1);
    expect_floats("y", 1, (float[]){40});
    assert_true(storage_floats(t, "sum")[0] == 70);
    assert_int_equal(rt_session_time(session, 0, 1, t->d, wrong), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(t->d), "gather"));
    assert_int_equal(rt_session_output_count(session), 0);
    assert_true(storage_floats(t, "sum")[0] == 70);
}

typedef struct profile {
    int next;
    int counts[IR_OP_COUNT];
    double end_ms;
} profile;

static void count_launch(void *user, const rt_launch *launch)
{
    profile *p = user;
    assert_true(launch->ms >= 0 && launch->start_ms == p->end_ms);
    assert_int_equal(launch->step, p->next);
    p->next += launch->steps;
    p->end_ms = launch->start_ms + launch->ms;
    if (launch->node) p->counts[launch->node->op]++;
    else assert_string_equal(launch->op, "copy");
}

TEST_SESSION(a_profile_has_every_launch)
{
    start(t, indexing);
    profile p = {.next = 0};
    float x[] = {10};
    rt_tensor in = vector("x", IR_f32, 1, x);
    run_ok(t, "g", &in, 1);
    assert_int_equal(rt_session_profile(session, 2, t->d, count_launch, &p), AMPC_OK);
    assert_int_equal(p.counts[IR_OP_gather], 1);
    assert_int_equal(p.counts[IR_OP_add], 2);
    assert_int_equal(p.counts[IR_OP_mul], 1);
    assert_int_equal(p.next, 4);
    assert_true(p.end_ms > 0);
    assert_true(storage_floats(t, "sum")[0] == 70);
    assert_int_equal(rt_session_profile(session, 1, t->d, count_launch, &p), AMPC_REJECTED);
    assert_true(storage_floats(t, "sum")[0] == 70);
}

/* ---- hoisted values ---- */

/* The low-precision copy of a parameter is recomputed after the parameter changes: by a write, by another graph, or
 * by the graph itself, whose update writes both. */
TEST_SESSION(hoisted_values_follow_storage)
{
    start(t, "param @w : f32[2,1] = [1, 2]\nstate @lr : f32[] = 1\n"
             "graph @g(@x : f16[1,2]) {\nforward:\n  %h = cast @w {to=f16} : f16[2,1]\n"
             "  %y = matmul @x, %h {out=f32} : f32[1,1]\n  output \"y\" = %y\n}\n"
             "graph @twice() {\nupdate:\n  %n = add @w, @w : f32[2,1]\n  store @w, %n\n}\n"
             "graph @step(@x : f16[1,2]) {\nforward:\n  %h = cast @w {to=f16} : f16[2,1]\n"
             "  %y = matmul @x, %h {out=f32} : f32[1,1]\n  output \"y\" = %y\n"
             "update:\n  %w1 = sgd @w, @w, @lr : f32[2,1]\n  store @w, %w1\n}\n");
    uint16_t x[] = {0x3c00, 0x3c00};
    float w[] = {5, 6};
    rt_tensor in = {.name = "x", .dtype = IR_f16, .rank = 2, .dims = {1, 2}, .data = x};
    run_ok(t, "g", &in, 1);
    expect_floats("y", 1, (float[]){3});
    assert_int_equal(rt_session_write(session, test_storage_find(session, "w"), w, t->d), AMPC_OK);
    run_ok(t, "g", &in, 1);
    expect_floats("y", 1, (float[]){11});
    run_ok(t, "twice", NULL, 0);
    run_ok(t, "g", &in, 1);
    expect_floats("y", 1, (float[]){22});
    run_ok(t, "step", &in, 1); /* w - w */
    expect_floats("y", 1, (float[]){22});
    run_ok(t, "step", &in, 1);
    expect_floats("y", 1, (float[]){0});
    run_ok(t, "g", &in, 1);
    expect_floats("y", 1, (float[]){0});
}

/* A fused kernel reads @b along the rows and along the columns. */
TEST_SESSION(an_operand_is_broadcast_in_two_ways)
{
    start(t, "graph @g(@x : f32[2,2], @b : f32[2]) {\nforward:\n  %m = mul @x, @b : f32[2,2]\n"
             "  %c = reshape @b {shape=[2,1]} : f32[2,1]\n  %y = add %m, %c : f32[2,2]\n  output \"y\" = %y\n}\n");
    float x[] = {1, 2, 3, 4}, b[] = {10, 20};
    const rt_tensor in[] = {{"x", IR_f32, 2, {2, 2}, x}, vector("b", IR_f32, 2, b)};
    run_ok(t, "g", in, 2);
    expect_floats("y", 4, (float[]){20, 50, 50, 100});
}
