/* test_data_sizes.c - graphs with sizes that depend on data: their parts, runs with different counts, and refusals. */
#include "ir/graph/parts.h"
#include "passes/passes.h"
#include "runtime/plan/plan.h"
#include "tests/compile.h"
#include "tests/unit/session_fixture.h"

#include <math.h>

/* The positions of positive elements, the elements, and the positions of those above 2 among them. */
static const char chosen[] = "const @zero : f32[] = 0\nconst @two : f32[] = 2\n"
                             "graph @g(@x : f32[N]) {\nforward:\n"
                             "  %c = greater @x, @zero : bool[N]\n  %p, %n = nonzero %c : i64[N,1], i64[]\n"
                             "  %k = dims {value=[2*K]} : i64[1]\n"
                             "  %t = trim %p, %n {size=[K]} : i64[K,1]\n  %i = reshape %t {shape=[K]} : i64[K]\n"
                             "  %v = gather @x, %i : f32[K]\n  %s = reduce_sum %v {axes=[0], keepdims=false} : f32[]\n"
                             "  %d = greater %v, @two : bool[K]\n  %q, %m = nonzero %d : i64[K,1], i64[]\n"
                             "  %u = trim %q, %m {size=[L]} : i64[L,1]\n  %w = reshape %u {shape=[L]} : i64[L]\n"
                             "  %z = gather @x, %w : f32[L]\n  %h = add @x, @x : f32[N]\n"
                             "  output \"z\" = %z\n  output \"v\" = %v\n  output \"s\" = %s\n  output \"k\" = %k\n"
                             "  output \"t\" = %t\n  output \"h\" = %h\n}\n";

static void run_with(scratch *t, int64_t n, float *x)
{
    rt_tensor in = vector("x", IR_f32, n, x);
    run_ok(t, "g", &in, 1);
}

static void expect_integers(const char *output, int n, const int64_t *values)
{
    const rt_tensor *y = rt_session_output(session, output);
    assert_non_null(y);
    assert_int_equal(y->dims[0], n);
    for (int i = 0; i < n; i++) assert_int_equal(((const int64_t *)y->data)[i], values[i]);
}

/* No element, all, other numbers of them, and other sizes of the input; each result of a run stays valid in it. */
TEST_SESSION(counts_differ_between_runs)
{
    start(t, chosen);
    run_with(t, 4, (float[]){1, -1, 3, 5});
    expect_floats("v", 3, (float[]){1, 3, 5});
    expect_integers("t", 3, (int64_t[]){0, 2, 3});
    expect_integers("k", 1, (int64_t[]){6});
    expect_floats("s", 1, (float[]){9});
    expect_floats("z", 2, (float[]){-1, 3}); /* at 1 and 2 of the positive ones */
    expect_floats("h", 4, (float[]){2, -2, 6, 10});
    run_with(t, 4, (float[]){-1, -1, 0, NAN});
    expect_floats("v", 0, NULL);
    expect_floats("s", 1, (float[]){0});
    expect_floats("z", 0, NULL);
    run_with(t, 4, (float[]){7, 8, 9, 3});
    expect_floats("v", 4, (float[]){7, 8, 9, 3});
    expect_floats("z", 4, (float[]){7, 8, 9, 3});
    run_with(t, 4, (float[]){7, -8, 1, 3});
    expect_floats("v", 3, (float[]){7, 1, 3});
    expect_floats("z", 2, (float[]){7, 1});
    run_with(t, 1, (float[]){1});
    expect_floats("v", 1, (float[]){1});
    expect_floats("z", 0, NULL);
    run_with(t, 0, NULL);
    expect_floats("v", 0, NULL);
}

TEST_SESSION(outputs_are_in_graph_order)
{
    static const char *const names[] = {"z", "v", "s", "k", "t", "h"};
    start(t, chosen);
    run_with(t, 4, (float[]){1, -1, 3, 5});
    assert_int_equal(rt_session_output_count(session), 6);
    for (int i = 0; i < 6; i++) assert_string_equal(rt_session_output_at(session, i)->name, names[i]);
}

TEST_SESSION(selections_compute_only_their_parts)
{
    start(t, chosen);
    assert_int_equal(rt_session_select(session, "g", (const char *const[]){"h"}, 1, t->d), AMPC_OK);
    run_with(t, 2, (float[]){1, -1});
    assert_int_equal(rt_session_output_count(session), 1);
    expect_floats("h", 2, (float[]){2, -2});
    assert_int_equal(rt_session_select(session, "g", (const char *const[]){"s"}, 1, t->d), AMPC_OK);
    run_with(t, 2, (float[]){1, 4});
    expect_floats("s", 1, (float[]){5});
    assert_null(rt_session_output(session, "v"));
}

/* Plans of sizes that were not used for long are freed, and made again when they are needed. */
TEST_SESSION(many_counts_need_little_memory)
{
    enum { SIZE = 300 };
    static float x[SIZE];
    start(t, chosen);
    for (int round = 0; round < 2; round++)
        for (int n = 0; n < SIZE; n++) {
            for (int i = 0; i < SIZE; i++) x[i] = i < n ? 1 : -1;
            run_with(t, SIZE, x);
            expect_floats("s", 1, (float[]){(float)n});
        }
}

TEST_SESSION(runs_can_be_repeated_and_profiled)
{
    double ms[3];
    start(t, chosen);
    run_with(t, 4, (float[]){1, -1, 3, 5});
    assert_int_equal(rt_session_time(session, 1, 3, t->d, ms), AMPC_OK);
    expect_floats("v", 3, (float[]){1, 3, 5});
    expect_floats("z", 2, (float[]){-1, 3});
}

/* Without data, sizes are at their bounds, which limits the memory. */
TEST_SESSION(plans_have_bounds)
{
    const rt_plan *p;
    rt_memory memory;
    load(t, chosen);
    int64_t sizes[] = {16, -1, -1};
    const rt_session_options o = {.threads = 1, .symbol_sizes = sizes, .plan_only = true};
    assert_int_equal(open_with(t, &o), AMPC_OK);
    assert_int_equal(rt_session_plan(session, "g", NULL, 0, NULL, t->d, &p), AMPC_OK);
    int64_t bytes = 0;
    for (int part = 0; part < 3; part++) {
        p = rt_session_planned(session, part);
        assert_non_null(p);
        assert_int_equal(p->part, part);
        assert_int_equal(p->sizes[1], part > 0 ? 16 : -1);
        assert_int_equal(p->sizes[2], part > 1 ? 16 : -1);
        bytes += p->arena_bytes;
    }
    assert_null(rt_session_planned(session, 3));
    assert_int_equal(rt_session_memory(session, "g", NULL, 0, t->d, &memory), AMPC_OK);
    assert_int_equal(memory.arena, bytes);
}

static const char counted[] = "graph @g(@x : f32[4], @n : i64[]) {\nforward:\n"
                              "  %t = trim @x, @n {size=[K]} : f32[K]\n  %y = neg %t : f32[K]\n"
                              "  output \"y\" = %y\n  output \"t\" = %t\n}\n";

static ampc_status run_counted(scratch *t, int64_t n)
{
    const rt_tensor in[] = {vector("x", IR_f32, 4, (float[]){1, 2, 3, 4}), {.name = "n", .dtype = IR_i64, .data = &n}};
    return rt_session_run(session, "g", in, 2, t->d);
}

/* The cast of @w runs where it is read, once. */
TEST_SESSION(weights_are_prepared_where_they_are_read)
{
    static const char text[] = "param @w : f32[4] = [1, 2, 3, 4]\nconst @c : i64[] = 2\n"
                               "graph @g(@x : f32[4], @n : i64[]) {\nforward:\n"
                               "  %h = cast @w {to=f16} : f16[4]\n  %r = add @c, @c : i64[]\n"
                               "  %t = trim @x, @n {size=[K]} : f32[K]\n  %i = iota {size=[K]} : i64[K]\n"
                               "  %u = gather %h, %i : f16[K]\n  %s = trim @x, %r {size=[L]} : f32[L]\n"
                               "  output \"u\" = %u\n  output \"t\" = %t\n  output \"s\" = %s\n}\n";
    const rt_plan *p;
    load(t, text);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .no_fuse = true}), AMPC_OK);
    assert_int_equal(run_counted(t, 2), AMPC_OK);
    expect_floats("t", 2, (float[]){1, 2});
    expect_floats("s", 4, (float[]){1, 2, 3, 4});
    assert_int_equal(rt_session_plan(session, "g", NULL, 0, NULL, t->d, &p), AMPC_OK);
    assert_int_equal(p->n_steps, 1); /* %r, which a trim reads after the part */
    assert_int_equal(rt_session_planned(session, 1)->n_steps, 3);
    assert_null(rt_session_planned(session, 2));
}

/* A trim whose result is unused is kept if its size is read; of several that set the symbol, one. */
TEST_SESSION(sizes_are_computed_without_the_rows)
{
    static const char text[] = "ampc-ir 3\ngraph @g(@x : f32[N]) {\nforward:\n"
                               "  %k = dims {value=[K]} : i64[1]\n  %p, %n = nonzero @x : i64[N,1], i64[]\n"
                               "  %t = trim %p, %n {size=[K]} : i64[K,1]\n  %u = trim @x, %n {size=[K]} : f32[K]\n"
                               "  %q, %m = nonzero @x : i64[N,1], i64[]\n  %v = trim %q, %m {size=[L]} : i64[L,1]\n"
                               "  output \"k\" = %k\n}\n";
    const compile_options o = compile_options_default();
    assert_int_equal(ir_parse(text, sizeof text - 1, "m.ir", t->d, &module), AMPC_OK);
    assert_int_equal(test_compile(module, &o, t->d), AMPC_OK);
    int trims = 0;
    for (const ir_node *n = ir_graph_find(module, "g")->first; n; n = n->next) trims += ir_op_has(n->op, IR_SIZES);
    assert_int_equal(trims, 1);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1}), AMPC_OK);
    run_with(t, 4, (float[]){1, -1, 0, 5});
    expect_integers("k", 1, (int64_t[]){3});
}

/* ---- refusals ---- */

TEST_SESSION(sizes_cannot_be_bound)
{
    load(t, chosen);
    int64_t sizes[] = {16, 3, -1};
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .symbol_sizes = sizes}), AMPC_USAGE);
    assert_non_null(strstr(diag_first_error(t->d), "dimension 'K' cannot be bound, because it depends on data"));
}

TEST_SESSION(counts_are_checked)
{
    start(t, counted);
    assert_int_equal(run_counted(t, 2), AMPC_OK);
    expect_floats("y", 2, (float[]){-1, -2});
    expect_floats("t", 2, (float[]){1, 2});
    assert_int_equal(run_counted(t, 4), AMPC_OK);
    expect_floats("t", 4, (float[]){1, 2, 3, 4});
    assert_int_equal(run_counted(t, 0), AMPC_OK);
    expect_floats("y", 0, NULL);
    static const struct {
        int64_t n;
        const char *message;
    } wrong[] = {{-1, "the size of its result would be -1"},
                 {5, "the size of its result would be 5, but at most 4 is possible"},
                 {INT64_MAX, "the size of its result would be 9223372036854775807"},
                 {INT64_MIN, "the size of its result would be -9223372036854775808"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        diag_clear(t->d);
        assert_int_equal(run_counted(t, wrong[i].n), AMPC_REJECTED);
        if (!strstr(diag_first_error(t->d), wrong[i].message)) fail_msg("%s", diag_first_error(t->d));
        assert_int_equal(rt_session_output_count(session), 0);
    }
    diag_clear(t->d);
    assert_int_equal(run_counted(t, 1), AMPC_OK);
    expect_floats("t", 1, (float[]){1});
}

TEST_SESSION(invalid_graphs_are_rejected)
{
    static const struct {
        const char *body, *message;
    } rows[] = {
        {"  %t = trim @x, @n {size=[3]} : f32[3]\n", "size must be a symbol"},
        {"  %t = trim @x, @n {size=[2*K]} : f32[2*K]\n", "size must be a symbol"},
        {"  %t = trim @x, @n {size=[N]} : f32[N]\n", "its symbol is the size of an input"},
        {"  %t = trim @x, @n {size=[K]} : f32[K]\n  %m = neg @n : i64[]\n  %u = trim @x, %m {size=[K]} : f32[K]\n",
         "another trim sets its symbol to another number"},
        {"  %k = dims {value=[K]} : i64[1]\n  %m = reshape %k {shape=[]} : i64[]\n"
         "  %t = trim @x, %m {size=[K]} : f32[K]\n",
         "the size depends on itself"},
        {"  %t = trim @n, @n {size=[K]} : i64[]\n", "x must have at least 1 dimensions"},
        {"  %t = trim @x, @x {size=[K]} : f32[K]\n", "count"},
        {"  %t = trim @x, @n {size=[K]} : f32[K]\n  store @s, @n\n",
         "a graph with a size that depends on data cannot store"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024];
        ir_module *m = NULL;
        snprintf(text, sizeof text,
                 "ampc-ir 3\nstate @s : i64[] = 0\ngraph @g(@x : f32[N], @n : i64[]) {\nforward:\n%s"
                 "  output \"y\" = %%t\n}\n",
                 rows[i].body);
        diag_clear(t->d);
        ampc_status status = ir_parse(text, strlen(text), "m.ir", t->d, &m);
        if (status == AMPC_OK) status = ir_verify(m, t->d);
        assert_int_equal(status, AMPC_REJECTED);
        if (!strstr(diag_first_error(t->d), rows[i].message)) fail_msg("%d: %s", (int)i, diag_first_error(t->d));
        ir_module_free(m);
    }
}

TEST_SESSION(training_is_refused)
{
    static const char text[] = "ampc-ir 3\ngraph @forward(@x : f32[4], @n : i64[]) as forward {\nforward:\n"
                               "  %t = trim @x, @n {size=[K]} : f32[K] !NonZero \"find\"\n"
                               "  %y = reduce_sum %t {axes=[0], keepdims=false} : f32[]\n"
                               "  output \"y\" = %y as loss\n}\n";
    assert_int_equal(ir_parse(text, sizeof text - 1, "m.ir", t->d, &module), AMPC_OK);
    const compile_options o = compile_options_default();
    assert_int_equal(test_compile(module, &o, t->d), AMPC_UNSUPPORTED);
    assert_non_null(strstr(diag_first_error(t->d), "node 'find' (NonZero): error: cannot be trained: the size of its "
                                                   "result depends on data"));
}
