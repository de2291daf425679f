/* calls.c - calls of single kernels on the double. */
#include "tests/cuda/calls.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"

#include <ftw.h>

char call_error[512];
k_context call_ctx = {.threads = 1, .error = call_error, .error_size = sizeof call_error};
char cache_folder[64];
const ir_op convolutions[3] = {IR_OP_conv, IR_OP_conv_grad_input, IR_OP_conv_grad_weight};

const window_row windows[N_WINDOWS] = {
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

void open_context(bool tune)
{
    if (cuda_context_open(&call_ctx, 0) != AMPC_OK) fail_msg("%s", call_error);
    call_ctx.tune = tune;
}

void close_context(void) { cuda_context_close(&call_ctx); }

static void call_begin(call *c, ir_op op, int n_in, int n_out)
{
    *c = (call){.args = {.op = op, .n_in = n_in, .n_out = n_out, .ctx = &call_ctx}};
    c->args.in = c->in;
    c->args.out = c->out;
    c->args.attr = c->attr;
}

k_view view(ir_dtype t, int rank, const int64_t *dims)
{
    k_view v = {.data = (void *)ALIGNMENT, .dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    return v;
}

void call_release(call *c)
{
    cuda_kernel(c->args.op)->release(c->args.state);
    c->args.state = NULL;
}

ampc_status call_prepare(call *c)
{
    call_error[0] = 0;
    const ampc_status status = cuda_kernel(c->args.op)->prepare(&c->args, &c->args.state, &c->workspace);
    if (status != AMPC_OK) call_release(c);
    return status;
}

void call_convolution(call *c, ir_op op, const window_row *r, ir_dtype in, ir_dtype out)
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

void call_channels_last(call *c)
{
    for (int i = 0; i < c->args.n_in; i++) c->in[i].channels_last = c->in[i].rank >= 3;
    for (int i = 0; i < c->args.n_out; i++) c->out[i].channels_last = c->out[i].rank >= 3;
}

/* Allocates the view's memory on the device and fills it with eighths, so that sums of products are exact. */
static void *upload(const k_view *v)
{
    cudaStream_t stream = cuda_of(&call_ctx)->stream;
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

char *call_run(call *c)
{
    cudaStream_t stream = cuda_of(&call_ctx)->stream;
    const size_t bytes = k_bytes(&c->out[0]);
    char *host, *copy = malloc(bytes);
    for (int i = 0; i < c->args.n_in; i++) c->in[i].data = upload(&c->in[i]);
    c->out[0].data = upload(&c->out[0]);
    assert_int_equal(cuda.cudaMalloc(&c->args.workspace, c->workspace + 1), cudaSuccess);
    assert_int_equal(cuda.cudaMallocHost((void **)&host, bytes), cudaSuccess);
    if (cuda_kernel(c->args.op)->run(&c->args) != AMPC_OK) fail_msg("%s", call_error);
    cuda.cudaMemcpyAsync(host, c->out[0].data, bytes, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
    memcpy(copy, host, bytes);
    cuda.cudaFreeHost(host);
    cuda.cudaFree(c->args.workspace);
    cuda.cudaFree(c->out[0].data);
    for (int i = 0; i < c->args.n_in; i++) cuda.cudaFree(c->in[i].data);
    return copy;
}

char *result_if_call_fails(long failing, ir_op op, const window_row *r, ir_dtype out, size_t *bytes, bool *by_kernels)
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

void call_matmul(call *c, const int64_t *a, const int64_t *b, const int64_t *y)
{
    call_begin(c, IR_OP_matmul, 3, 1);
    c->in[0] = view(IR_f16, 2, a);
    c->in[1] = view(IR_f16, 2, b);
    c->in[2] = view(IR_f16, 1, &b[1]);
    c->out[0] = view(IR_f16, 2, y);
}

static int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

int no_cache(void **state)
{
    (void)state;
    return setenv("XDG_CACHE_HOME", "/dev/null", 1);
}

int make_cache(void **state)
{
    (void)state;
    strcpy(cache_folder, "/tmp/ampc-test-XXXXXX");
    return mkdtemp(cache_folder) ? setenv("XDG_CACHE_HOME", cache_folder, 1) : -1;
}

int drop_cache(void **state)
{
    no_cache(state);
    return nftw(cache_folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

char *cache_file(const char *mode, const char *text)
{
    static char content[4096];
    char path[128];
    snprintf(path, sizeof path, "%s/ampc/tuning", cache_folder);
    FILE *f = fopen(path, mode);
    if (!f) return NULL;
    if (text) fputs(text, f);
    content[text ? 0 : fread(content, 1, sizeof content - 1, f)] = 0;
    fclose(f);
    return content;
}
