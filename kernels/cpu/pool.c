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
#include "ir/real.h"

#include <math.h>
#include <omp.h>

typedef struct geometry {
    pool_axis a[POOL_AXES];
    bool last; /* NHWC */
    /* Elements processed at a time: of planes, or in NHWC of rows with all channels. */
    int64_t wide, narrow;
    int64_t planes, channels, in_plane, out_plane;
    int64_t in_slice, out_slice, slice_taps; /* a slice: the last two axes */
    /* [slice_taps][out_slice]: position in the slice of x, or -1 in the padding. */
    int32_t *taps;
    int32_t *counts; /* average, [out_slice]: elements of each window in a slice */
} geometry;

/* `wide` is the unpooled view, `narrow` the pooled one; attr points at the `kernel` attribute. */
static geometry geometry_of(const k_view *wide, const k_view *narrow, const ir_attr *attr)
{
    geometry g = {.planes = wide->dims[0] * wide->dims[1], .channels = wide->dims[1], .last = wide->channels_last};
    pool_axes_of(wide, narrow, attr, g.a);
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

/* The number of taps of output position o along an axis that are inside the input, or inside the padded input. */
static int64_t tap_count(const pool_axis *a, int64_t o, bool padded)
{
    int64_t low = padded ? -a->before : 0, high = a->in + (padded ? a->after : 0), n = 0;
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t i = o * a->stride - a->before + k * a->dilation;
        n += i >= low && i < high;
    }
    return n;
}

/* ---- workspace: taps and window counts; per thread a plane (row) of x and two of the size of y's ---- */

static size_t lines(int64_t count, size_t size) { return ((size_t)count * size + 63) / 64 * 64; }

static size_t taps_bytes(const geometry *g) { return lines(g->slice_taps * g->out_slice, sizeof(int32_t)); }

static size_t table_bytes(const geometry *g)
{
    return g->last ? 0 : taps_bytes(g) + lines(g->out_slice, sizeof(int32_t));
}

static size_t thread_bytes(const geometry *g) { return lines(g->wide, 8) + 2 * lines(g->narrow, 8); }

static ampc_status ask_workspace(const geometry *g, const k_context *ctx, size_t *workspace)
{
    if (g->in_plane > INT32_MAX) return cpu_fail(ctx, AMPC_UNSUPPORTED, "an image has 2^31 elements or more");
    *workspace = table_bytes(g) + (size_t)ctx->threads * thread_bytes(g);
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

static void fill_counts(geometry *g, void *workspace, bool padded)
{
    if (g->last) return;
    int32_t *to = g->counts = (int32_t *)((char *)workspace + taps_bytes(g));
    for (int64_t h = 0; h < g->a[1].out; h++)
        for (int64_t w = 0; w < g->a[2].out; w++)
            *to++ = (int32_t)(tap_count(&g->a[1], h, padded) * tap_count(&g->a[2], w, padded));
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

/* Runs `plane` for each plane, or in NHWC `row` for each of `rows` rows. */
typedef void pool_fn(const k_args *args, const geometry *g, int64_t i);

static void run_all(const k_args *args, const geometry *g, int64_t elements, pool_fn *plane, pool_fn *row, int64_t rows)
{
    pool_fn *one = g->last ? row : plane;
    int64_t n = g->last ? rows : g->planes;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, elements)) schedule(static)
    for (int64_t i = 0; i < n; i++) one(args, g, i);
}

static int64_t out_rows(const geometry *g, const k_view *v) { return v->dims[0] * g->a[0].out * g->a[1].out; }
static int64_t in_rows(const geometry *g, const k_view *v) { return v->dims[0] * g->a[0].in * g->a[1].in; }

enum { POOL_BLOCK = 64 }; /* channels */

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

static ampc_status max_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    geometry g = geometry_of(&args->in[0], &args->out[0], &args->attr[IR_ATTR(max_pool, kernel)]);
    return ask_workspace(&g, args->ctx, workspace);
}

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

static void max_pool_plane(const k_args *args, const geometry *g, int64_t plane)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const buffers b = thread_buffers(g, args);
    ir_dtype carrier = cpu_carrier(x->dtype);
    const void *from = cpu_tile_load(x, plane * g->wide, g->wide, carrier, b.wide);
    void *to = cpu_tile_target(y, plane * g->narrow, carrier, b.narrow);
    if (carrier == IR_f32) max_plane_float(g, from, to, b.extra);
    else if (carrier == IR_f64) max_plane_double(g, from, to, b.extra);
    else max_plane_int64_t(g, from, to, b.extra);
    cpu_tile_store(y, plane * g->narrow, g->narrow, carrier, to);
    store_indices(args, g, plane, b.extra);
}

static void max_pool_row(const k_args *args, const geometry *g, int64_t row)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const buffers b = thread_buffers(g, args);
    ir_dtype carrier = cpu_carrier(x->dtype);
    void *to = cpu_tile_target(y, row * g->narrow, carrier, b.narrow);
    if (carrier == IR_f32) max_row_float(g, x, row, b.wide, to, b.extra);
    else if (carrier == IR_f64) max_row_double(g, x, row, b.wide, to, b.extra);
    else max_row_int64_t(g, x, row, b.wide, to, b.extra);
    cpu_tile_store(y, row * g->narrow, g->narrow, carrier, to);
    store_indices(args, g, row, b.extra);
}

static ampc_status max_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(max_pool, kernel)]);
    if (k_count(y) == 0) return AMPC_OK;
    fill_taps(&g, args->workspace);
    run_all(args, &g, k_count(x), max_pool_plane, max_pool_row, out_rows(&g, x));
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
    int64_t together = count == channels ? wide : 1;  /* adjacent points */
    size_t size = ir_dtype_size(carrier);
    for (int64_t p = 0; p < wide; p += together)
        memset(sums + (size_t)(p * step) * size, 0, (size_t)(count * together) * size);
    if (carrier == IR_f64) scatter_points_double(dy, args->in[1].data, n, first, count, wide, (double *)sums, step);
    else scatter_points_float(dy, args->in[1].data, n, first, count, wide, (float *)sums, step);
    for (int64_t p = 0; p < wide && sums == buffer; p += together)
        cpu_tile_store(dx, start + p * channels, count * together, carrier, sums + (size_t)(p * step) * size);
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

static ampc_status avg_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    geometry g = geometry_of(&args->in[0], &args->out[0], &args->attr[IR_ATTR(avg_pool, kernel)]);
    return ask_workspace(&g, args->ctx, workspace);
}

static void avg_pool_plane(const k_args *args, const geometry *g, int64_t plane)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const bool padded = args->attr[IR_ATTR(avg_pool, count_pad)].i;
    const buffers b = thread_buffers(g, args);
    ir_dtype carrier = cpu_carrier(x->dtype);
    const void *from = cpu_tile_load(x, plane * g->wide, g->wide, carrier, b.wide);
    void *to = cpu_tile_target(y, plane * g->narrow, carrier, b.narrow);
    if (carrier == IR_f64) average_plane_double(g, from, to, padded);
    else average_plane_float(g, from, to, padded);
    cpu_tile_store(y, plane * g->narrow, g->narrow, carrier, to);
}

static void avg_pool_row(const k_args *args, const geometry *g, int64_t row)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const bool padded = args->attr[IR_ATTR(avg_pool, count_pad)].i;
    const buffers b = thread_buffers(g, args);
    ir_dtype carrier = cpu_carrier(x->dtype);
    void *to = cpu_tile_target(y, row * g->narrow, carrier, b.narrow);
    if (carrier == IR_f64) average_row_double(g, x, row, b.wide, to, padded);
    else average_row_float(g, x, row, b.wide, to, padded);
    cpu_tile_store(y, row * g->narrow, g->narrow, carrier, to);
}

static ampc_status avg_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(avg_pool, kernel)]);
    if (k_count(y) == 0) return AMPC_OK;
    fill_taps(&g, args->workspace);
    fill_counts(&g, args->workspace, args->attr[IR_ATTR(avg_pool, count_pad)].i);
    run_all(args, &g, k_count(x), avg_pool_plane, avg_pool_row, out_rows(&g, x));
    return AMPC_OK;
}

static ampc_status avg_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    geometry g = geometry_of(&args->out[0], &args->in[0], &args->attr[IR_ATTR(avg_pool_grad, kernel)]);
    return ask_workspace(&g, args->ctx, workspace);
}

static void avg_pool_grad_plane(const k_args *args, const geometry *g, int64_t plane)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const bool padded = args->attr[IR_ATTR(avg_pool_grad, count_pad)].i;
    const buffers b = thread_buffers(g, args);
    ir_dtype carrier = cpu_carrier(dy->dtype);
    const void *from = cpu_tile_load(dy, plane * g->narrow, g->narrow, carrier, b.narrow);
    void *to = cpu_tile_target(dx, plane * g->wide, carrier, b.wide);
    if (carrier == IR_f64) spread_plane_double(g, from, to, b.extra, padded);
    else spread_plane_float(g, from, to, b.extra, padded);
    cpu_tile_store(dx, plane * g->wide, g->wide, carrier, to);
}

static void avg_pool_grad_row(const k_args *args, const geometry *g, int64_t row)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const bool padded = args->attr[IR_ATTR(avg_pool_grad, count_pad)].i;
    const buffers b = thread_buffers(g, args);
    ir_dtype carrier = cpu_carrier(dy->dtype);
    void *to = cpu_tile_target(dx, row * g->wide, carrier, b.wide);
    if (carrier == IR_f64) spread_row_double(g, dy, row, b.narrow, b.extra, to, padded);
    else spread_row_float(g, dy, row, b.narrow, b.extra, to, padded);
    cpu_tile_store(dx, row * g->wide, g->wide, carrier, to);
}

static ampc_status avg_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    geometry g = geometry_of(dx, dy, &args->attr[IR_ATTR(avg_pool_grad, kernel)]);
    if (k_count(dx) == 0) return AMPC_OK;
    fill_taps(&g, args->workspace);
    fill_counts(&g, args->workspace, args->attr[IR_ATTR(avg_pool_grad, count_pad)].i);
    run_all(args, &g, k_count(dx), avg_pool_grad_plane, avg_pool_grad_row, in_rows(&g, dx));
    return AMPC_OK;
}

const k_kernel cpu_max_pool = {.prepare = max_pool_prepare, .run = max_pool_run};
const k_kernel cpu_max_pool_grad = {.prepare = max_pool_grad_prepare, .run = max_pool_grad_run};
const k_kernel cpu_avg_pool = {.prepare = avg_pool_prepare, .run = avg_pool_run};
const k_kernel cpu_avg_pool_grad = {.prepare = avg_pool_grad_prepare, .run = avg_pool_grad_run};
