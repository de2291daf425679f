/* pool.c - maximum and average pooling over 1 to 3 spatial axes, and their gradients.
 *
 * Every case is brought to three spatial axes, and works plane by plane (one image, one channel). A
 * plane is first split into phases: phase p of an axis holds the padded positions p, p + stride,
 * p + 2 stride ... Then all outputs read a given kernel tap from consecutive memory, whatever the
 * stride, dilation and padding: a tap is one vector loop over the whole plane. Outputs lie in rows of
 * the phases' width while taps are combined, and are packed at the end. */
#include "kernels/cpu/cpu.h"
#include "kernels/real.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

enum { AXES = 3, PLANE_TILE = 2048 };

typedef struct axis {
    int64_t in, out, kernel, stride, dilation, before, after;
    int64_t extent; /* positions in a phase */
} axis;

/* Per tap its offset in the phases and in the input plane (relative to the
 * first position of the window). */
typedef struct tap {
    int64_t phase, plane;
} tap;

typedef struct geometry {
    axis a[AXES];
    int64_t planes, in_plane, out_plane;
    int64_t taps, phase_plane,
        wide_plane; /* sizes: one phase; outputs in rows of a phase's width */
    tap *table;
    int32_t *counts; /* average: elements of each window */
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
    geometry g = {
        .planes = wide->dims[0] * wide->dims[1], .in_plane = 1, .out_plane = 1, .taps = 1};
    int spatial = wide->rank - 2;
    assert(spatial >= 1 && spatial <= AXES);
    for (int i = 0; i < AXES; i++) {
        int k = i - (AXES - spatial);
        axis *a = &g.a[i];
        *a = (axis){1, 1, 1, 1, 1, 0, 0, 1};
        if (k < 0) continue;
        *a = (axis){wide->dims[2 + k],
                    narrow->dims[2 + k],
                    item(&attr[0], k, 1),
                    item(&attr[1], k, 1),
                    item(&attr[3], k, 1),
                    item(&attr[2], k, 0),
                    item(&attr[2], k + spatial, 0),
                    0};
        a->extent = a->out + (a->kernel - 1) * a->dilation / a->stride;
        g.in_plane *= a->in;
        g.out_plane *= a->out;
        g.taps *= a->kernel;
    }
    g.phase_plane = g.a[0].extent * g.a[1].extent * g.a[2].extent;
    g.wide_plane = ((g.a[0].out - 1) * g.a[1].extent + g.a[1].out - 1) * g.a[2].extent + g.a[2].out;
    return g;
}

static int64_t phase_count(const geometry *g)
{
    return g->a[0].stride * g->a[1].stride * g->a[2].stride;
}

/* The position of tap t along each axis. */
static void tap_position(const geometry *g, int64_t t, int64_t *k)
{
    for (int i = AXES - 1; i >= 0; i--) {
        k[i] = t % g->a[i].kernel * g->a[i].dilation;
        t /= g->a[i].kernel;
    }
}

static tap tap_of(const geometry *g, int64_t t)
{
    int64_t k[AXES], phase = 0, within = 0, plane = 0;
    tap_position(g, t, k);
    for (int i = 0; i < AXES; i++) {
        phase = phase * g->a[i].stride + k[i] % g->a[i].stride;
        within = within * g->a[i].extent + k[i] / g->a[i].stride;
        plane = plane * g->a[i].in + k[i];
    }
    return (tap){phase * g->phase_plane + within, plane};
}

/* The input position of element e in phase p of an axis; -1: in the padding. */
static int64_t position_of(const axis *a, int64_t p, int64_t e)
{
    int64_t i = e * a->stride + p - a->before;
    return i >= 0 && i < a->in ? i : -1;
}

/* Elements [low, high) of a phase are input positions, offset + e * stride. */
typedef struct span {
    int64_t low, high, offset;
} span;

static span span_of(const axis *a, int64_t p)
{
    int64_t offset = p - a->before;
    int64_t low = offset < 0 ? cpu_ceil_div(-offset, a->stride) : 0;
    int64_t high = a->in > offset ? cpu_ceil_div(a->in - offset, a->stride) : 0;
    low = k_min(low, a->extent);
    return (span){low, k_max(low, k_min(high, a->extent)), offset};
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

/* The plane position that tap 0 of output (d, h, w) reads; outside of the plane in the padding. */
static int64_t window_start(const geometry *g, int64_t d, int64_t h, int64_t w)
{
    const axis *a = g->a;
    int64_t at[AXES] = {d * a[0].stride - a[0].before, h * a[1].stride - a[1].before,
                        w * a[2].stride - a[2].before};
    return (at[0] * a[1].in + at[1]) * a[2].in + at[2];
}

/* The first tap of the output that is inside the input; -1: none. */
static int32_t first_tap(const geometry *g, int64_t d, int64_t h, int64_t w)
{
    int64_t o[AXES] = {d, h, w}, k[AXES];
    for (int64_t t = 0; t < g->taps; t++) {
        bool inside = true;
        tap_position(g, t, k);
        for (int i = 0; i < AXES; i++) {
            int64_t at = o[i] * g->a[i].stride - g->a[i].before + k[i];
            inside = inside && at >= 0 && at < g->a[i].in;
        }
        if (inside) return (int32_t)t;
    }
    return -1;
}

/* ---- workspace: taps, window counts; per thread a plane, its phases, the outputs, one more of them ---- */

static size_t lines(int64_t count, size_t size) { return ((size_t)count * size + 63) / 64 * 64; }

static size_t table_bytes(const geometry *g)
{
    return lines(g->taps, sizeof(tap)) + lines(g->out_plane, sizeof(int32_t));
}

static size_t thread_bytes(const geometry *g)
{
    return lines(g->in_plane, 8) + lines(phase_count(g) * g->phase_plane, 8) +
           2 * lines(g->wide_plane, 8) + lines(g->out_plane, 8);
}

static size_t workspace_bytes(const geometry *g, const k_context *ctx)
{
    return table_bytes(g) + (size_t)ctx->threads * thread_bytes(g);
}

static void fill_table(geometry *g, void *workspace)
{
    g->table = workspace;
    for (int64_t t = 0; t < g->taps; t++) g->table[t] = tap_of(g, t);
}

static void fill_counts(geometry *g, void *workspace, bool padded)
{
    const axis *a = g->a;
    int32_t *count = g->counts = (int32_t *)((char *)workspace + lines(g->taps, sizeof(tap)));
    for (int64_t d = 0; d < a[0].out; d++)
        for (int64_t h = 0; h < a[1].out; h++) {
            int64_t rows = tap_count(&a[0], d, padded) * tap_count(&a[1], h, padded);
            for (int64_t w = 0; w < a[2].out; w++)
                *count++ = (int32_t)(rows * tap_count(&a[2], w, padded));
        }
}

typedef struct buffers {
    void *plane, *phases, *outputs, *chosen, *packed;
} buffers;

static buffers thread_buffers(const geometry *g, const k_args *args)
{
    buffers b;
    b.plane = (char *)args->workspace + table_bytes(g) +
              (size_t)omp_get_thread_num() * thread_bytes(g);
    b.phases = (char *)b.plane + lines(g->in_plane, 8);
    b.outputs = (char *)b.phases + lines(phase_count(g) * g->phase_plane, 8);
    b.chosen = (char *)b.outputs + lines(g->wide_plane, 8);
    b.packed = (char *)b.chosen + lines(g->wide_plane, 8);
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
    *workspace = workspace_bytes(&g, args->ctx);
    return AMPC_OK;
}

/* Position in the plane (row major) to position in the tensor. */
static int64_t tensor_position(const geometry *g, int64_t plane, int64_t at, bool column_major)
{
    if (!column_major) return plane * g->in_plane + at;
    int64_t w = at % g->a[2].in, h = at / g->a[2].in % g->a[1].in, d = at / g->a[2].in / g->a[1].in;
    return plane * g->in_plane + (w * g->a[1].in + h) * g->a[0].in + d;
}

/* The indices of one plane from the chosen taps, which lie in rows of a phase's width. */
static void store_indices(const k_view *indices, const geometry *g, int64_t plane,
                          const int32_t *chosen, bool column_major)
{
    const axis *a = g->a;
    int64_t i = plane * g->out_plane;
    for (int64_t d = 0; d < a[0].out; d++)
        for (int64_t h = 0; h < a[1].out; h++) {
            const int32_t *row = chosen + (d * a[1].extent + h) * a[2].extent;
            int64_t start = window_start(g, d, h, 0);
            for (int64_t w = 0; w < a[2].out; w++, i++) {
                int32_t t = row[w] < 0 ? first_tap(g, d, h, w) : row[w];
                int64_t at = t < 0 ? -1
                                   : tensor_position(g, plane,
                                                     start + w * a[2].stride + g->table[t].plane,
                                                     column_major);
                if (indices->dtype == IR_i64)
                    ((int64_t *)indices->data)[i] = at;
                else
                    ir_store_i64(indices->dtype, cpu_at(indices, i), at);
            }
        }
}

static ampc_status max_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    geometry g = geometry_of(x, y, &args->attr[IR_ATTR(max_pool, kernel)]);
    const bool column_major = args->attr[IR_ATTR(max_pool, column_major)].i;
    const bool wanted = args->n_out > 1 && cpu_wanted(&args->out[1]);
    ir_dtype carrier = cpu_carrier(x->dtype);
    if (k_count(y) == 0) return AMPC_OK;
    fill_table(&g, args->workspace);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(x, plane * g.in_plane, g.in_plane, carrier, b.plane);
        void *to = cpu_tile_target(y, plane * g.out_plane, carrier, b.packed);
        if (carrier == IR_f32)
            max_plane_float(&g, from, to, &b);
        else if (carrier == IR_f64)
            max_plane_double(&g, from, to, &b);
        else
            max_plane_int64_t(&g, from, to, &b);
        cpu_tile_store(y, plane * g.out_plane, g.out_plane, carrier, to);
        if (wanted) store_indices(&args->out[1], &g, plane, b.chosen, column_major);
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
    if (args->in[1].dtype != IR_i64)
        return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "indices must be i64");
    *workspace = (size_t)args->ctx->threads *
                 (lines(spatial_count(&args->out[0]), 8) + lines(spatial_count(&args->in[0]), 8));
    return AMPC_OK;
}

static ampc_status max_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *indices = &args->in[1], *dx = &args->out[0];
    int64_t wide = spatial_count(dx), narrow = spatial_count(dy),
            planes = dx->dims[0] * dx->dims[1];
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
    fill_table(&g, args->workspace);
    fill_counts(&g, args->workspace, padded);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(x, plane * g.in_plane, g.in_plane, carrier, b.plane);
        void *to = cpu_tile_target(y, plane * g.out_plane, carrier, b.packed);
        if (carrier == IR_f64)
            average_plane_double(&g, from, to, &b);
        else
            average_plane_float(&g, from, to, &b);
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
    fill_table(&g, args->workspace);
    fill_counts(&g, args->workspace, padded);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(dx))) schedule(static)
    for (int64_t plane = 0; plane < g.planes; plane++) {
        const buffers b = thread_buffers(&g, args);
        const void *from = cpu_tile_load(dy, plane * g.out_plane, g.out_plane, carrier, b.packed);
        void *to = cpu_tile_target(dx, plane * g.in_plane, carrier, b.plane);
        if (carrier == IR_f64)
            spread_plane_double(&g, from, to, &b);
        else
            spread_plane_float(&g, from, to, &b);
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
