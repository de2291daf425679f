/* test_dnn.c - plans of the libraries: convolutions of well-known networks have engines for sm_90 in every type and layout; the
 * requested layout is passed on; plans are created once, and slow ones once for all processes; races run once; every failing call
 * is reported.
 *
 * The plans are those of the installed cuDNN for the recorded device; numeric tests are in tests/ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/dnn.h"
#include "kernels/epilogue.h"
#include "tests/cuda/double/double.h"

enum { MAX_OPERANDS = 3, MAX_RESULTS = 4, ALIGNMENT = 256 };

static char error[512];
static k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};

static void open_context(bool tune)
{
    if (cuda_context_open(&ctx, 0) != AMPC_OK) fail_msg("%s", error);
    ctx.tune = tune;
}

static void close_context(void) { cuda_context_close(&ctx); }

/* ---- a kernel call ------------------------------------------------------------------------------ */

typedef struct call {
    k_args args;
    k_view in[MAX_OPERANDS], out[MAX_RESULTS];
    ir_attr attr[8];
    int64_t lists[3][6];
    size_t workspace;
} call;

static void call_begin(call *c, ir_op op, int n_in, int n_out)
{
    *c = (call){.args = {.op = op, .n_in = n_in, .n_out = n_out, .ctx = &ctx}};
    c->args.in = c->in;
    c->args.out = c->out;
    c->args.attr = c->attr;
}

/* A wanted view with a placeholder address. */
static k_view view(ir_dtype t, int rank, const int64_t *dims)
{
    k_view v = {.data = (void *)ALIGNMENT, .dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    return v;
}

static ampc_status call_prepare(call *c)
{
    error[0] = 0;
    return cuda_kernel(c->args.op)->prepare(&c->args, &c->args.state, &c->workspace);
}

static void call_release(call *c)
{
    cuda_kernel(c->args.op)->release(c->args.state);
    c->args.state = NULL;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

typedef struct window_row {
    const char *from;
    int spatial;
    int64_t n, channels, filters, group, x[3], kernel[3];
    int64_t stride, dilation, before, after;
} window_row;

static const window_row windows[] = {
    {"LeNet, first", 2, 64, 1, 6, 1, {28, 28}, {5, 5}, 1, 1, 2, 2},
    {"LeNet, second", 2, 64, 6, 16, 1, {14, 14}, {5, 5}, 1, 1, 0, 0},
    {"ResNet, stem", 2, 32, 3, 64, 1, {224, 224}, {7, 7}, 2, 1, 3, 3},
    {"ResNet, reduce", 2, 32, 256, 64, 1, {56, 56}, {1, 1}, 1, 1, 0, 0},
    {"ResNet, 3x3", 2, 32, 64, 64, 1, {56, 56}, {3, 3}, 1, 1, 1, 1},
    {"ResNet, 3x3 of stride 2", 2, 32, 128, 128, 1, {56, 56}, {3, 3}, 2, 1, 1, 1},
    {"ResNet, shortcut", 2, 32, 1024, 2048, 1, {14, 14}, {1, 1}, 2, 1, 0, 0},
    {"ResNeXt, groups", 2, 8, 128, 128, 32, {56, 56}, {3, 3}, 1, 1, 1, 1},
    {"MobileNet, stem", 2, 8, 3, 32, 1, {224, 224}, {3, 3}, 2, 1, 0, 1},
    {"MobileNet, depthwise", 2, 8, 96, 96, 96, {112, 112}, {3, 3}, 2, 1, 1, 1},
    {"ConvNeXt, depthwise 7x7", 2, 8, 96, 96, 96, {56, 56}, {7, 7}, 1, 1, 3, 3},
    {"DeepLab, dilated", 2, 4, 256, 256, 1, {33, 33}, {3, 3}, 1, 6, 6, 6},
    {"SqueezeNet, fire", 2, 8, 16, 64, 1, {55, 55}, {3, 3}, 1, 1, 1, 1},
    {"ViT, patches", 2, 8, 3, 768, 1, {224, 224}, {16, 16}, 16, 1, 0, 0},
    {"DCGAN, generator", 2, 16, 512, 100, 1, {4, 4}, {4, 4}, 1, 1, 0, 0},
    {"WaveNet, causal", 1, 4, 32, 64, 1, {1000}, {2}, 1, 8, 8, 0},
    {"C3D", 3, 2, 3, 64, 1, {16, 112, 112}, {3, 3, 3}, 1, 1, 1, 1},
    {"odd sizes", 2, 3, 5, 7, 1, {13, 11}, {3, 3}, 2, 1, 0, 2},
    {"one element", 2, 1, 1, 1, 1, {1, 1}, {1, 1}, 1, 1, 0, 0},
};
enum { N_WINDOWS = sizeof windows / sizeof *windows };

/* Sets up the convolution of a row, or one of its gradients. */
static void call_convolution(call *c, ir_op op, const window_row *r, ir_dtype in, ir_dtype out)
{
    int64_t x[5] = {r->n, r->channels}, w[5] = {r->filters, r->channels / r->group}, y[5] = {r->n, r->filters};
    const int rank = r->spatial + 2;
    call_begin(c, op, op == IR_OP_conv ? 3 : 2, op == IR_OP_conv_grad_weight ? 2 : 1);
    for (int i = 0; i < r->spatial; i++) {
        x[2 + i] = r->x[i];
        w[2 + i] = r->kernel[i];
        y[2 + i] = (r->x[i] + r->before + r->after - (r->kernel[i] - 1) * r->dilation - 1) / r->stride + 1;
        c->lists[0][i] = r->stride;
        c->lists[1][i] = r->before;
        c->lists[1][r->spatial + i] = r->after;
        c->lists[2][i] = r->dilation;
    }
#define LISTS(op) \
    c->attr[IR_ATTR(op, strides)] = (ir_attr){.list = {c->lists[0], r->spatial}}; \
    c->attr[IR_ATTR(op, pads)] = (ir_attr){.list = {c->lists[1], 2 * r->spatial}}; \
    c->attr[IR_ATTR(op, dilations)] = (ir_attr){.list = {c->lists[2], r->spatial}}; \
    c->attr[IR_ATTR(op, group)].i = r->group
    if (op == IR_OP_conv) {
        LISTS(conv);
        c->in[0] = view(in, rank, x), c->in[1] = view(in, rank, w), c->in[2] = view(in, 1, &r->filters);
        c->out[0] = view(out, rank, y);
    } else if (op == IR_OP_conv_grad_input) {
        LISTS(conv_grad_input);
        c->in[0] = view(in, rank, y), c->in[1] = view(in, rank, w);
        c->out[0] = view(out, rank, x);
    } else {
        LISTS(conv_grad_weight);
        c->in[0] = view(in, rank, y), c->in[1] = view(in, rank, x);
        c->out[0] = view(out, rank, w);
    }
#undef LISTS
}

/* Makes all images and filters of the call NHWC. */
static void call_channels_last(call *c)
{
    for (int i = 0; i < c->args.n_in; i++) c->in[i].channels_last = c->in[i].rank >= 3;
    for (int i = 0; i < c->args.n_out; i++) c->out[i].channels_last = c->out[i].rank >= 3;
}

static const ir_op convolutions[] = {IR_OP_conv, IR_OP_conv_grad_input, IR_OP_conv_grad_weight};
static const ir_dtype types[] = {IR_f32, IR_f16, IR_bf16};

/* Prepares a convolution whose engine must accept operands and result unchanged, without helper kernels of ours. Returns the number
 * of engines. */
static int engines_for(call *c, const char *from)
{
    double_mark();
    if (call_prepare(c) != AMPC_OK || double_count("cudaLibraryGetKernel") != 0)
        fail_msg("%s, %s in %s, channels %s: %s", from, ir_op_get(c->args.op)->name, ir_dtype_name(c->in[0].dtype),
                 c->in[0].channels_last ? "last" : "first", error);
    const int engines = dnn_plan_engines(cuda_of(&ctx)->dnn_plans); /* the newest plan */
    call_release(c);
    return engines;
}

/* Prepares the three ops of a row in each type; stores the smallest number of engines and the workspace sizes. */
static void find_engines(const window_row *r, bool channels_last, int least[3], size_t workspace[3][3])
{
    for (int t = 0; t < 3; t++) {
        least[t] = INT_MAX;
        for (int o = 0; o < 3; o++) {
            call c;
            call_convolution(&c, convolutions[o], r, types[t], types[t]);
            if (channels_last) call_channels_last(&c);
            const int engines = engines_for(&c, r->from);
            if (engines < least[t]) least[t] = engines;
            workspace[t][o] = c.workspace;
        }
    }
}

/* Rows for which tensor cores read NHWC images directly, while NCHW images are transposed in workspace. */
static bool whole_vectors(const window_row *r)
{
    return r->spatial == 2 && r->group == 1 && r->channels % 8 == 0 && r->filters % 8 == 0;
}

static void check_turning(const window_row *r, size_t first[3][3], size_t last[3][3])
{
    const size_t x = (size_t)(r->n * r->channels * r->x[0] * r->x[1]) * sizeof(uint16_t);
    for (int t = 1; t < 3; t++) /* the low types */
        for (int o = 0; o < 3; o++)
            if (first[t][o] < x || last[t][o] > first[t][o] / 16)
                fail_msg("%s, %s in %s: %zu bytes of workspace channels last, %zu channels first", r->from,
                         ir_op_get(convolutions[o])->name, ir_dtype_name(types[t]), last[t][o], first[t][o]);
}

static void networks_have_engines(void **state)
{
    (void)state;
    open_context(false);
    for (int i = 0; i < N_WINDOWS; i++) {
        size_t workspace[2][3][3];
        for (int last = 0; last < 2; last++) {
            int least[3];
            find_engines(&windows[i], last, least, workspace[last]);
            print_message("%s, channels %s: %d engines in f32, %d in f16, %d in bf16\n", windows[i].from,
                          last ? "last" : "first", least[0], least[1], least[2]);
            assert_true(least[0] > 0 && least[1] > 0 && least[2] > 0);
        }
        if (whole_vectors(&windows[i])) check_turning(&windows[i], workspace[0], workspace[1]);
    }
    close_context();
}

/* An f32 result of low operands needs no helper kernels. */
static void channels_last_widens_the_result(void **state)
{
    (void)state;
    open_context(false);
    for (int o = 0; o < 3; o++)
        for (int t = 1; t < 3; t++) {
            call c;
            call_convolution(&c, convolutions[o], &windows[4], types[t], IR_f32);
            call_channels_last(&c);
            assert_true(engines_for(&c, windows[4].from) > 0);
        }
    close_context();
}

/* Why plans compute weight gradients in the type of their operands (runtime/plan/fuse_unscaling.c). */
static void low_gradients_have_more_engines(void **state)
{
    (void)state;
    open_context(false);
    for (int i = 2; i <= 4; i += 2) { /* the stem, and a 3x3 convolution */
        int engines[2];
        size_t workspace[2];
        for (int wide = 0; wide < 2; wide++) {
            call c;
            call_convolution(&c, IR_OP_conv_grad_weight, &windows[i], IR_f16, wide ? IR_f32 : IR_f16);
            call_channels_last(&c);
            if (call_prepare(&c) != AMPC_OK) fail_msg("%s", error);
            engines[wide] = dnn_plan_engines(cuda_of(&ctx)->dnn_plans);
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

static void equal_convolutions_share_a_plan(void **state)
{
    call first, second;
    (void)state;
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

static void f64_is_refused(void **state)
{
    call c;
    (void)state;
    open_context(false);
    call_convolution(&c, IR_OP_conv, &windows[0], IR_f64, IR_f64);
    assert_int_equal(call_prepare(&c), AMPC_UNSUPPORTED);
    assert_string_not_equal(error, "");
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
    dnn_graph g = dnn_begin(&ctx);
    for (int i = 0; i < 3; i++)
        xwy[i] = i == result ? dnn_intermediate(&g, 9, IR_f32, layouts[i]) : dnn_tensor(&g, i, IR_f16, layouts[i]);
    y = dnn_tensor(&g, result, IR_f32, layouts[result]);
    dnn_append_convolution(&g, kind, &windows_of_3, xwy);
    dnn_append_pointwise(&g, CUDNN_POINTWISE_IDENTITY, xwy[result], NULL, y);
    if (dnn_plan_of(&g, (const char *[]){"forward", "dx", "dw"}[kind], &plan) != AMPC_OK) fail_msg("%s", error);
    return plan;
}

/* Runs the forward plan with all elements equal; each result counts the elements in its window. */
static void channels_last_may_change_the_type(void **state)
{
    enum { CHANNELS = 8, SIDE = 5, COUNT = CHANNELS * SIDE * SIDE, HOLDS = 4096, BYTE = 0x3c };
    char *device;
    float *host;
    (void)state;
    open_context(false);
    plan_channels_last(CONV_GRAD_INPUT);
    plan_channels_last(CONV_GRAD_WEIGHT);
    const dnn_plan *plan = plan_channels_last(CONV_FORWARD);
    cudaStream_t stream = cuda_of(&ctx)->stream;
    assert_true(dnn_plan_workspace(plan) <= HOLDS);
    assert_int_equal(cuda.cudaMalloc((void **)&device, 4 * HOLDS), cudaSuccess);
    assert_int_equal(cuda.cudaMallocHost((void **)&host, HOLDS), cudaSuccess);
    cuda.cudaMemsetAsync(device, BYTE, 4 * HOLDS, stream);
    void *data[] = {device, device + HOLDS, device + 2 * HOLDS};
    if (dnn_run(&ctx, plan, 3, (int64_t[]){0, 1, 2}, data, device + 3 * HOLDS) != AMPC_OK) fail_msg("%s", error);
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

/* Allocates the view's memory on the device and fills it with eighths, so that sums of products are exact. */
static void *upload(const k_view *v)
{
    cudaStream_t stream = cuda_of(&ctx)->stream;
    const size_t size = ir_dtype_size(v->dtype);
    char *device, *host;
    assert_int_equal(cuda.cudaMalloc((void **)&device, k_bytes(v)), cudaSuccess);
    assert_int_equal(cuda.cudaMallocHost((void **)&host, k_bytes(v)), cudaSuccess);
    for (int64_t i = 0; i < k_count(v); i++)
        ir_store_f64(v->dtype, host + (size_t)i * size, (double)(i * 37 % 23 - 11) / 8);
    cuda.cudaMemcpyAsync(device, host, k_bytes(v), cudaMemcpyHostToDevice, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
    cuda.cudaFreeHost(host);
    return device;
}

/* Runs a prepared call and returns its result. */
static char *call_run(call *c)
{
    cudaStream_t stream = cuda_of(&ctx)->stream;
    const size_t bytes = k_bytes(&c->out[0]);
    char *host, *copy = malloc(bytes);
    for (int i = 0; i < c->args.n_in; i++) c->in[i].data = upload(&c->in[i]);
    c->out[0].data = upload(&c->out[0]);
    assert_int_equal(cuda.cudaMalloc(&c->args.workspace, c->workspace + 1), cudaSuccess);
    assert_int_equal(cuda.cudaMallocHost((void **)&host, bytes), cudaSuccess);
    if (cuda_kernel(c->args.op)->run(&c->args) != AMPC_OK) fail_msg("%s", error);
    cuda.cudaMemcpyAsync(host, c->out[0].data, bytes, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
    memcpy(copy, host, bytes);
    cuda.cudaFreeHost(host);
    cuda.cudaFree(c->args.workspace);
    cuda.cudaFree(c->out[0].data);
    for (int i = 0; i < c->args.n_in; i++) cuda.cudaFree(c->in[i].data);
    return copy;
}

/* Returns the NHWC result if call number `failing` of the preparation fails; NULL if that is an error. *by_kernels: whether our
 * kernels transposed or cast. */
static char *result_when(long failing, ir_op op, const window_row *r, ir_dtype out, size_t *bytes, bool *by_kernels)
{
    call c;
    char *result = NULL;
    open_context(false);
    call_convolution(&c, op, r, IR_f16, out);
    call_channels_last(&c);
    double_mark();
    double_fail(failing);
    const ampc_status status = call_prepare(&c);
    double_fail(0);
    *bytes = k_bytes(&c.out[0]);
    *by_kernels = double_count("cudaLibraryGetKernel") > 0;
    if (status == AMPC_OK) {
        result = call_run(&c);
        call_release(&c);
    }
    close_context();
    return result;
}

/* If cuDNN rejects the first graph, a fallback must yield the same bits, by transposing or, if the type changes, by casting. */
static void expect_another_way(ir_op op, const window_row *r, ir_dtype out)
{
    size_t bytes;
    bool by_kernels, found = false;
    char *want = result_when(0, op, r, out, &bytes, &by_kernels);
    assert_non_null(want);
    for (long n = 1; n < 400 && !found && !by_kernels; n++) {
        char *got = result_when(n, op, r, out, &bytes, &found);
        if (got && memcmp(got, want, bytes) != 0)
            fail_msg("%s, %s: another way gives other bits", r->from, ir_op_get(op)->name);
        found &= got != NULL;
        free(got);
    }
    if (!found && !by_kernels) fail_msg("%s, %s: there is no other way", r->from, ir_op_get(op)->name);
    free(want);
}

static void there_is_another_way(void **state)
{
    static const window_row rows[] = {
        {"one axis", 1, 2, 6, 8, 2, {9}, {3}, 1, 2, 1, 2},
        {"two axes", 2, 2, 5, 7, 1, {6, 5}, {3, 2}, 2, 1, 1, 0},
        {"three axes", 3, 1, 8, 16, 1, {4, 3, 5}, {2, 1, 3}, 1, 1, 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int o = 0; o < 3; o++) {
            expect_another_way(convolutions[o], &rows[i], IR_f16);
            expect_another_way(convolutions[o], &rows[i], IR_f32);
        }
}

/* ---- races ----------------------------------------------------------------------------------- */

static char folder[64];

static int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

/* Makes the cache unusable. */
static int no_cache(void **state)
{
    (void)state;
    return setenv("XDG_CACHE_HOME", "/dev/null", 1);
}

static int make_cache(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ampc-test-XXXXXX");
    return mkdtemp(folder) ? setenv("XDG_CACHE_HOME", folder, 1) : -1;
}

static int drop_cache(void **state)
{
    no_cache(state);
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void call_matmul(call *c, const int64_t *a, const int64_t *b, const int64_t *y)
{
    call_begin(c, IR_OP_matmul, 3, 1);
    c->in[0] = view(IR_f16, 2, a);
    c->in[1] = view(IR_f16, 2, b);
    c->in[2] = view(IR_f16, 1, &b[1]);
    c->out[0] = view(IR_f16, 2, y);
}

/* Prepares a matmul and a convolution in a new context; returns how often anything was timed. */
static long races(bool tune)
{
    call product, windowed;
    open_context(tune);
    double_mark();
    call_matmul(&product, (int64_t[]){24, 40}, (int64_t[]){40, 16}, (int64_t[]){24, 16});
    call_convolution(&windowed, IR_OP_conv, &windows[N_WINDOWS - 2], IR_f16, IR_f16);
    if (call_prepare(&product) != AMPC_OK || call_prepare(&windowed) != AMPC_OK) fail_msg("%s", error);
    long timed = double_count("cudaEventElapsedTime");
    if (timed) assert_true(double_count("cublasLtMatmul") + double_count("cudnnBackendExecute") > timed);
    call_release(&product);
    call_release(&windowed);
    close_context();
    return timed;
}

static char *cache_file(const char *mode, const char *text)
{
    static char content[4096];
    char path[128];
    snprintf(path, sizeof path, "%s/ampc/tuning", folder);
    FILE *f = fopen(path, mode);
    if (!f) return NULL;
    if (text) fputs(text, f);
    content[text ? 0 : fread(content, 1, sizeof content - 1, f)] = 0;
    fclose(f);
    return content;
}

static void races_are_run_once(void **state)
{
    (void)state;
    assert_int_equal(races(false), 0);
    assert_null(cache_file("r", NULL));
    assert_true(races(true) > 0);
    const char *text = cache_file("r", NULL);
    assert_non_null(text);
    assert_non_null(strstr(text, "matmul f16->f16 24x16x40 bias\n"));
    assert_non_null(strstr(text, "cuDNN "));
    assert_int_equal(races(true), 0);
    assert_int_equal(races(false), 0);
}

/* The engines of created plans, in order, and whether they compile their kernel. */
static struct {
    int64_t engine;
    bool compiles;
} planned[64];
static int n_planned;
static cudnnStatus_t (*set_attribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                      cudnnBackendAttributeType_t, int64_t, const void *);

static void note_engine(cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine;
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n;
    assert_int_equal(cuda.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(cuda.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                   1, &n, &engine),
                     0);
    assert_int_equal(cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                                   &planned[n_planned].engine),
                     0);
    assert_int_equal(cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                   CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, notes),
                     0);
    planned[n_planned].compiles = false;
    while (n-- > 0) planned[n_planned].compiles |= notes[n] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    n_planned++;
    cuda.cudnnBackendDestroyDescriptor(engine);
}

static cudnnStatus_t watch_plans(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) note_engine(*(const cudnnBackendDescriptor_t *)values);
    return set_attribute(d, name, type, count, values);
}

/* No engine races twice before all have raced once, and engines that compile come last. */
static void distinct_engines_race_first(void **state)
{
    static const window_row small = {"small", 2, 2, 16, 16, 1, {8, 8}, {3, 3}, 1, 1, 1, 1};
    int distinct = 0;
    (void)state;
    for (int o = 0; o < 3; o++) {
        call c;
        open_context(true);
        assert_int_equal(cuda_open_dnn(&ctx), AMPC_OK);
        set_attribute = cuda.cudnnBackendSetAttribute;
        cuda.cudnnBackendSetAttribute = watch_plans;
        n_planned = 0;
        call_convolution(&c, convolutions[o], &small, IR_f16, IR_f16);
        call_channels_last(&c);
        const ampc_status status = call_prepare(&c);
        cuda.cudnnBackendSetAttribute = set_attribute;
        if (status != AMPC_OK) fail_msg("%s", error);
        for (int i = 0, repeats = 0; i < n_planned; i++) {
            bool again = false;
            for (int j = 0; j < i; j++) again |= planned[j].engine == planned[i].engine;
            if (i > 0 && planned[i - 1].compiles && !planned[i].compiles)
                fail_msg("engine %d after one that compiles", (int)planned[i].engine);
            if (!again && repeats && !planned[i].compiles)
                fail_msg("engine %d first races at position %d, after repeats", (int)planned[i].engine, i);
            repeats += again;
            distinct += !again;
        }
        call_release(&c);
        close_context();
    }
    assert_true(distinct > 3 * 3);
}

/* A choice made with another order of candidates is a separate entry. */
static void choices_know_the_order(void **state)
{
    (void)state;
    char text[4096], order[32];
    assert_true(races(true) > 0);
    snprintf(text, sizeof text, "%s", cache_file("r", NULL));
    snprintf(order, sizeof order, ", order %d|", DNN_RULES);
    char *at = strstr(text, order);
    assert_non_null(at);
    at[strlen(", order ")]++;
    assert_non_null(cache_file("w", text));
    assert_true(races(true) > 0);
}

/* A matmul that also sums an operand is a different race from the plain matmul. */
static void races_know_the_epilogue(void **state)
{
    call product;
    (void)state;
    assert_true(races(true) > 0);
    open_context(true);
    double_mark();
    call_matmul(&product, (int64_t[]){24, 40}, (int64_t[]){40, 16}, (int64_t[]){24, 16});
    product.in[2].dtype = IR_NO_DTYPE;
    product.out[1 + K_EPILOGUE_SUM_B] = view(IR_f16, 1, (int64_t[]){16});
    product.args.n_out = 1 + K_EPILOGUE_EXTRA_OUT;
    assert_int_equal(cuda_supports_epilogue(&product.args), AMPC_OK);
    assert_int_equal(double_count("cudaEventElapsedTime"), 0);
    if (call_prepare(&product) != AMPC_OK) fail_msg("%s", error);
    assert_true(double_count("cudaEventElapsedTime") > 0);
    call_release(&product);
    close_context();
    assert_non_null(strstr(cache_file("r", NULL), "matmul f16->f16 24x16x40 sum b\n"));
}

static void a_damaged_cache_is_no_cache(void **state)
{
    (void)state;
    assert_true(races(true) > 0);
    assert_non_null(cache_file("w", "x\tmatmul\n999999999999\n\n7\t"));
    assert_true(races(true) > 0);
    assert_int_equal(races(true), 0);
}

/* A cached number without a candidate is ignored. */
static void a_stale_choice_is_measured_again(void **state)
{
    char text[4096];
    (void)state;
    assert_true(races(true) > 0);
    snprintf(text, sizeof text, "%s", cache_file("r", NULL));
    for (char *line = text; *line; line = strchr(line, '\n') + 1) *line = '7', line[1] = '7'; /* 77... */
    assert_non_null(cache_file("w", text));
    assert_true(races(true) > 0);
}

static void a_cache_that_cannot_be_written_is_done_without(void **state)
{
    (void)state;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    assert_true(races(true) > 0);
    assert_true(races(true) > 0);
}

/* Without memory there is no race. */
static void no_memory_no_race(void **state)
{
    (void)state;
    double_memory((size_t)CUDA_LT_WORKSPACE + (1 << 16));
    call product;
    open_context(true);
    double_mark();
    call_matmul(&product, (int64_t[]){2000, 4000}, (int64_t[]){4000, 1000}, (int64_t[]){2000, 1000});
    assert_int_equal(call_prepare(&product), AMPC_OK);
    assert_int_equal(double_count("cudaEventElapsedTime"), 0);
    call_release(&product);
    close_context();
    double_memory((size_t)1 << 30);
}

/* ---- cached plans ------------------------------------------------------------------------------- */

/* The result of a preparation and run in a new context. */
typedef struct outcome {
    long made, read; /* plans created by engines, and plans read from disk */
    long calls;      /* in the preparation */
    size_t workspace, bytes;
    char *result;
} outcome;

/* Its gradient uses an engine that compiles. */
static const window_row compiled = {"compiled", 2, 2, 8, 16, 1, {6, 5}, {3, 3}, 1, 1, 1, 1};

static outcome gradient(bool tune, ir_dtype in)
{
    call c;
    open_context(tune);
    call_convolution(&c, IR_OP_conv_grad_weight, &compiled, in, IR_f32);
    call_channels_last(&c);
    double_mark();
    if (call_prepare(&c) != AMPC_OK) fail_msg("%s", error);
    outcome o = {.made = double_count("cudnnBackendSetAttribute engine"),
                 .read = double_count("cudnnBackendSetAttribute plan"),
                 .calls = double_count("*"),
                 .workspace = c.workspace,
                 .bytes = k_bytes(&c.out[0])};
    o.result = call_run(&c);
    call_release(&c);
    close_context();
    return o;
}

/* Computes a gradient in f16, expecting its plan to be made by engines or read from disk. The result must equal `want`, or becomes
 * `want` if that is NULL. */
static void expect_gradient(bool tune, bool made, bool read, outcome *want)
{
    outcome o = gradient(tune, IR_f16);
    if ((o.made > 0) != made || (o.read > 0) != read) fail_msg("%ld plans were made, %ld read", o.made, o.read);
    if (want->result) {
        assert_int_equal(o.workspace, want->workspace);
        assert_memory_equal(o.result, want->result, o.bytes);
        free(want->result);
    }
    *want = o;
}

static void slow_plans_are_kept(void **state)
{
    outcome first = {.result = NULL};
    (void)state;
    expect_gradient(false, true, false, &first);
    expect_gradient(false, false, true, &first);
    outcome other = gradient(false, IR_bf16); /* another graph */
    assert_true(other.made > 0 && other.read == 0);
    free(other.result);
    free(first.result);
}

/* Finds the only cached plan. */
static void find_kept(char *path, size_t size)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/ampc/plan-*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_true(strlen(found.gl_pathv[0]) < size);
    strcpy(path, found.gl_pathv[0]);
    globfree(&found);
}

/* Replaces the cached plan's text, with a valid seal. */
static void replace_cached(const char *path, const char *text)
{
    cuda_cache_key key = {.name = strtoull(strrchr(path, '-') + 1, NULL, 16)};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 16, SEEK_SET), 0); /* after the magic */
    assert_int_equal(fread(&key.inside, sizeof key.inside, 1, f), 1);
    fclose(f);
    size_t bytes;
    char *kept = cuda_cache_find("plan", &key, (size_t)1 << 30, &bytes);
    assert_non_null(kept);
    free(kept);
    cuda_cache_store("plan", &key, text, strlen(text) + 1);
}

static void change_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(byte ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

static size_t other_version(void) { return CUDNN_VERSION + 1; }

static void what_does_not_fit_is_no_plan(void **state)
{
    static const long damaged[] = {3, 20, 30, 900}; /* offsets in magic, key, size and text */
    outcome first = {.result = NULL};
    char path[256];
    (void)state;
    expect_gradient(false, true, false, &first);
    find_kept(path, sizeof path);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        change_byte(path, damaged[i]);
        expect_gradient(false, true, false, &first);
    }
    assert_int_equal(truncate(path, 5000), 0);
    expect_gradient(false, true, false, &first);
    replace_cached(path, "{\"cudnnVersion\": 1}"); /* cuDNN rejects it */
    expect_gradient(false, true, true, &first);
    expect_gradient(false, false, true, &first);
    size_t (*version)(void) = cuda.cudnnGetVersion;
    cuda.cudnnGetVersion = other_version;
    expect_gradient(false, true, false, &first);
    cuda.cudnnGetVersion = version;
    expect_gradient(false, false, true, &first);
    free(first.result);
}

/* Whatever fails while a plan is read, there is an error or the same result. */
static void reading_a_plan_may_fail(void **state)
{
    outcome first = {.result = NULL};
    char left[256];
    int same = 0;
    (void)state;
    expect_gradient(false, true, false, &first);
    expect_gradient(false, false, true, &first);
    for (long n = 1; n <= first.calls; n++) {
        size_t bytes;
        bool by_kernels;
        error[0] = 0;
        char *result = result_when(n, IR_OP_conv_grad_weight, &compiled, IR_f32, &bytes, &by_kernels);
        if (result) assert_memory_equal(result, first.result, bytes);
        if (!result && !error[0]) fail_msg("call %ld failed without a word", n);
        if (double_live(left, sizeof left)) fail_msg("after call %ld failed there is left: %s", n, left);
        same += result != NULL;
        free(result);
    }
    assert_true(same >= 5); /* create the descriptor, set it twice, finalise it, query it */
    free(first.result);
}

/* A context that tunes caches the winner's plan, others that of the first candidate: two files. A different choice has a different
 * plan. */
static void the_kept_plan_is_the_chosen_one(void **state)
{
    outcome tuned = {.result = NULL}, plain = {.result = NULL};
    char text[4096];
    (void)state;
    expect_gradient(true, true, false, &tuned);
    expect_gradient(true, false, true, &tuned);
    expect_gradient(false, true, false, &plain);
    expect_gradient(false, false, true, &plain);
    snprintf(text, sizeof text, "%s", cache_file("r", NULL));
    text[0] = text[0] == '0' ? '1' : '0';
    assert_non_null(cache_file("w", text));
    expect_gradient(true, true, false, &plain);
    expect_gradient(true, false, true, &plain);
    free(tuned.result);
    free(plain.result);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Opens, prepares, closes; returns the first error. */
static ampc_status attempt(ir_op op, bool tune)
{
    call c;
    ampc_status status = cuda_context_open(&ctx, 0);
    if (status != AMPC_OK) return status;
    ctx.tune = tune;
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
        error[0] = 0;
        ampc_status status = attempt(op, false);
        const char *failed = double_failed();
        double_fail(0);
        if (status != AMPC_OK && !error[0]) fail_msg("%s failed without a word", failed);
        if (double_live(left, sizeof left)) fail_msg("after %s failed there is left: %s", failed, left);
        if (!failed) {
            assert_int_equal(status, AMPC_OK);
            return;
        }
    }
}

static void every_call_may_fail(void **state)
{
    (void)state;
    fail_each_call(IR_OP_matmul);
    fail_each_call(IR_OP_conv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_have_engines),
        cmocka_unit_test(channels_last_widens_the_result),
        cmocka_unit_test(low_gradients_have_more_engines),
        cmocka_unit_test(equal_convolutions_share_a_plan),
        cmocka_unit_test(f64_is_refused),
        cmocka_unit_test(channels_last_may_change_the_type),
        cmocka_unit_test(there_is_another_way),
        cmocka_unit_test_setup_teardown(races_are_run_once, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(distinct_engines_race_first, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(choices_know_the_order, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(races_know_the_epilogue, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(a_damaged_cache_is_no_cache, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(a_stale_choice_is_measured_again, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(a_cache_that_cannot_be_written_is_done_without, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(no_memory_no_race, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(slow_plans_are_kept, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_no_plan, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(reading_a_plan_may_fail, make_cache, drop_cache),
        cmocka_unit_test_setup_teardown(the_kept_plan_is_the_chosen_one, make_cache, drop_cache),
        cmocka_unit_test(every_call_may_fail),
    };
    return cmocka_run_group_tests_name("dnn", tests, no_cache, NULL);
}
