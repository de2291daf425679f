/* test_session.c - runs: inputs and symbols, results, storage before and after, failures during a run, threads,
 * memory. */
#include "scratch.h"

#include <sched.h>

#include "ir/ir.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"
#include "tests/session.h"

static ir_module *module;
static rt_session *session;

static void load(scratch *t, const char *text)
{
    static const char head[] = "ampc-ir 1\n";
    char *module_text = malloc(sizeof head + strlen(text));
    strcat(strcpy(module_text, head), text);
    if (ir_parse(module_text, strlen(module_text), "session.ir", t->d, &module) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    free(module_text);
}

static ampc_status open_with(scratch *t, const rt_session_options *o)
{
    return rt_session_open(module, o, t->d, &session);
}

static void start(scratch *t, const char *text)
{
    load(t, text);
    if (open_with(t, &(rt_session_options){.threads = 2}) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static int finish(void **state)
{
    rt_session_close(session);
    ir_module_free(module);
    session = NULL;
    module = NULL;
    return scratch_teardown(state);
}

static rt_tensor vector(const char *name, ir_dtype t, int64_t n, void *data)
{
    return (rt_tensor){.name = name, .dtype = t, .rank = 1, .dims = {n}, .data = data};
}

static void run_ok(scratch *t, const char *graph, const rt_tensor *inputs, int n)
{
    if (rt_session_run(session, graph, inputs, n, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static void run_rejected(scratch *t, const rt_tensor *inputs, int n, const char *words)
{
    assert_int_equal(rt_session_run(session, "g", inputs, n, t->d), AMPC_REJECTED);
    assert_null(rt_session_output(session, "y"));
    scratch_expect(t, words);
}

static void expect_floats(const char *output, int n, const float *values)
{
    const rt_tensor *y = rt_session_output(session, output);
    assert_non_null(y);
    assert_int_equal(y->dtype, IR_f32);
    int64_t count = 1;
    for (int i = 0; i < y->rank; i++) count *= y->dims[i];
    assert_int_equal(count, n);
    for (int i = 0; i < n; i++) assert_true(((const float *)y->data)[i] == values[i]);
}

static const float *storage_floats(scratch *t, const char *name)
{
    rt_tensor v;
    assert_int_equal(test_storage(session, name, t->d, &v), AMPC_OK);
    return v.data;
}

/* ---- inputs and symbols ---------------------------------------------------------------------- */

static const char doubled[] = "graph @g(@x : f32[N]) {\nforward:\n  %y = add @x, @x : f32[N]\n"
                              "  output \"y\" = %y\n}\n";

static void symbols_come_from_inputs(void **state)
{
    scratch *t = *state;
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

static void symbols_are_solved_from_expressions(void **state)
{
    scratch *t = *state;
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

static void wrong_inputs_are_rejected(void **state)
{
    scratch *t = *state;
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

static void inputs_are_converted(void **state)
{
    scratch *t = *state;
    start(t, doubled);
    double x[] = {1.5, -2, 1e300};
    rt_tensor in = vector("x", IR_f64, 3, x);
    run_ok(t, "g", &in, 1);
    expect_floats("y", 3, (float[]){3, -4, __builtin_inff()});
    uint16_t h[] = {0x3c00, 0xc000};
    in = vector("x", IR_f16, 2, h);
    run_ok(t, "g", &in, 1);
    expect_floats("y", 2, (float[]){2, -4});
}

static void bound_symbols_are_checked(void **state)
{
    scratch *t = *state;
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

static void devices(void **state)
{
    scratch *t = *state;
    load(t, doubled);
    assert_int_equal(open_with(t, &(rt_session_options){.device = "tpu"}), AMPC_DEVICE);
    scratch_expect(t, "device 'tpu'");
    assert_null(session);
    assert_int_equal(open_with(t, &(rt_session_options){.device = "cpu"}), AMPC_OK);
}

/* ---- storage --------------------------------------------------------------------------------- */

static const char counting[] = "param @w : f32[3] = [1, 2, 3]\nstate @n : i64[] = 0\nconst @one : i64[] = 1\n"
                               "state @lr : f32[] = 0.5\n"
                               "graph @g(@d : f32[3], @i : i64[K]) {\nforward:\n"
                               "  %y = gather @w, @i : f32[K]\n  output \"y\" = %y\n  output \"old\" = @w\n"
                               "update:\n"
                               "  %w1 = sgd @w, @d, @lr : f32[3]\n  %n1 = add @n, @one : i64[]\n"
                               "  store @w, %w1\n  store @n, %n1\n}\n";

static void storage_commits_at_the_end(void **state)
{
    scratch *t = *state;
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

static void failed_run_changes_nothing(void **state)
{
    scratch *t = *state;
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

static void states_are_swapped(void **state)
{
    scratch *t = *state;
    start(t, "state @a : f32[2] = [1, 2]\nstate @b : f32[2] = [3, 4]\n"
             "graph @g() {\nforward:\n  store @a, @b\n  store @b, @a\n  output \"a\" = @a\n}\n");
    run_ok(t, "g", NULL, 0);
    expect_floats("a", 2, (float[]){1, 2});
    assert_memory_equal(storage_floats(t, "a"), ((float[]){3, 4}), 8);
    assert_memory_equal(storage_floats(t, "b"), ((float[]){1, 2}), 8);
}

static void skipped_step_in_place(void **state)
{
    scratch *t = *state;
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
static void deterministic_runs_are_equal(void **state)
{
    scratch *t = *state;
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
static void repetitions_are_timed(void **state)
{
    scratch *t = *state;
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

static void a_profile_has_every_launch(void **state)
{
    scratch *t = *state;
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
static void hoisted_values_follow_storage(void **state)
{
    scratch *t = *state;
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

/* ---- selected outputs ------------------------------------------------------------------------- */

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

static void only_selected_outputs_are_computed(void **state)
{
    scratch *t = *state;
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
static void plans_of_selections_are_cached(void **state)
{
    scratch *t = *state;
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

static void unknown_outputs_are_rejected(void **state)
{
    scratch *t = *state;
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

/* ---- memory ---------------------------------------------------------------------------------- */

static ampc_status open_and_run(scratch *t, const rt_tensor *in, int n)
{
    ampc_status status = open_with(t, &(rt_session_options){.threads = 1});
    if (status == AMPC_OK) status = rt_session_run(session, "g", in, n, t->d);
    rt_alloc_fail(0);
    rt_session_close(session);
    session = NULL;
    return status;
}

/* Each allocation fails once; nothing leaks (under sanitizers), and the next attempt succeeds. */
static void each_allocation_may_fail(void **state)
{
    scratch *t = *state;
    load(t, counting);
    double d[] = {2, 2, 2};
    int32_t i[] = {2, 0};
    rt_tensor in[] = {vector("d", IR_f64, 3, d), vector("i", IR_i32, 2, i)}; /* staged */
    int n = 1;
    for (; n < 1000; n++) {
        rt_alloc_fail((uint64_t)n);
        ampc_status status = open_and_run(t, in, 2);
        if (status == AMPC_OK) break;
        assert_int_equal(status, AMPC_NO_MEMORY);
        scratch_expect(t, "memory");
    }
    assert_in_range(n, 20, 100);
}

/* After the first run with a binding, runs do not allocate. */
static void runs_do_not_allocate(void **state)
{
    scratch *t = *state;
    start(t, counting);
    double d[] = {2, 2, 2};
    int32_t i[] = {2, 0};
    rt_tensor in[] = {vector("d", IR_f64, 3, d), vector("i", IR_i32, 2, i)};
    run_ok(t, "g", in, 2);
    in[1].dims[0] = 1;
    run_ok(t, "g", in, 2);
    rt_alloc_fail(1);
    run_ok(t, "g", in, 2);
    in[1].dims[0] = 2;
    run_ok(t, "g", in, 2);
    rt_alloc_fail(0);
}

/* If the arena cannot grow, the session still runs whatever fits. */
static void session_survives_lack_of_memory(void **state)
{
    scratch *t = *state;
    start(t, doubled);
    float x[100] = {1, 2};
    rt_tensor in = vector("x", IR_f32, 2, x);
    run_ok(t, "g", &in, 1);
    for (int n = 1; n < 30; n++) {
        in.dims[0] = 50;
        rt_alloc_fail((uint64_t)n);
        if (rt_session_run(session, "g", &in, 1, t->d) == AMPC_OK) n = 30;
        rt_alloc_fail(0);
        in.dims[0] = 2;
        run_ok(t, "g", &in, 1);
        expect_floats("y", 2, (float[]){2, 4});
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(symbols_come_from_inputs),
        TEST(symbols_are_solved_from_expressions),
        TEST(wrong_inputs_are_rejected),
        TEST(inputs_are_converted),
        TEST(bound_symbols_are_checked),
        TEST(devices),
        TEST(storage_commits_at_the_end),
        TEST(failed_run_changes_nothing),
        TEST(states_are_swapped),
        TEST(skipped_step_in_place),
        TEST(deterministic_runs_are_equal),
        TEST(repetitions_are_timed),
        TEST(a_profile_has_every_launch),
        TEST(hoisted_values_follow_storage),
        TEST(only_selected_outputs_are_computed),
        TEST(plans_of_selections_are_cached),
        TEST(unknown_outputs_are_rejected),
        TEST(each_allocation_may_fail),
        TEST(runs_do_not_allocate),
        TEST(session_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
