/* test_api_borrow.c - tensors whose elements are the caller's: inputs are read in place, results stored in place. */
#include "runtime/api/api.h"
#include "runtime/session/session_state.h"
#include "tests/unit/api_handles.h"

static void note_release(void *user, void *data)
{
    void **released = user;
    assert_null(*released);
    *released = data;
}

static ampc_tensor *borrow(handles *h, ampc_dtype dtype, void *data, void **released)
{
    const int64_t dims[] = {3, 4};
    ampc_tensor *t;
    OK(h->c, ampc_tensor_borrow(h->c, "x", dtype, 2, dims, data, note_release, released, &t));
    return t;
}

/* The session reads the caller's array: neither the tensor nor the run copies it. */
TEST_HANDLES(test_inputs_are_not_copied)
{
    float x[3][4] = {{1}};
    void *released = NULL;
    ampc_tensor *t = borrow(h, AMPC_F32, x, &released), *before, *after;
    assert_ptr_equal(ampc_tensor_data(t), x);
    OK(h->c, ampc_session_run(h->s, "infer", &t, 1));
    assert_ptr_equal(h->s->rt->inputs[0], x);
    OK(h->c, ampc_session_get(h->s, "output/scores", &before));
    x[0][0] = -1;
    OK(h->c, ampc_session_run(h->s, "infer", &t, 1));
    OK(h->c, ampc_session_get(h->s, "output/scores", &after));
    assert_memory_not_equal(ampc_tensor_data(before), ampc_tensor_data(after), ampc_tensor_bytes(after));
    assert_null(released);
    ampc_tensor_free(t);
    assert_ptr_equal(released, x);
    ampc_tensor_free(before);
    ampc_tensor_free(after);
}

/* An input of another type is converted, into memory of the session. */
TEST_HANDLES(test_other_types_are_converted)
{
    double x[3][4] = {{1}};
    void *released = NULL;
    ampc_tensor *t = borrow(h, AMPC_F64, x, &released);
    OK(h->c, ampc_session_run(h->s, "infer", &t, 1));
    assert_ptr_not_equal(h->s->rt->inputs[0], x);
    ampc_tensor_free(t);
    assert_ptr_equal(released, x);
}

TEST_HANDLES(test_results_in_place)
{
    float x[3][4] = {{1, 2}, {3}}, y[3][2] = {{0}};
    double wide[3][2], lr = 0;
    void *released[4] = {NULL};
    const int64_t dims[] = {3, 2}, flat[] = {6};
    ampc_tensor *in = borrow(h, AMPC_F32, x, &released[0]), *out, *other, *copy, *scalar;
    OK(h->c, ampc_session_run(h->s, "infer", &in, 1));
    OK(h->c, ampc_session_get(h->s, "output/scores", &copy));
    OK(h->c, ampc_tensor_borrow(h->c, "y", AMPC_F32, 2, dims, y, note_release, &released[1], &out));
    OK(h->c, ampc_session_get_into(h->s, "output/scores", out));
    assert_memory_equal(y, ampc_tensor_data(copy), sizeof y);
    OK(h->c, ampc_tensor_borrow(h->c, "y", AMPC_F64, 2, dims, wide, NULL, NULL, &other));
    OK(h->c, ampc_session_get_into(h->s, "output/scores", other));
    for (int i = 0; i < 6; i++) assert_true(wide[i / 2][i % 2] == y[i / 2][i % 2]);
    ampc_tensor_free(other);
    OK(h->c, ampc_tensor_borrow(h->c, "y", AMPC_F32, 1, flat, y, NULL, NULL, &other));
    expect_failure(ampc_session_get_into(h->s, "output/scores", other), AMPC_USAGE, h->c, "differ in shape");
    OK(h->c, ampc_tensor_borrow(h->c, "lr", AMPC_F64, 0, NULL, &lr, NULL, NULL, &scalar));
    OK(h->c, ampc_session_get_into(h->s, "state/lr", scalar));
    assert_float_equal(lr, 0.02, 1e-6);
    ampc_tensor *const all[] = {in, out, other, copy, scalar};
    for (int i = 0; i < 5; i++) ampc_tensor_free(all[i]);
    assert_ptr_equal(released[1], y);
}

/* A call that fails does not own the array. */
TEST_HANDLES(test_failure_releases_nothing)
{
    float x[4];
    void *released = NULL;
    const int64_t huge[] = {INT64_MAX, 4};
    ampc_tensor *t = NULL;
    expect_failure(ampc_tensor_borrow(h->c, "x", AMPC_F32, 2, huge, x, note_release, &released, &t), AMPC_USAGE, h->c,
                   "dimension");
    expect_failure(ampc_tensor_borrow(h->c, "x", AMPC_F32, 0, NULL, (char *)x + 1, note_release, &released, &t),
                   AMPC_USAGE, h->c, "not aligned for f32");
    assert_null(t);
    assert_null(released);
}
