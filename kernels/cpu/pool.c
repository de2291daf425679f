/* pool.c - maximum and average pooling over 1 to 3 spatial axes, and their gradients.
 *
 * Every case is brought to three spatial axes. Work goes plane by plane (one image, one channel),
 * within a plane output row by output row: each kernel tap adds its contribution to the whole
 * row, over the range of columns for which it is inside the input. The ranges are computed once,
 * in workspace. */
#include "kernels/cpu/cpu.h"
#include "kernels/real.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

enum { AXES = 3 };

typedef struct axis {
    int64_t in, out, kernel, stride, dilation, before, after;
} axis;

typedef struct geometry {
    axis a[AXES];
    int64_t planes, in_plane, out_plane;
    int32_t *range;   /* [2 * kernel of the last axis]: first and end column of each tap */
    int32_t *columns; /* average, [out of the last axis]: taps that count along it */
} geometry;

/* The pooling ops share names and order of these attributes. */
#define SAME_ATTRIBUTES(op)                                                                        \
    _Static_assert(IR_ATTR(op, strides) == IR_ATTR(op, kernel) + 1 &&                              \
                       IR_ATTR(op, pads) == IR_ATTR(op, kernel) + 2 &&                             \
                       IR_ATTR(op, dilations) == IR_ATTR(op, kernel) + 3,                          \
                   "one reader")
SAME_ATTRIBUTES(max_pool);
SAME_ATTRIBUTES(avg_pool);
SAME_ATTRIBUTES(avg_pool_grad);

static int64_t item(const ir_attr *attr, int i, int64_t absent)
{
    return i < attr->list.count ? attr->list.items[i] : absent;
}

/* `wide` is the larger side, `narrow` the pooled one; attr points at the `kernel` attribute. */
static geometry geometry_of(const k_view *wide, const k_view *narrow, const ir_attr *attr)
{
    geometry g = {.planes = wide->dims[0] * wide->dims[1], .in_plane = 1, .out_plane = 1};
    int spatial = wide->rank - 2;
    assert(spatial >= 1 && spatial <= AXES);
    for (int i = 0; i < AXES; i++) {
        int k = i - (AXES - spatial);
        g.a[i] = (axis){1, 1, 1, 1, 1, 0, 0};
        if (k < 0) continue;
        g.a[i] = (axis){wide->dims[2 + k],
                        narrow->dims[2 + k],
                        item(&attr[0], k, 1),
                        item(&attr[1], k, 1),
                        item(&attr[3], k, 1),
                        item(&attr[2], k, 0),
                        item(&attr[2], k + spatial, 0)};
        g.in_plane *= g.a[i].in;
        g.out_plane *= g.a[i].out;
    }
    return g;
}

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/* Output columns [low, high) for which tap k reads inside the input. */
static void column_range(const axis *a, int64_t k, int32_t *range)
{
    int64_t offset = k * a->dilation - a->before;
    range[0] = (int32_t)k_max(0, k_min(a->out, -floor_div(offset, a->stride)));
    range[1] = (int32_t)k_max(range[0],
                              k_min(a->out, floor_div(a->in - 1 - offset, a->stride) + 1));
}

/* Taps of output position o along an axis: those inside the input, or inside the padded input. */
static int64_t tap_count(const axis *a, int64_t o, bool padded)
{
    int64_t low = padded ? -a->before : 0, high = a->in + (padded ? a->after : 0), n = 0;
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t i = o * a->stride - a->before + k * a->dilation;
        n += i >= low && i < high;
    }
    return n;
}

static size_t table_bytes(const geometry *g)
{
    const axis *a = &g->a[AXES - 1];
    return ((size_t)(a->kernel * 2 + a->out) * sizeof(int32_t) + 63) / 64 * 64;
}

static void fill_tables(geometry *g, void *workspace, bool padded)
{
    const axis *a = &g->a[AXES - 1];
    g->range = workspace;
    g->columns = g->range + 2 * a->kernel;
    for (int64_t k = 0; k < a->kernel; k++) column_range(a, k, g->range + 2 * k);
    for (int64_t o = 0; o < a->out; o++) g->columns[o] = (int32_t)tap_count(a, o, padded);
}

static bool inside(const axis *a, int64_t o, int64_t k, int64_t *i)
{
    *i = o * a->stride - a->before + k * a->dilation;
    return *i >= 0 && *i < a->in;
}

/* Workspace: tables, then per thread a plane of each side (and one of positions). */
static size_t plane_bytes(int64_t count, size_t size)
{
    return ((size_t)count * size + 63) / 64 * 64;
}

static size_t thread_bytes(const geometry *g)
{
    return plane_bytes(g->in_plane, 8) + 2 * plane_bytes(g->out_plane, 8);
}

static size_t workspace_bytes(const geometry *g, const k_context *ctx)
{
    return table_bytes(g) + (size_t)ctx->threads * thread_bytes(g);
}

typedef struct buffers {
    void *wide, *narrow, *extra;
} buffers;

static buffers thread_buffers(const geometry *g, const k_args *args)
{
    char *at = (char *)args->workspace + table_bytes(g) +
               (size_t)omp_get_thread_num() * thread_bytes(g);
    char *narrow = at + plane_bytes(g->in_plane, 8);
    return (buffers){at, narrow, narrow + plane_bytes(g->out_plane, 8)};
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
    *workspace = workspace_bytes(&g, args->ctx);
    return AMPC_OK;
}

/* Position in the plane (row major) to position in the tensor. */
static int64_t tensor_position(const geometry *g, int64_t plane, int32_t at, bool column_major)
{
    if (at < 0) return -1;
    if (!column_major) return plane * g->in_plane + at;
    int64_t w = at % g->a[2].in, h = at / g->a[2].in % g->a[1].in, d = at / g->a[2].in / g->a[1].in;
    return plane * g->in_plane + (w * g->a[1].in + h) * g->a[0].in + d;
}

static ampc_status max_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(max_pool, kernel)]);
    const bool column_major = args->attr[IR_ATTR(max_pool, column_major)].i;
    const k_view *indices = args->n_out > 1 && cpu_wanted(&args->out[1]) ? &args->out[1] : NULL;
    ir_dtype carrier = cpu_carrier(x->dtype);
    if (k_count(y) == 0) return AMPC_OK;
    fill_tables(&g, args->workspace, false);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(x, plane * g.in_plane, g.in_plane, carrier, b.wide);
        void *to = cpu_tile_target(y, plane * g.out_plane, carrier, b.narrow);
        int32_t *position = b.extra;
        if (carrier == IR_f32)
            max_plane_float(&g, from, to, position);
        else if (carrier == IR_f64)
            max_plane_double(&g, from, to, position);
        else
            max_plane_int64_t(&g, from, to, position);
        cpu_tile_store(y, plane * g.out_plane, g.out_plane, carrier, to);
        for (int64_t i = 0; indices && i < g.out_plane; i++)
            ir_store_i64(indices->dtype, cpu_at(indices, plane * g.out_plane + i),
                         tensor_position(&g, plane, position[i], column_major));
    }
    return AMPC_OK;
}

static int64_t spatial_count(const k_view *v)
{
    int64_t n = 1;
    for (int i = 2; i < v->rank; i++) n *= v->dims[i];
    return n;
}

static ampc_status max_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    *workspace = (size_t)args->ctx->threads * (plane_bytes(spatial_count(&args->out[0]), 8) +
                                               plane_bytes(spatial_count(&args->in[0]), 8));
    return AMPC_OK;
}

static ampc_status max_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *indices = &args->in[1], *dx = &args->out[0];
    int64_t wide = spatial_count(dx), narrow = spatial_count(dy),
            planes = dx->dims[0] * dx->dims[1];
    ir_dtype carrier = cpu_carrier(dy->dtype);
    size_t wide_bytes = plane_bytes(wide, 8), bytes = wide_bytes + plane_bytes(narrow, 8);
    if (k_count(dx) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(dx))) schedule(static)
    for (int64_t plane = 0; plane < planes; plane++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * bytes;
        const void *g = cpu_tile_load(dy, plane * narrow, narrow, carrier, buffer + wide_bytes);
        void *sums = cpu_tile_target(dx, plane * wide, carrier, buffer);
        memset(sums, 0, (size_t)wide * ir_dtype_size(carrier));
        for (int64_t i = 0; i < narrow; i++) {
            const void *index = cpu_at(indices, plane * narrow + i);
            int64_t at = (indices->dtype == IR_i64 ? *(const int64_t *)index
                                                   : ir_load_i64(indices->dtype, index)) -
                         plane * wide;
            if (at < 0 || at >= wide) continue; /* a window wholly in the padding */
            if (carrier == IR_f64)
                ((double *)sums)[at] += ((const double *)g)[i];
            else
                ((float *)sums)[at] += ((const float *)g)[i];
        }
        cpu_tile_store(dx, plane * wide, wide, carrier, sums);
    }
    return AMPC_OK;
}

/* ---- average ---- */

static ampc_status avg_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    geometry g = geometry_of(&args->in[0], &args->out[0], &args->attr[IR_ATTR(avg_pool, kernel)]);
    *workspace = workspace_bytes(&g, args->ctx);
    return AMPC_OK;
}

static ampc_status avg_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(avg_pool, kernel)]);
    const bool padded = args->attr[IR_ATTR(avg_pool, count_pad)].i;
    ir_dtype carrier = cpu_carrier(x->dtype);
    if (k_count(y) == 0) return AMPC_OK;
    fill_tables(&g, args->workspace, padded);
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
    geometry g = geometry_of(&args->out[0], &args->in[0],
                             &args->attr[IR_ATTR(avg_pool_grad, kernel)]);
    *workspace = workspace_bytes(&g, args->ctx);
    return AMPC_OK;
}

static ampc_status avg_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    geometry g = geometry_of(dx, dy, &args->attr[IR_ATTR(avg_pool_grad, kernel)]);
    const bool padded = args->attr[IR_ATTR(avg_pool_grad, count_pad)].i;
    ir_dtype carrier = cpu_carrier(dy->dtype);
    if (k_count(dx) == 0) return AMPC_OK;
    fill_tables(&g, args->workspace, padded);
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
const k_kernel cpu_max_pool_grad = {"max_pool_grad", max_pool_grad_prepare, max_pool_grad_run,
                                    NULL};
const k_kernel cpu_avg_pool = {"avg_pool", avg_pool_prepare, avg_pool_run, NULL};
const k_kernel cpu_avg_pool_grad = {"avg_pool_grad", avg_pool_grad_prepare, avg_pool_grad_run,
                                    NULL};
