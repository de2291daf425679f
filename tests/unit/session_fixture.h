/* session_fixture.h - a module from IR text and its session, for the tests of sessions. */
#ifndef TESTS_SESSION_FIXTURE_H
#define TESTS_SESSION_FIXTURE_H

#include "tests/module.h"
#include "tests/session.h"
#include "tests/unit/scratch.h"

static ir_module *module;
static rt_session *session;

static inline void load(scratch *t, const char *text) { module = test_module(t->d, text); }

static inline ampc_status open_with(scratch *t, const rt_session_options *o)
{
    return rt_session_open(module, o, t->d, &session);
}

static inline void start(scratch *t, const char *text)
{
    load(t, text);
    if (open_with(t, &(rt_session_options){.threads = 2}) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static inline void drop(void)
{
    rt_session_close(session);
    ir_module_free(module);
    session = NULL;
    module = NULL;
}

static inline int finish(void **state)
{
    drop();
    return scratch_teardown(state);
}

static inline rt_tensor vector(const char *name, ir_dtype t, int64_t n, void *data)
{
    return (rt_tensor){.name = name, .dtype = t, .rank = 1, .dims = {n}, .data = data};
}

static inline void run_ok(scratch *t, const char *graph, const rt_tensor *inputs, int n)
{
    if (rt_session_run(session, graph, inputs, n, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static inline void expect_floats(const char *output, int n, const float *values)
{
    const rt_tensor *y = rt_session_output(session, output);
    assert_non_null(y);
    assert_int_equal(y->dtype, IR_f32);
    int64_t count = 1;
    for (int i = 0; i < y->rank; i++) count *= y->dims[i];
    assert_int_equal(count, n);
    for (int i = 0; i < n; i++) assert_true(((const float *)y->data)[i] == values[i]);
}

static inline const float *storage_floats(scratch *t, const char *name)
{
    rt_tensor v;
    assert_int_equal(test_storage(session, name, t->d, &v), AMPC_OK);
    return v.data;
}

/* ---- modules ---- */

static const char doubled[] = "graph @g(@x : f32[N]) {\nforward:\n  %y = add @x, @x : f32[N]\n"
                              "  output \"y\" = %y\n}\n";

static const char counting[] = "param @w : f32[3] = [1, 2, 3]\nstate @n : i64[] = 0\nconst @one : i64[] = 1\n"
                               "state @lr : f32[] = 0.5\n"
                               "graph @g(@d : f32[3], @i : i64[K]) {\nforward:\n"
                               "  %y = gather @w, @i : f32[K]\n  output \"y\" = %y\n  output \"old\" = @w\n"
                               "update:\n"
                               "  %w1 = sgd @w, @d, @lr : f32[3]\n  %n1 = add @n, @one : i64[]\n"
                               "  store @w, %w1\n  store @n, %n1\n}\n";

#define TEST_SESSION(name) TEST_WITH(scratch_setup, finish, scratch *t, name)

#endif
