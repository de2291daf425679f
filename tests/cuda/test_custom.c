/* test_custom.c - custom operators on the CUDA backend: their functions enqueue work on the stream of the session, which is issued,
 * captured and replayed. Trained results equal those of the CPU in every order of device work. */
#include "tests/cuda/double/double.h"
#include "tests/unit/custom_fixture.h"

enum { STEPS = 6 };

static const ampc_session_options on_cuda = {.struct_size = sizeof on_cuda, .device = "cuda", .no_tune = 1};

/* ---- ScaledTanh on the device ----------------------------------------------------------------- */

typedef struct work { /* on the device: y = alpha * tanh(x), or dx = dy * alpha * (1 - tanh(x)^2) */
    ampc_view x, dy, to;
    double alpha;
} work;

static int works; /* how often work has run */

static cudaError_t run_work(void *state)
{
    const work *w = state;
    works++;
    for (size_t i = 0; i < custom_count(&w->x); i++) {
        const double t = tanh(custom_at(&w->x, i));
        custom_set(&w->to, i, w->dy.dtype ? custom_at(&w->dy, i) * w->alpha * (1 - t * t) : w->alpha * t);
    }
    return cudaSuccess;
}

static ampc_status enqueue(const ampc_call *call, const ampc_view *dy, const ampc_view *to)
{
    work *w = malloc(sizeof *w);
    if (!w) return AMPC_NO_MEMORY;
    *w = (work){.x = call->operands[0], .to = *to, .alpha = ampc_attribute_float(call->attributes, "alpha", 1)};
    if (dy) w->dy = *dy;
    if (double_enqueue(call->stream, "ScaledTanh", run_work, w, free) == cudaSuccess) return AMPC_OK;
    snprintf(call->message, call->message_size, "cannot enqueue");
    return AMPC_DEVICE;
}

static ampc_status device_forward(const ampc_call *call, void *user)
{
    custom_log *log = user;
    log->forward++;
    log->dtype = call->operands[0].dtype;
    if (log->status != AMPC_OK) return custom_fail(log, call->message, call->message_size);
    return enqueue(call, NULL, &call->results[0]);
}

static ampc_status device_gradient(const ampc_call *call, void *user)
{
    custom_log *log = user;
    log->gradient++;
    return enqueue(call, &call->result_gradients[0], &call->operand_gradients[0]);
}

/* ---- one training ----------------------------------------------------------------------------- */

static void open_on(handles *h, const char *path, const ampc_compile_options *o, const ampc_session_options *device)
{
    open_context(h);
    ampc_operator op = scaled_tanh(&h->log);
    op.forward_cuda = device_forward;
    op.gradient_cuda = device_gradient;
    OK(h->c, ampc_operator_register(h->c, &op));
    OK(h->c, ampc_module_import(h->c, path, NULL, 0, &h->m));
    OK(h->c, ampc_module_compile(h->m, o));
    OK(h->c, ampc_session_open(h->m, device, &h->s));
}

/* Stores the loss of each step and the trained weights. */
static void train(handles *h, double loss[STEPS], double w[12])
{
    ampc_tensor *in[] = {make_input(h, "x", 5, 3), make_input(h, "label", 5, 4)}, *trained;
    for (int i = 0; i < STEPS; i++) {
        ampc_step_result r = {.struct_size = sizeof r};
        OK(h->c, ampc_train_step(h->s, in, 2, &r));
        loss[i] = r.loss;
    }
    OK(h->c, ampc_session_get(h->s, "param/w", &trained));
    for (size_t i = 0; i < 12; i++) w[i] = tensor_at(trained, i);
    ampc_tensor_free(trained);
    for (int i = 0; i < 2; i++) ampc_tensor_free(in[i]);
}

static void expect_near(const double *is, const double *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(is[i] - expected[i]) < 2e-3)) fail_msg("[%d] is %g, on the CPU %g", i, is[i], expected[i]);
}

static int setup_double(void **state)
{
    double_install();
    double_reset();
    return scratch_setup(state);
}

static int teardown_double(void **state)
{
    double_reset();
    return scratch_teardown(state);
}

#define TEST_CUSTOM(name) TEST_WITH(setup_double, teardown_double, scratch *t, name)

TEST_CUSTOM(test_training)
{
    static const long modes[] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2, 3};
    static const char *const colours[] = {"[white]", "[black]"};
    const char *path = write_tanh(t, ONNX_f32), *file = scratch_path(t, "a.amplist");
    ampc_compile_options o = {
        .struct_size = sizeof o, .loss = "mse", .optimizer = "sgd,lr=0.2", .lists = &file, .n_lists = 1};
    double loss[STEPS], w[12], expected_loss[STEPS], expected_w[12];
    for (int colour = 0; colour < 2; colour++) {
        char list[64];
        handles h;
        snprintf(list, sizeof list, "%s\ncom.example::ScaledTanh\n", colours[colour]);
        scratch_write(t, "a.amplist", list, strlen(list));
        open_on(&h, path, &o, &one_thread);
        train(&h, expected_loss, expected_w);
        close_all(&h);
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            double_reset();
            double_mode(modes[i]);
            open_on(&h, path, &o, &on_cuda);
            works = 0;
            train(&h, loss, w);
            expect_near(loss, expected_loss, STEPS);
            expect_near(w, expected_w, 12);
            assert_int_equal(h.log.dtype, colour ? AMPC_F32 : AMPC_F16);
            assert_true(h.log.forward <= 3 && h.log.gradient <= 3); /* issued once, captured for two sets of inputs */
            assert_int_equal(works, 2 * STEPS);
            close_all(&h);
        }
    }
}

/* ---- failures --------------------------------------------------------------------------------- */

TEST_CUSTOM(test_failures)
{
    handles h;
    const char *path = write_tanh(t, ONNX_f32);
    double_mode(DOUBLE_EAGER);
    open_on(&h, path, NULL, &on_cuda);
    h.log.status = AMPC_DEVICE;
    expect_failure(run_rows(&h, "infer", 3), AMPC_DEVICE, h.c, "forward failed: told to fail in two lines");
    h.log.status = AMPC_OK;
    for (int i = 0; i < 3; i++) {
        if (i == 1) h.log.status = AMPC_REJECTED; /* while the stream is captured */
        const ampc_status status = run_rows(&h, "infer", 3);
        if (i == 1) expect_failure(status, AMPC_REJECTED, h.c, "'f' (com.example::ScaledTanh)");
        else expect_ok(status, h.c, "a run after a failure");
        h.log.status = AMPC_OK;
    }
    close_all(&h);
}

TEST_CUSTOM(test_refusals)
{
    handles h;
    ampc_session *s = NULL;
    const ampc_compile_options o = {.struct_size = sizeof o, .loss = "mse"};
    double_mode(DOUBLE_EAGER);
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.forward_cuda = device_forward; /* no gradient */
    OK(h.c, ampc_operator_register(h.c, &op));
    OK(h.c, ampc_module_import(h.c, write_tanh(t, ONNX_f32), NULL, 0, &h.m));
    OK(h.c, ampc_module_compile(h.m, &o));
    OK(h.c, ampc_session_open(h.m, &on_cuda, &h.s));
    OK(h.c, run_rows(&h, "infer", 3));
    ampc_tensor *in[] = {make_input(&h, "x", 5, 3), make_input(&h, "label", 5, 4)};
    expect_failure(ampc_train_step(h.s, in, 2, NULL), AMPC_UNSUPPORTED, h.c,
                   "operator com.example::ScaledTanh has no gradient on device cuda");
    for (int i = 0; i < 2; i++) ampc_tensor_free(in[i]);
    ampc_session_free(h.s);
    ampc_module_free(h.m);
    h.m = NULL;
    h.s = NULL;
    OK(h.c, ampc_module_import(h.c, write_tanh(t, ONNX_f64), NULL, 0, &h.m));
    OK(h.c, ampc_module_compile(h.m, NULL));
    ampc_status status = ampc_session_open(h.m, &on_cuda, &s);
    if (status == AMPC_OK) {
        h.s = s;
        status = run_rows(&h, "infer", 3);
    }
    expect_failure(status, AMPC_UNSUPPORTED, h.c, "float64 is not supported on CUDA");
    close_all(&h);
}
