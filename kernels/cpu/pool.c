/* pool.c - maximum and average pooling over 1 to 3 spatial axes, and their gradients.
 *
 * Every case is brought to three spatial axes, and works plane by plane (one image, one channel). A
 * table in workspace says for each kernel tap of the last two axes which input position each output
 * sees, whatever the strides, dilations and padding: a tap is one loop over all outputs of a slice,
 * long also where rows are short. */
#include "kernels/cpu/cpu.h"
#include "kernels/pooling.h"
#include "kernels/real.h"

#include <math.h>
#include <omp.h>

typedef struct geometry {
    pool_axis a[POOL_AXES];
    int64_t planes, in_plane, out_plane;
    int64_t in_slice, out_slice, slice_taps; /* a slice: the last two axes */
    int32_t *taps;   /* [slice_taps][out_slice]: position in the slice of x, -1: in the padding */
    int32_t *counts; /* average, [out_slice]: elements of the window in a slice */
} geometry;

/* `wide` is the larger side, `narrow` the pooled one; attr points at the `kernel` attribute. */
static geometry geometry_of(const k_view *wide, const k_view *narrow, const ir_attr *attr)
{
    geometry g = {.planes = wide->dims[0] * wide->dims[1]};
    pool_axes_of(wide, narrow, attr, g.a);
    g.in_slice = g.a[1].in * g.a[2].in;
    g.out_slice = g.a[1].out * g.a[2].out;
    g.slice_taps = g.a[1].kernel * g.a[2].kernel;
    g.in_plane = g.a[0].in * g.in_slice;
    g.out_plane = g.a[0].out * g.out_slice;
    return g;
}

/* The input position of tap k of output o along an axis; -1: in the padding. */
static int64_t position_of(const pool_axis *a, int64_t o, int64_t k)
{
    int64_t i = o * a->stride - a->before + k * a->dilation;
    return i >= 0 && i < a->in ? i : -1;
}

/* Taps of output position o along an axis: those inside the input, or inside the padded input. */
static int64_t tap_count(const pool_axis *a, int64_t o, bool padded)
{
    int64_t low = padded ? -a->before : 0, high = a->in + (padded ? a->after : 0), n = 0;
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t i = o * a->stride - a->before + k * a->dilation;
        n += i >= low && i < high;
    }
    return n;
}

/* ---- workspace: taps, window counts; per thread a plane of x, one of y, one more of those ---- */

static size_t lines(int64_t count, size_t size)
{
    return ((size_t)count * size + 63) / 64 * 64;
}

static size_t taps_bytes(const geometry *g)
{
    return lines(g->slice_taps * g->out_slice, sizeof(int32_t));
}

static size_t table_bytes(const geometry *g)
{
    return taps_bytes(g) + lines(g->out_slice, sizeof(int32_t));
}

static size_t thread_bytes(const geometry *g)
{
    return lines(g->in_plane, 8) + 2 * lines(g->out_plane, 8);
}

static ampc_status ask_workspace(const geometry *g, const k_context *ctx, size_t *workspace)
{
    if (g->in_plane > INT32_MAX) return cpu_fail(ctx, AMPC_UNSUPPORTED, "an image has 2^31 elements or more");
    *workspace = table_bytes(g) + (size_t)ctx->threads * thread_bytes(g);
    return AMPC_OK;
}

static void fill_taps(geometry *g, void *workspace)
{
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
    b.narrow = (char *)b.wide + lines(g->in_plane, 8);
    b.extra = (char *)b.narrow + lines(g->out_plane, 8);
    return b;
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

static ampc_status max_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    geometry g = geometry_of(&args->in[0], &args->out[0], &args->attr[IR_ATTR(max_pool, kernel)]);
    return ask_workspace(&g, args->ctx, workspace);
}

/* Position in the plane (row major) to position in the tensor. */
static int64_t tensor_position(const geometry *g, int64_t plane, int32_t at, bool column_major)
{
    if (at < 0) return -1;
    if (!column_major) return plane * g->in_plane + at;
    int64_t w = at % g->a[2].in, h = at / g->a[2].in % g->a[1].in, d = at / g->in_slice;
    return plane * g->in_plane + (w * g->a[1].in + h) * g->a[0].in + d;
}

/* Indices are i64: inference gives them no other type. */
static void store_indices(const k_view *indices, const geometry *g, int64_t plane, const int32_t *position,
                          bool column_major)
{
    int64_t *to = (int64_t *)indices->data + plane * g->out_plane;
    for (int64_t i = 0; i < g->out_plane; i++) to[i] = tensor_position(g, plane, position[i], column_major);
}

static ampc_status max_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(max_pool, kernel)]);
    const bool column_major = args->attr[IR_ATTR(max_pool, column_major)].i;
    const bool wanted = args->n_out > 1 && cpu_wanted(&args->out[1]);
    ir_dtype carrier = cpu_carrier(x->dtype);
    if (k_count(y) == 0) return AMPC_OK;
    fill_taps(&g, args->workspace);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(x, plane * g.in_plane, g.in_plane, carrier, b.wide);
        void *to = cpu_tile_target(y, plane * g.out_plane, carrier, b.narrow);
        if (carrier == IR_f32)
            max_plane_float(&g, from, to, b.extra);
        else if (carrier == IR_f64)
            max_plane_double(&g, from, to, b.extra);
        else
            max_plane_int64_t(&g, from, to, b.extra);
        cpu_tile_store(y, plane * g.out_plane, g.out_plane, carrier, to);
        if (wanted) store_indices(&args->out[1], &g, plane, b.extra, column_major);
    }
    return AMPC_OK;
}

static ampc_status max_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    if (args->in[1].dtype != IR_i64) return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "indices must be i64");
    *workspace = (size_t)args->ctx->threads *
                 (lines(pool_plane(&args->out[0]), 8) + lines(pool_plane(&args->in[0]), 8));
    return AMPC_OK;
}

static ampc_status max_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *indices = &args->in[1], *dx = &args->out[0];
    int64_t wide = pool_plane(dx), narrow = pool_plane(dy), planes = dx->dims[0] * dx->dims[1];
    ir_dtype carrier = cpu_carrier(dy->dtype);
    size_t wide_bytes = lines(wide, 8), bytes = wide_bytes + lines(narrow, 8);
    if (k_count(dx) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(dx))) schedule(static)
    for (int64_t plane = 0; plane < planes; plane++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * bytes;
        const void *g = cpu_tile_load(dy, plane * narrow, narrow, carrier, buffer + wide_bytes);
        void *sums = cpu_tile_target(dx, plane * wide, carrier, buffer);
        memset(sums, 0, (size_t)wide * ir_dtype_size(carrier));
        const int64_t *index = (const int64_t *)indices->data + plane * narrow;
        if (carrier == IR_f64)
            scatter_double(g, index, narrow, plane * wide, sums, wide);
        else
            scatter_float(g, index, narrow, plane * wide, sums, wide);
        cpu_tile_store(dx, plane * wide, wide, carrier, sums);
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

static ampc_status avg_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(avg_pool, kernel)]);
    const bool padded = args->attr[IR_ATTR(avg_pool, count_pad)].i;
    ir_dtype carrier = cpu_carrier(x->dtype);
    if (k_count(y) == 0) return AMPC_OK;
    fill_taps(&g, args->workspace);
    fill_counts(&g, args->workspace, padded);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(x, plane * g.in_plane, g.in_plane, carrier, b.wide);
        void *to = cpu_tile_target(y, plane * g.out_plane, carrier, b.narrow);
        if (carrier == IR_f64)
            average_plane_double(&g, from, to, padded);
        else
            average_plane_float(&g, from, to, padded);
        cpu_tile_store(y, plane * g.out_plane, g.out_plane, carrier, to);
    }
    return AMPC_OK;
}

static ampc_status avg_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    geometry g = geometry_of(&args->out[0], &args->in[0], &args->attr[IR_ATTR(avg_pool_grad, kernel)]);
    return ask_workspace(&g, args->ctx, workspace);
}

static ampc_status avg_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    geometry g = geometry_of(dx, dy, &args->attr[IR_ATTR(avg_pool_grad, kernel)]);
    const bool padded = args->attr[IR_ATTR(avg_pool_grad, count_pad)].i;
    ir_dtype carrier = cpu_carrier(dy->dtype);
    if (k_count(dx) == 0) return AMPC_OK;
    fill_taps(&g, args->workspace);
    fill_counts(&g, args->workspace, padded);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(dx))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(dy, plane * g.out_plane, g.out_plane, carrier, b.narrow);
        void *to = cpu_tile_target(dx, plane * g.in_plane, carrier, b.wide);
        if (carrier == IR_f64)
            spread_plane_double(&g, from, to, b.extra, padded);
        else
            spread_plane_float(&g, from, to, b.extra, padded);
        cpu_tile_store(dx, plane * g.in_plane, g.in_plane, carrier, to);
    }
    return AMPC_OK;
}

const k_kernel cpu_max_pool = {"max_pool", max_pool_prepare, max_pool_run, NULL};
const k_kernel cpu_max_pool_grad = {"max_pool_grad", max_pool_grad_prepare, max_pool_grad_run, NULL};
const k_kernel cpu_avg_pool = {"avg_pool", avg_pool_prepare, avg_pool_run, NULL};
const k_kernel cpu_avg_pool_grad = {"avg_pool_grad", avg_pool_grad_prepare, avg_pool_grad_run, NULL};
