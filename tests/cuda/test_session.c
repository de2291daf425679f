/* test_session.c - the host side of the CUDA backend on the double: a training yields the same bits however slow the device is, a
 * step is one launch, and after any failing call there is an error or the right result, and no leak. */
#include "runtime/train/stepper.h"
#include "tests/cuda/trained.h"
#include "tests/messages.h"
#include "tests/tier.h"

#include <math.h>

enum { STEPS = 6, MODES = 7, CALL_PARTS = 8 /* of the failing calls, below the full tier */ };

static const long modes[MODES] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2, 3, 4, 5};

/* ---- one training ---------------------------------------------------------------------------- */

typedef struct outcome {
    ampc_status status;
    double loss[STEPS];
    char *bytes; /* all parameters and states at the end */
    size_t n;
} outcome;

/* Submits all steps, then collects the losses: the first run is issued, later ones are captured and replayed. The caller's inputs
 * change as soon as a run is submitted. */
static ampc_status steps(rt_session *s, diag *d, double *loss)
{
    const ir_graph *step = ir_graph_by_role(module, IR_GRAPH_train_step);
    const rt_readback selected = {ir_output_name(ir_output_by_role(step, IR_OUTPUT_loss)), RT_READBACK_OUTPUT};
    int64_t runs[STEPS];
    rt_tensor inputs[2];
    make_inputs(inputs);
    ampc_status status = rt_session_select_scalars(s, "train_step", &selected, 1, d);
    for (int i = 0; i < STEPS && !status; i++) {
        status = rt_session_submit(s, "train_step", inputs, 2, d, &runs[i]);
        move_points(i + 1);
    }
    move_points(0);
    for (int i = 0; i < STEPS && !status; i++) status = rt_session_collect(s, runs[i], d, &loss[i]);
    return status;
}

static ampc_status read_all(rt_session *s, diag *d, outcome *o)
{
    ampc_status status = AMPC_OK;
    for (int i = 0; i < rt_session_storage_count(s) && !status; i++) {
        rt_tensor t;
        status = rt_session_read(s, i, d, &t);
        if (status) break;
        size_t size = ir_dtype_size(t.dtype);
        for (int k = 0; k < t.rank; k++) size *= (size_t)t.dims[k];
        o->bytes = realloc(o->bytes, o->n + size + 1);
        memcpy(o->bytes + o->n, t.data, size);
        o->n += size;
    }
    return status;
}

static outcome train_outputs(diag *d, bool selected)
{
    outcome o = {.n = 0};
    rt_session *s = NULL;
    o.status = rt_session_open(module, &on_cuda, d, &s);
    if (!o.status && selected) o.status = rt_stepper_select(s, module, NULL, 0, d);
    if (!o.status) o.status = steps(s, d, o.loss);
    if (!o.status) o.status = read_all(s, d, &o);
    rt_session_close(s);
    return o;
}

static outcome train(diag *d) { return train_outputs(d, false); }

static bool same(const outcome *a, const outcome *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0 && memcmp(a->loss, b->loss, sizeof a->loss) == 0;
}

static outcome reference(scratch *t)
{
    begin(DOUBLE_EAGER);
    outcome o = train(t->d);
    if (o.status) fail_msg("%s", diag_first_error(t->d));
    assert_true(isfinite(o.loss[0]) && o.loss[STEPS - 1] < o.loss[0]);
    return o;
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST_SCRATCH(orders_agree)
{
    outcome expected = reference(t);
    for (int i = 1; i < MODES; i++) {
        begin(modes[i]);
        outcome o = train(t->d);
        if (o.status) fail_msg("mode %ld: %s", modes[i], diag_first_error(t->d));
        if (!same(&o, &expected)) fail_msg("mode %ld yields a different result", modes[i]);
        expect_nothing_left("closed");
        free(o.bytes);
    }
    free(expected.bytes);
}

/* After the first two runs of a plan, each step is one graph launch. */
TEST_SCRATCH(a_step_is_one_launch)
{
    static const char *const none[] = {"cudaMalloc",
                                       "cudaFree",
                                       "cudaMallocHost",
                                       "cudaFreeHost",
                                       "cudaLaunchKernel",
                                       "cublasLtMatmul",
                                       "cudaStreamSynchronize",
                                       "cudaDeviceSynchronize",
                                       "cudaEventSynchronize",
                                       "cudaLibraryGetKernel",
                                       "cudaGraphInstantiateWithParams"};
    rt_session *s;
    rt_tensor inputs[2];
    double loss[STEPS];
    int64_t run;
    begin(DOUBLE_EAGER);
    make_inputs(inputs);
    assert_ok(t, rt_session_open(module, &on_cuda, t->d, &s));
    assert_ok(t, steps(s, t->d, loss));
    double_mark();
    for (int i = 0; i < STEPS; i++) assert_ok(t, rt_session_submit(s, "train_step", inputs, 2, t->d, &run));
    assert_int_equal(double_count("cudaGraphLaunch"), STEPS);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (double_count(none[i])) fail_msg("%ld calls of %s in %d steps", double_count(none[i]), none[i], STEPS);
    assert_ok(t, rt_session_collect(s, run, t->d, loss));
    rt_session_close(s);
    expect_nothing_left("closed");
}

/* Selecting outputs does not change the bits, and kernels that only compute other outputs are not launched. */
TEST_SCRATCH(selected_outputs_have_the_same_bits)
{
    outcome expected = reference(t);
    begin(2);
    outcome o = train_outputs(t->d, true);
    if (o.status) fail_msg("%s", diag_first_error(t->d));
    assert_true(same(&o, &expected));
    free(o.bytes);
    free(expected.bytes);
}

/* Four parameters have low copies and gradients; two parameters between them do not. The running statistics of batch norm are
 * updated by select. */
TEST_SCRATCH(updates_share_launches)
{
    static const struct {
        const char *kernel;
        long launches, without_norm;
    } rows[] = {{"check_finite", 0, 2},  {"check_and_square", 2, 0}, {"unscale", 0, 0},
                {"norm_squares", 0, 0},  {"norm_root", 1, 0},        {"adamw", 2, 2},
                {"select_tensors", 1, 1}};
    rt_session *s;
    rt_tensor inputs[2];
    begin(DOUBLE_EAGER);
    make_inputs(inputs);
    assert_ok(t, rt_session_open(module, &on_cuda, t->d, &s));
    for (int norm = 1; norm >= 0; norm--) {
        if (!norm) assert_ok(t, rt_stepper_select(s, module, NULL, 0, t->d));
        double_mark();
        assert_ok(t, rt_session_run(s, "train_step", inputs, 2, t->d));
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const long expected = norm ? rows[i].launches : rows[i].without_norm;
            char launch[64];
            snprintf(launch, sizeof launch, "cudaLaunchKernel %s", rows[i].kernel);
            if (double_count(launch) != expected)
                fail_msg("%ld launches of %s instead of %ld", double_count(launch), rows[i].kernel, expected);
        }
    }
    rt_session_close(s);
    expect_nothing_left("closed");
}

/* There is an error with a message or no effect at all, but never a wrong result without an error. */
TEST_SCRATCH(every_call_may_fail)
{
    outcome expected = reference(t);
    long calls = double_count("*"), failed = 0;
    int reported = 0;
    assert_true(calls > 100);
    tier_print_part("failing calls", CALL_PARTS);
    for (long n = 1; n <= calls; n++) {
        if (!tier_is_due((size_t)n, CALL_PARTS)) continue;
        failed++;
        diag *d = diag_new(NULL, NULL);
        begin(DOUBLE_EAGER);
        double_fail(n);
        outcome o = train(d);
        if (!double_failed()) fail_msg("call %ld of %ld was not made", n, calls);
        if (!o.status && !same(&o, &expected)) fail_msg("call %ld, %s: a wrong result", n, double_failed());
        if (o.status && message_complaint(d)) fail_msg("call %ld, %s: %s", n, double_failed(), message_complaint(d));
        expect_nothing_left(double_failed());
        reported += o.status != AMPC_OK;
        free(o.bytes);
        diag_free(d);
    }
    assert_true(reported > failed / 2);
    free(expected.bytes);
}

/* Device faults in the middle of a step. */
TEST_SCRATCH(operations_may_fault)
{
    static const long which[] = {20, 27, 33, 60, 100};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        for (int mode = 0; mode < 3; mode++) {
            diag *d = diag_new(NULL, NULL);
            begin(modes[mode]);
            double_fault(which[i]);
            outcome o = train(d);
            if (o.status != AMPC_DEVICE)
                fail_msg("operation %ld, mode %ld: status %d: %s", which[i], modes[mode], (int)o.status,
                         diag_first_error(d));
            expect_nothing_left("after a fault");
            free(o.bytes);
            diag_free(d);
        }
}

TEST_SCRATCH(out_of_memory_is_reported)
{
    int said = 0;
    for (size_t bytes = 1 << 10; bytes <= 1 << 26; bytes *= 2) {
        diag *d = diag_new(NULL, NULL);
        begin(DOUBLE_EAGER);
        double_memory(bytes);
        outcome o = train(d);
        if (o.status && o.status != AMPC_NO_MEMORY) fail_msg("%zu bytes: %s", bytes, diag_first_error(d));
        if (o.status && !strstr(diag_first_error(d), "memory")) fail_msg("%s", diag_first_error(d));
        expect_nothing_left("out of memory");
        said += o.status == AMPC_NO_MEMORY;
        free(o.bytes);
        diag_free(d);
    }
    assert_in_range(said, 3, 16);
}

/* The device detects a label out of range; nothing is updated, and the session remains usable. */
TEST_SCRATCH(bad_labels_change_nothing)
{
    for (int mode = 0; mode < MODES; mode++) {
        diag *d = diag_new(NULL, NULL);
        rt_session *s;
        rt_tensor inputs[2];
        double loss[STEPS];
        outcome before = {.n = 0}, after = {.n = 0};
        begin(modes[mode]);
        make_inputs(inputs);
        assert_int_equal(rt_session_open(module, &on_cuda, d, &s), AMPC_OK);
        for (int issued = 1; issued >= 0; issued--) {
            assert_int_equal(read_all(s, d, &before), AMPC_OK);
            labels[ROWS - 1] = 77;
            assert_int_equal(rt_session_run(s, "train_step", inputs, 2, d), AMPC_REJECTED);
            labels[ROWS - 1] = points[ROWS - 1][0] > 0;
            if (!strstr(diag_first_error(d), "label")) fail_msg("%s", diag_first_error(d));
            diag_clear(d);
            assert_int_equal(read_all(s, d, &after), AMPC_OK);
            assert_memory_equal(before.bytes, after.bytes, before.n);
            before.n = after.n = 0;
            if (steps(s, d, loss)) fail_msg("%s", diag_first_error(d));
            assert_true(isfinite(loss[STEPS - 1]));
        }
        rt_session_close(s);
        free(before.bytes);
        free(after.bytes);
        diag_free(d);
    }
}

/* ---- shared weights ---------------------------------------------------------------------------- */

static double loss_of(rt_session *s, diag *d)
{
    rt_tensor inputs[2];
    make_inputs(inputs);
    if (rt_session_run(s, "eval", inputs, 2, d)) fail_msg("%s", diag_first_error(d));
    const rt_tensor *loss = rt_session_output_at(s, rt_session_output_count(s) - 1);
    assert_non_null(loss);
    return ir_load_f64(loss->dtype, loss->data);
}

/* A session on a stream of its own reads the weights and their low-precision copies of another one, which has just
 * written them, and is still there when the other one has been closed. */
TEST_SCRATCH(sessions_share_weights)
{
    for (int m = 0; m < MODES; m++) {
        rt_session *a = NULL, *b = NULL;
        double losses[STEPS];
        rt_tensor inputs[2];
        begin(modes[m]);
        make_inputs(inputs);
        assert_int_equal(rt_session_open(module, &on_cuda, t->d, &a), AMPC_OK);
        assert_int_equal(steps(a, t->d, losses), AMPC_OK);
        rt_session_options o = on_cuda;
        o.share = a;
        assert_int_equal(rt_session_open(module, &o, t->d, &b), AMPC_OK);
        const double loss = loss_of(b, t->d);
        assert_true(isfinite(loss) && loss_of(a, t->d) == loss);
        assert_int_equal(rt_session_run(b, "train_step", inputs, 2, t->d), AMPC_USAGE);
        assert_int_equal(rt_session_run(a, "train_step", inputs, 2, t->d), AMPC_USAGE);
        diag_clear(t->d);
        rt_session_close(a);
        assert_true(loss_of(b, t->d) == loss);
        assert_int_equal(rt_session_run(b, "train_step", inputs, 2, t->d), AMPC_OK);
        assert_true(loss_of(b, t->d) < loss);
        rt_session_close(b);
        expect_nothing_left("shared weights");
    }
}

TEST_GROUP(group_setup, group_teardown)
