/* test_dnn.c - plans of the libraries: convolutions of well-known networks have engines for sm_90 in every type and layout; the
 * requested layout is passed on; plans are created once, and slow ones once for all processes; every failing call is reported.
 *
 * The plans are those of the installed cuDNN for the recorded device; numeric tests are in tests/ops. */

#include <limits.h>

#include "tests/cuda/calls.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"
#include "tests/tier.h"

enum { PARTS = 3 /* of the convolutions whose plans cuDNN compiles, below the full tier */ };

/* ---- convolutions ---------------------------------------------------------------------------- */

static const ir_dtype types[] = {IR_f32, IR_f16, IR_bf16};

/* Prepares a convolution whose engine must accept operands and result unchanged, without helper kernels of ours. Returns the number
 * of engines. */
static int engines_for(call *c, const char *from)
{
    double_mark();
    if (call_prepare(c) != AMPC_OK || double_count("cudaLibraryGetKernel") != 0)
        fail_msg("%s, %s in %s, channels %s: %s", from, ir_op_get(c->args.op)->name, ir_dtype_name(c->in[0].dtype),
                 c->in[0].channels_last ? "last" : "first", call_error);
    const int engines = dnn_plan_engines(cuda_of(&call_ctx)->dnn_plans); /* the newest plan */
    call_release(c);
    return engines;
}

/* Prepares the three ops of a row in each type; stores the smallest number of engines and the workspace sizes. */
static void find_engines(const window_row *r, bool channels_last, int min_engines[3], size_t workspace[3][3])
{
    for (int t = 0; t < 3; t++) {
        min_engines[t] = INT_MAX;
        for (int o = 0; o < 3; o++) {
            call c;
            call_convolution(&c, convolutions[o], r, types[t], types[t]);
            if (channels_last) call_channels_last(&c);
            const int engines = engines_for(&c, r->from);
            if (engines < min_engines[t]) min_engines[t] = engines;
            workspace[t][o] = c.workspace;
        }
    }
}

/* Rows for which tensor cores read NHWC images directly, while NCHW images are transposed in workspace. */
static bool has_full_vectors(const window_row *r)
{
    return r->spatial == 2 && r->group == 1 && r->channels % 8 == 0 && r->filters % 8 == 0;
}

static void check_workspace(const window_row *r, size_t first[3][3], size_t last[3][3])
{
    const size_t x = (size_t)(r->n * r->channels * r->x[0] * r->x[1]) * sizeof(uint16_t);
    for (int t = 1; t < 3; t++) /* the low types */
        for (int o = 0; o < 3; o++)
            if (first[t][o] < x || last[t][o] > first[t][o] / 16)
                fail_msg("%s, %s in %s: %zu bytes of workspace channels last, %zu channels first", r->from,
                         ir_op_get(convolutions[o])->name, ir_dtype_name(types[t]), last[t][o], first[t][o]);
}

TEST(networks_have_engines)
{
    open_context(false);
    for (int i = 0; i < N_WINDOWS; i++) {
        size_t workspace[2][3][3];
        for (int last = 0; last < 2; last++) {
            int min_engines[3];
            find_engines(&windows[i], last, min_engines, workspace[last]);
            print_message("%s, channels %s: %d engines in f32, %d in f16, %d in bf16\n", windows[i].from,
                          last ? "last" : "first", min_engines[0], min_engines[1], min_engines[2]);
            assert_true(min_engines[0] > 0 && min_engines[1] > 0 && min_engines[2] > 0);
        }
        if (has_full_vectors(&windows[i])) check_workspace(&windows[i], workspace[0], workspace[1]);
    }
    close_context();
}

/* An f32 result of low operands needs no helper kernels. */
TEST(channels_last_widens_the_result)
{
    open_context(false);
    tier_print_part("ops", PARTS);
    for (int o = 0; o < 3; o++)
        for (int t = 1; t < 3; t++) {
            if (!tier_is_due((size_t)(o + t), PARTS)) continue;
            call c;
            call_convolution(&c, convolutions[o], &windows[4], types[t], IR_f32);
            call_channels_last(&c);
            assert_true(engines_for(&c, windows[4].from) > 0);
        }
    close_context();
}

/* Why plans compute weight gradients in the type of their operands (runtime/plan/fuse_unscaling.c). */
TEST(low_gradients_have_more_engines)
{
    open_context(false);
    for (int i = 2; i <= 4; i += 2) { /* the stem, and a 3x3 convolution */
        int engines[2];
        size_t workspace[2];
        for (int wide = 0; wide < 2; wide++) {
            call c;
            call_convolution(&c, IR_OP_conv_grad_weight, &windows[i], IR_f16, wide ? IR_f32 : IR_f16);
            call_channels_last(&c);
            if (call_prepare(&c) != AMPC_OK) fail_msg("%s", call_error);
            engines[wide] = dnn_plan_engines(cuda_of(&call_ctx)->dnn_plans);
            workspace[wide] = c.workspace;
            call_release(&c);
        }
        print_message("%s: %d engines and %.1f MB of workspace in f16, %d and %.1f MB in f32\n", windows[i].from,
                      engines[0], (double)workspace[0] / 1e6, engines[1], (double)workspace[1] / 1e6);
        assert_true(engines[0] > 2 * engines[1]);
        if (i == 2) assert_true(workspace[0] < workspace[1] / 2);
    }
    close_context();
}

/* In f16, compiled engines sum the result (kernels/statistics.h); in the other types they would have to be compiled. */
TEST(networks_sum_their_results)
{
    int rows = 0;
    open_context(false);
    for (int i = 0; i < N_WINDOWS; i++)
        for (int t = 0; t < 3 && has_full_vectors(&windows[i]); t++) {
            call c;
            call_convolution(&c, IR_OP_conv, &windows[i], types[t], types[t]);
            call_channels_last(&c);
            c.in[IR_IN(conv, bias)].dtype = IR_NO_DTYPE;
            for (int k = 0; k < K_SLOT(statistics, n_out); k++)
                c.out[c.args.n_out++] = view(IR_f32, 1, &windows[i].filters);
            const ampc_status status = call_prepare(&c);
            if (status != (types[t] == IR_f16 ? AMPC_OK : AMPC_UNSUPPORTED))
                fail_msg("%s in %s: %s", windows[i].from, ir_dtype_name(types[t]), call_error);
            call_release(&c);
            rows++;
        }
    assert_true(rows > 3);
    close_context();
}

TEST(equal_convolutions_share_a_plan)
{
    call first, second;
    open_context(false);
    call_convolution(&first, IR_OP_conv, &windows[4], IR_f16, IR_f16);
    assert_int_equal(call_prepare(&first), AMPC_OK);
    call_convolution(&second, IR_OP_conv, &windows[4], IR_f16, IR_f16);
    double_mark();
    assert_int_equal(call_prepare(&second), AMPC_OK);
    assert_int_equal(double_count("*"), 0);
    assert_int_equal(second.workspace, first.workspace);
    call_release(&first);
    call_convolution(&first, IR_OP_conv, &windows[4], IR_bf16, IR_bf16);
    assert_int_equal(call_prepare(&first), AMPC_OK);
    assert_true(double_count("*") > 0);
    call_release(&first);
    call_convolution(&first, IR_OP_conv, &windows[4], IR_f16, IR_f16);
    call_channels_last(&first);
    double_mark();
    assert_int_equal(call_prepare(&first), AMPC_OK);
    assert_true(double_count("*") > 0);
    call_release(&first);
    call_release(&second);
    close_context();
}

TEST(f64_is_rejected)
{
    call c;
    open_context(false);
    call_convolution(&c, IR_OP_conv, &windows[0], IR_f64, IR_f64);
    assert_int_equal(call_prepare(&c), AMPC_UNSUPPORTED);
    assert_string_not_equal(call_error, "");
    close_context();
}

/* In NHWC, results of another type need no separate cast. */
static const dnn_plan *plan_channels_last(conv_kind kind)
{
    enum { CHANNELS = 8, SIDE = 5, KERNEL = 3 };
    const dnn_layout image = {4, {1, CHANNELS, SIDE, SIDE}, {CHANNELS * SIDE * SIDE, 1, CHANNELS * SIDE, CHANNELS}};
    const dnn_layout filter = {
        4, {CHANNELS, CHANNELS, KERNEL, KERNEL}, {CHANNELS * KERNEL * KERNEL, 1, CHANNELS * KERNEL, CHANNELS}};
    const dnn_layout *layouts[] = {&image, &filter, &image};
    const conv_geometry windows_of_3 = {
        .spatial = 2, .stride = {1, 1}, .dilation = {1, 1}, .before = {1, 1}, .after = {1, 1}};
    const int result = kind == CONV_FORWARD ? 2 : kind == CONV_GRAD_INPUT ? 0 : 1;
    const dnn_plan *plan = NULL;
    dnn_descriptor xwy[3], y;
    dnn_graph g = dnn_begin(&call_ctx);
    for (int i = 0; i < 3; i++)
        xwy[i] = i == result ? dnn_intermediate(&g, 9, IR_f32, layouts[i]) : dnn_tensor(&g, i, IR_f16, layouts[i]);
    y = dnn_tensor(&g, result, IR_f32, layouts[result]);
    dnn_append_convolution(&g, kind, &windows_of_3, xwy);
    dnn_append_pointwise(&g, CUDNN_POINTWISE_IDENTITY, xwy[result], NULL, y);
    if (dnn_plan_of(&g, (const char *[]){"forward", "dx", "dw"}[kind], &plan) != AMPC_OK) fail_msg("%s", call_error);
    return plan;
}

/* Runs the forward plan with all elements equal; each result counts the elements in its window. */
TEST(channels_last_may_change_the_type)
{
    enum { CHANNELS = 8, SIDE = 5, COUNT = CHANNELS * SIDE * SIDE, HOLDS = 4096, BYTE = 0x3c };
    char *device;
    float *host;
    open_context(false);
    plan_channels_last(CONV_GRAD_INPUT);
    plan_channels_last(CONV_GRAD_WEIGHT);
    const dnn_plan *plan = plan_channels_last(CONV_FORWARD);
    cudaStream_t stream = cuda_of(&call_ctx)->stream;
    assert_true(dnn_plan_workspace(plan) <= HOLDS);
    assert_int_equal(cuda.cudaMalloc((void **)&device, 4 * HOLDS), cudaSuccess);
    assert_int_equal(cuda.cudaMallocHost((void **)&host, HOLDS), cudaSuccess);
    cuda.cudaMemsetAsync(device, BYTE, 4 * HOLDS, stream);
    void *data[] = {device, device + HOLDS, device + 2 * HOLDS};
    if (dnn_run(&call_ctx, plan, 3, (int64_t[]){0, 1, 2}, data, device + 3 * HOLDS) != AMPC_OK)
        fail_msg("%s", call_error);
    cuda.cudaMemcpyAsync(host, data[2], COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
    const float product = ir_f16_to_f32(BYTE << 8 | BYTE) * ir_f16_to_f32(BYTE << 8 | BYTE) * CHANNELS;
    for (int i = 0; i < COUNT; i++) {
        int row = i / CHANNELS / SIDE, column = i / CHANNELS % SIDE;
        int under = (row % (SIDE - 1) ? 3 : 2) * (column % (SIDE - 1) ? 3 : 2);
        assert_float_equal(host[i], product * (float)under, 1e-3);
    }
    cuda.cudaFree(device);
    cuda.cudaFreeHost(host);
    close_context();
}

/* ---- fallbacks ---------------------------------------------------------------------------------- */

/* If cuDNN rejects the first graph, a fallback must yield the same bits, by transposing or, if the type changes, by casting. */
static void expect_fallback(ir_op op, const window_row *r, ir_dtype out)
{
    size_t bytes;
    bool by_kernels, found = false;
    char *expected = result_if_call_fails(0, op, r, out, &bytes, &by_kernels);
    assert_non_null(expected);
    for (long n = 1; n < 400 && !found && !by_kernels; n++) {
        char *got = result_if_call_fails(n, op, r, out, &bytes, &found);
        if (got && memcmp(got, expected, bytes) != 0)
            fail_msg("%s, %s: the fallback yields different bits", r->from, ir_op_get(op)->name);
        found &= got != NULL;
        free(got);
    }
    if (!found && !by_kernels) fail_msg("%s, %s: there is no fallback", r->from, ir_op_get(op)->name);
    free(expected);
}

TEST(fallbacks_yield_the_same_bits)
{
    static const window_row rows[] = {
        {"one axis", 1, 2, 6, 8, 2, {9}, {3}, 1, 2, 1, 2},
        {"two axes", 2, 2, 5, 7, 1, {6, 5}, {3, 2}, 2, 1, 1, 0},
        {"three axes", 3, 1, 8, 16, 1, {4, 3, 5}, {2, 1, 3}, 1, 1, 1, 1},
    };
    tier_print_part("fallbacks", PARTS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int o = 0; o < 3; o++) {
            if (!tier_is_due(i + (size_t)o, PARTS)) continue;
            expect_fallback(convolutions[o], &rows[i], IR_f16);
            expect_fallback(convolutions[o], &rows[i], IR_f32);
        }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Opens, prepares, closes; returns the first error. */
static ampc_status attempt(ir_op op, bool tune)
{
    call c;
    ampc_status status = cuda_context_open(&call_ctx, 0);
    if (status != AMPC_OK) return status;
    call_ctx.tune = tune;
    if (op == IR_OP_matmul) call_matmul(&c, (int64_t[]){3, 5}, (int64_t[]){5, 7}, (int64_t[]){3, 7});
    else call_convolution(&c, op, &windows[N_WINDOWS - 1], IR_f16, IR_f16);
    status = call_prepare(&c);
    if (status == AMPC_OK) call_release(&c);
    close_context();
    return status;
}

/* Makes each call fail in turn: there must be an error with a message, or no effect, and never a leak. */
static void fail_each_call(ir_op op)
{
    char left[256];
    for (long n = 1;; n++) {
        double_fail(n);
        call_error[0] = 0;
        ampc_status status = attempt(op, false);
        const char *failed = double_failed();
        double_fail(0);
        if (status != AMPC_OK && !call_error[0]) fail_msg("%s failed without a message", failed);
        if (double_live(left, sizeof left)) fail_msg("%s failed and leaked: %s", failed, left);
        if (!failed) {
            assert_int_equal(status, AMPC_OK);
            return;
        }
    }
}

TEST(every_call_may_fail)
{
    fail_each_call(IR_OP_matmul);
    fail_each_call(IR_OP_conv);
}

TEST_GROUP(no_cache, NULL)
