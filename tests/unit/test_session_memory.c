/* test_session_memory.c - sessions when allocations fail, and runs that do not allocate. */
#include "runtime/backend/alloc.h"
#include "tests/unit/session_fixture.h"

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
TEST_SESSION(each_allocation_may_fail)
{
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
TEST_SESSION(runs_do_not_allocate)
{
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
TEST_SESSION(session_survives_lack_of_memory)
{
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
