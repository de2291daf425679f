/* pool.c - maximum and average pooling over 1 to 3 spatial axes, and their gradients.
 *
 * Every case is reduced to three spatial axes and processed plane by plane (one channel of one image). A table in the
 * workspace has, for each kernel tap of the last two axes and each output, the input position, whatever the strides,
 * dilations and padding. So each tap is one loop over all outputs of a slice, which is long even if rows are short.
 *
 * NHWC views are processed row by row (the points of an image that differ only in the last axis), with vectors along
 * the channels; sums have the same order. The gradient of the maximum, whose indices may point anywhere in a plane, is
 * computed for a block of channels of one image at a time. */
#include "kernels/cpu/cpu.h"
#include "kernels/pooling.h"
#include "ir/ops/real.h"

#include <math.h>
#include <omp.h>

typedef struct geometry {
    pool_axis a[POOL_AXES];
    bool last;   /* NHWC */
    bool padded; /* average: padding counts */
    bool sum;    /* average: without division */
    /* Elements processed at a time: of planes, or in NHWC of rows with all channels. */
    int64_t wide, narrow;
    int64_t planes, channels, in_plane, out_plane;
    int64_t in_slice, out_slice, slice_taps; /* a slice: the last two axes */
    /* [slice_taps][out_slice]: position in the slice of x, or -1 in the padding. */
    int32_t *taps;
    int32_t *counts; /* average, [out_slice]: elements of each window in a slice */
} geometry;

_Static_assert(IR_ATTR(max_pool, kernel) == IR_ATTR(avg_pool, kernel), "one reader");

static geometry geometry_of(const k_args *args)
{
    const bool backward = args->op == IR_OP_avg_pool_grad;
    const k_view *wide = backward ? &args->out[0] : &args->in[0], *narrow = backward ? &args->in[0] : &args->out[0];
    geometry g = {.planes = wide->dims[0] * wide->dims[1], .channels = wide->dims[1], .last = wide->channels_last};
    pool_axes_of(wide, narrow, &args->attr[backward ? IR_ATTR(avg_pool_grad, kernel) : IR_ATTR(avg_pool, kernel)], g.a);
    g.in_slice = g.a[1].in * g.a[2].in;
    g.out_slice = g.a[1].out * g.a[2].out;
    g.slice_taps = g.a[1].kernel * g.a[2].kernel;
    g.in_plane = g.a[0].in * g.in_slice;
    g.out_plane = g.a[0].out * g.out_slice;
    g.wide = g.last ? g.a[2].in * g.channels : g.in_plane;
    g.narrow = g.last ? g.a[2].out * g.channels : g.out_plane;
    return g;
}

/* The input position of tap k of output o along an axis, or -1 in the padding. */
static int64_t position_of(const pool_axis *a, int64_t o, int64_t k)
{
    int64_t i = o * a->stride - a->before + k * a->dilation;
    return i >= 0 && i < a->in ? i : -1;
}

/* The output position whose tap k is input i along an axis, or -1 if there is none. */
static int64_t output_of(const pool_axis *a, int64_t i, int64_t k)
{
    int64_t at = i + a->before - k * a->dilation;
    return at >= 0 && at % a->stride == 0 && at / a->stride < a->out ? at / a->stride : -1;
}

/* NHWC: the row of x in which tap k of the first two axes of output row `row` is, or -1 in the padding. */
static int64_t input_row(const geometry *g, int64_t row, int64_t k)
{
    const pool_axis *d = &g->a[0], *h = &g->a[1];
    int64_t n = row / h->out / d->out;
    int64_t in_d = position_of(d, row / h->out % d->out, k / h->kernel);
    int64_t in_h = position_of(h, row % h->out, k % h->kernel);
    return in_d < 0 || in_h < 0 ? -1 : (n * d->in + in_d) * h->in + in_h;
}

/* The number of taps of output position o along axis i that count: those inside the input or the padded input. */
static int64_t tap_count(const geometry *g, int i, int64_t o)
{
    const pool_axis *a = &g->a[i];
    int64_t low = g->padded ? -a->before : 0, high = a->in + (g->padded ? a->after : 0), n = 0;
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t at = o * a->stride - a->before + k * a->dilation;
        n += at >= low && at < high;
    }
    return n;
}

/* ---- workspace: taps and window counts; per thread a plane (row) of x and two of the size of y's ---- */

static size_t lines(int64_t count, size_t size) { return cpu_lines((size_t)count * size); }

static size_t taps_bytes(const geometry *g) { return lines(g->slice_taps * g->out_slice, sizeof(int32_t)); }

static size_t table_bytes(const geometry *g)
{
    return g->last ? 0 : taps_bytes(g) + lines(g->out_slice, sizeof(int32_t));
}

static size_t thread_bytes(const geometry *g) { return lines(g->wide, 8) + 2 * lines(g->narrow, 8); }

static ampc_status pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const geometry g = geometry_of(args);
    if (g.in_plane > INT32_MAX) return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "an image has 2^31 elements or more");
    *workspace = table_bytes(&g) + (size_t)args->ctx->threads * thread_bytes(&g);
    return AMPC_OK;
}

static void fill_taps(geometry *g, void *workspace)
{
    if (g->last) return;
    const pool_axis *rows = &g->a[1], *columns = &g->a[2];
    int32_t *to = g->taps = workspace;
    for (int64_t k = 0; k < g->slice_taps; k++)
        for (int64_t h = 0; h < rows->out; h++) {
            int64_t row = position_of(rows, h, k / columns->kernel);
            for (int64_t w = 0; w < columns->out; w++) {
                int64_t column = position_of(columns, w, k % columns->kernel);
                *to++ = row < 0 || column < 0 ? -1 : (int32_t)(row * columns->in + column);
            }
        }
}

static void fill_counts(geometry *g, void *workspace)
{
    if (g->last) return;
    int32_t *to = g->counts = (int32_t *)((char *)workspace + taps_bytes(g));
    for (int64_t h = 0; h < g->a[1].out; h++)
        for (int64_t w = 0; w < g->a[2].out; w++) *to++ = (int32_t)(tap_count(g, 1, h) * tap_count(g, 2, w));
}

typedef struct buffers {
    void *wide, *narrow, *extra;
} buffers;

static buffers thread_buffers(const geometry *g, const k_args *args)
{
    buffers b;
    b.wide = (char *)args->workspace + table_bytes(g) + (size_t)omp_get_thread_num() * thread_bytes(g);
    b.narrow = (char *)b.wide + lines(g->wide, 8);
    b.extra = (char *)b.narrow + lines(g->narrow, 8);
    return b;
}

/* Computes plane i or, in NHWC, row i of the result. */
typedef void pool_fn(const k_args *args, const geometry *g, int64_t i);

static void run_all(const k_args *args, const geometry *g, pool_fn *pool)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const pool_axis *a = g->a;
    const int64_t rows = x->dims[0] * (args->op == IR_OP_avg_pool_grad ? a[0].in * a[1].in : a[0].out * a[1].out);
    const int64_t n = k_count(y) == 0 ? 0 : g->last ? rows : g->planes;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_max(k_count(x), k_count(y)))) schedule(static)
    for (int64_t i = 0; i < n; i++) pool(args, g, i);
}

enum { POOL_BLOCK = 64 }; /* channels */

/* Converts a position in a plane (row major) to one in the tensor. */
static int64_t tensor_position(const geometry *g, int64_t plane, int32_t at, bool column_major)
{
    if (at < 0) return -1;
    if (!column_major) return plane * g->in_plane + at;
    int64_t w = at % g->a[2].in, h = at / g->a[2].in % g->a[1].in, d = at / g->in_slice;
    return plane * g->in_plane + (w * g->a[1].in + h) * g->a[0].in + d;
}

/* Stores the indices of plane (row) i. Inference makes them i64. */
static void store_indices(const k_args *args, const geometry *g, int64_t i, const int32_t *position)
{
    if (args->n_out < 2 || !cpu_is_used(&args->out[1])) return;
    const bool column_major = args->attr[IR_ATTR(max_pool, column_major)].i;
    int64_t *to = (int64_t *)args->out[1].data + i * g->narrow;
    int64_t each = g->last ? g->channels : 1; /* interleaved planes */
    int64_t plane = g->last ? i / (g->a[0].out * g->a[1].out) * g->channels : i;
    for (int64_t k = 0; k < g->narrow; k += each)
        for (int64_t c = 0; c < each; c++) to[k + c] = tensor_position(g, plane + c, position[k + c], column_major);
}

#define LOWEST -INFINITY
#define IS_NAN(v) ((v) != (v))
#define REAL float
#include "kernels/cpu/pool_body.h"
#include "kernels/cpu/pool_average.h"
#undef REAL
#define REAL double
#include "kernels/cpu/pool_body.h"
#include "kernels/cpu/pool_average.h"
#undef REAL
#undef LOWEST
#undef IS_NAN
#define LOWEST INT64_MIN
#define IS_NAN(v) false
#define REAL int64_t
#include "kernels/cpu/pool_body.h"
#undef REAL
#undef LOWEST
#undef IS_NAN

/* ---- maximum ---- */

static ampc_status max_pool_run(const k_args *args)
{
    const ir_dtype carrier = cpu_carrier(args->in[0].dtype);
    geometry g = geometry_of(args);
    fill_taps(&g, args->workspace);
    run_all(args, &g, carrier == IR_f32 ? max_pool_float : carrier == IR_f64 ? max_pool_double : max_pool_int64_t);
    return AMPC_OK;
}

/* The buffer size per thread: sums of a plane (or of a block of planes) and a plane of dy. */
static size_t max_grad_bytes(const k_view *dy, const k_view *dx)
{
    int64_t block = dx->channels_last ? k_min(POOL_BLOCK, dx->dims[1]) : 1;
    return lines(pool_plane(dx) * block, 8) + (dx->channels_last ? 0 : lines(pool_plane(dy), 8));
}

static ampc_status max_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    if (args->in[1].dtype != IR_i64) return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "indices must be i64");
    *workspace = (size_t)args->ctx->threads * max_grad_bytes(&args->in[0], &args->out[0]);
    return AMPC_OK;
}

static void max_pool_grad_plane(const k_args *args, int64_t plane, char *buffer)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    int64_t wide = pool_plane(dx), narrow = pool_plane(dy);
    ir_dtype carrier = cpu_carrier(dy->dtype);
    const void *g = cpu_tile_load(dy, plane * narrow, narrow, carrier, buffer + lines(wide, 8));
    void *sums = cpu_tile_target(dx, plane * wide, carrier, buffer);
    memset(sums, 0, (size_t)wide * ir_dtype_size(carrier));
    const int64_t *index = (const int64_t *)args->in[1].data + plane * narrow;
    if (carrier == IR_f64) scatter_double(g, index, narrow, plane * wide, sums, wide);
    else scatter_float(g, index, narrow, plane * wide, sums, wide);
    cpu_tile_store(dx, plane * wide, wide, carrier, sums);
}

/* NHWC: computes block `block` of the channels of image n. */
static void max_pool_grad_block(const k_args *args, int64_t n, int64_t block, char *buffer)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    int64_t wide = pool_plane(dx), channels = dx->dims[1], first = block * POOL_BLOCK;
    int64_t count = k_min(POOL_BLOCK, channels - first), start = n * wide * channels + first;
    ir_dtype carrier = cpu_carrier(dy->dtype);
    char *sums = cpu_tile_target(dx, start, carrier, buffer);
    int64_t step = sums == buffer ? count : channels; /* from point to point in `sums` */
    int64_t adjacent = count == channels ? wide : 1;  /* adjacent points */
    size_t size = ir_dtype_size(carrier);
    for (int64_t p = 0; p < wide; p += adjacent)
        memset(sums + (size_t)(p * step) * size, 0, (size_t)(count * adjacent) * size);
    if (carrier == IR_f64) scatter_points_double(dy, args->in[1].data, n, first, count, wide, (double *)sums, step);
    else scatter_points_float(dy, args->in[1].data, n, first, count, wide, (float *)sums, step);
    for (int64_t p = 0; p < wide && sums == buffer; p += adjacent)
        cpu_tile_store(dx, start + p * channels, count * adjacent, carrier, sums + (size_t)(p * step) * size);
}

static ampc_status max_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    int64_t channels = dx->dims[1], each = dx->channels_last ? cpu_ceil_div(channels, POOL_BLOCK) : channels;
    size_t bytes = max_grad_bytes(dy, dx);
    if (k_count(dx) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(dx))) schedule(static)
    for (int64_t i = 0; i < dx->dims[0] * each; i++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * bytes;
        if (dx->channels_last) max_pool_grad_block(args, i / each, i % each, buffer);
        else max_pool_grad_plane(args, i, buffer);
    }
    return AMPC_OK;
}

/* ---- average ---- */

static ampc_status run_average(const k_args *args, bool padded, bool sum, pool_fn *f32, pool_fn *f64)
{
    geometry g = geometry_of(args);
    g.padded = padded;
    g.sum = sum;
    fill_taps(&g, args->workspace);
    fill_counts(&g, args->workspace);
    run_all(args, &g, args->in[0].dtype == IR_f64 ? f64 : f32);
    return AMPC_OK;
}

static ampc_status avg_pool_run(const k_args *args)
{
    return run_average(args, args->attr[IR_ATTR(avg_pool, count_pad)].i, args->attr[IR_ATTR(avg_pool, sum)].i,
                       avg_pool_float, avg_pool_double);
}

static ampc_status avg_pool_grad_run(const k_args *args)
{
    return run_average(args, args->attr[IR_ATTR(avg_pool_grad, count_pad)].i, args->attr[IR_ATTR(avg_pool_grad, sum)].i,
                       avg_pool_grad_float, avg_pool_grad_double);
}

const k_kernel cpu_max_pool = {.prepare = pool_prepare, .run = max_pool_run};
const k_kernel cpu_max_pool_grad = {.prepare = max_pool_grad_prepare, .run = max_pool_grad_run};
const k_kernel cpu_avg_pool = {.prepare = pool_prepare, .run = avg_pool_run};
const k_kernel cpu_avg_pool_grad = {.prepare = pool_prepare, .run = avg_pool_grad_run};
