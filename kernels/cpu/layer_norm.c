/* layer_norm.c - normalisation over the last axes, with or without subtracting the mean, and its gradient.
 *
 * x has rows of `length` elements. Mean and variance are computed in two passes over a row in cache. The gradients of
 * scale and bias are sums over rows: rows are divided into groups whose number depends only on shapes, and each group
 * adds in f64. */
#include "kernels/cpu/cpu.h"
#include "ir/ops/real.h"

#include <math.h>
#include <omp.h>

typedef struct shape {
    int64_t rows, length, groups;
    ir_dtype carrier;
    size_t buffer; /* bytes of one row in the carrier */
    bool center;
} shape;

enum { GROUPS = 16, ROWS = 4, BUFFERS = 2 * ROWS + 1 };

/* Rows whose gradients are computed together, in the carrier. */
typedef struct rows {
    int n;
    const void *dy[ROWS], *x[ROWS];
    double mean[ROWS], rstd[ROWS];
} rows;

static shape shape_of(const k_view *x, int64_t axis, bool center)
{
    shape s = {.rows = 1, .length = 1, .carrier = cpu_carrier(x->dtype), .center = center};
    int first = k_axis_number(axis, x->rank);
    for (int i = 0; i < x->rank; i++) *(i < first ? &s.rows : &s.length) *= x->dims[i];
    s.groups = s.rows * s.length < CPU_SERIAL ? 1 : k_min(GROUPS, s.rows);
    s.buffer = cpu_lines((size_t)s.length * ir_dtype_size(s.carrier));
    return s;
}

static shape forward_shape(const k_args *args)
{
    return shape_of(&args->in[0], args->attr[IR_ATTR(layer_norm, axis)].i, args->attr[IR_ATTR(layer_norm, center)].i);
}

static shape backward_shape(const k_args *args)
{
    return shape_of(&args->in[0], args->attr[IR_ATTR(layer_norm_grad, axis)].i,
                    args->attr[IR_ATTR(layer_norm_grad, center)].i);
}

/* Whether gradients of scale or bias are wanted. */
static bool has_sums(const k_args *args)
{
    return cpu_is_used(cpu_result(args, 1)) || cpu_is_used(cpu_result(args, 2));
}

/* A vector of the last axes in the carrier, converted into `buffer` if necessary; NULL if absent. */
static const void *vector(const k_view *v, const shape *s, void *buffer)
{
    return k_present(v) ? cpu_tile_load(v, 0, s->length, s->carrier, buffer) : NULL;
}

#define REAL float
#include "kernels/cpu/layer_norm_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/layer_norm_body.h"
#undef REAL

/* Workspace: scale, bias, then two rows per thread. */
static ampc_status layer_norm_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    shape s = forward_shape(args);
    *workspace = (2 + 2 * (size_t)args->ctx->threads) * s.buffer;
    return AMPC_OK;
}

/* Rows without elements have no mean; rows that are not centred have the mean 0. */
static ampc_status store_no_statistics(const k_view *mean, const k_view *rstd, const shape *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        cpu_store_number(mean, r, s->center ? NAN : 0);
        cpu_store_number(rstd, r, NAN);
    }
    return AMPC_OK;
}

static ampc_status layer_norm_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0], *mean = cpu_result(args, 1), *rstd = cpu_result(args, 2);
    const shape s = forward_shape(args);
    const double eps = args->attr[IR_ATTR(layer_norm, eps)].f;
    char *space = args->workspace;
    const void *scale = args->n_in > 1 ? vector(&args->in[1], &s, space) : NULL;
    const void *bias = args->n_in > 2 ? vector(&args->in[2], &s, space + s.buffer) : NULL;
    if (s.length == 0) return store_no_statistics(mean, rstd, &s);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, s.rows *s.length)) schedule(static)
    for (int64_t r = 0; r < s.rows; r++) {
        char *buffer = space + (size_t)(2 + 2 * omp_get_thread_num()) * s.buffer;
        const void *row = cpu_tile_load(x, r * s.length, s.length, s.carrier, buffer);
        void *to = cpu_tile_target(y, r * s.length, s.carrier, buffer + s.buffer);
        double m, d;
        if (s.carrier == IR_f64) normalise_double(row, &s, scale, bias, eps, to, &m, &d);
        else normalise_float(row, &s, scale, bias, eps, to, &m, &d);
        cpu_tile_store(y, r * s.length, s.length, s.carrier, to);
        cpu_store_number(mean, r, m);
        cpu_store_number(rstd, r, d);
    }
    return AMPC_OK;
}

/* Workspace: scale, the rows of each thread and one of dx, then two f64 sums per group. */
static ampc_status layer_norm_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    shape s = backward_shape(args);
    *workspace = (1 + BUFFERS * (size_t)args->ctx->threads) * s.buffer;
    if (has_sums(args)) *workspace += (size_t)(s.groups * 2 * s.length) * sizeof(double);
    return AMPC_OK;
}

/* Adds the vectors of all groups at `sums`, [groups, 2, length], and stores the result in v. */
static void store_sums(const k_view *v, const shape *s, double *sums)
{
    if (!cpu_is_used(v)) return;
    for (int64_t g = 1; g < s->groups; g++)
        for (int64_t j = 0; j < s->length; j++) sums[j] += sums[g * 2 * s->length + j];
    cpu_tile_store(v, 0, s->length, IR_f64, sums);
}

static rows load_rows(const k_args *args, const shape *s, int64_t first, int64_t end, char *buffer)
{
    const k_view *mean = &args->in[IR_IN(layer_norm_grad, mean)], *rstd = &args->in[IR_IN(layer_norm_grad, rstd)];
    rows b = {.n = (int)k_min(ROWS, end - first)};
    for (int i = 0; i < b.n; i++, buffer += 2 * s->buffer) {
        const int64_t at = (first + i) * s->length;
        b.dy[i] = cpu_tile_load(&args->in[0], at, s->length, s->carrier, buffer);
        b.x[i] = cpu_tile_load(&args->in[1], at, s->length, s->carrier, buffer + s->buffer);
        b.mean[i] = s->center ? cpu_number(mean, first + i) : 0;
        b.rstd[i] = cpu_number(rstd, first + i);
    }
    return b;
}

static void grad_rows(const k_args *args, const shape *s, int64_t low, int64_t high, const void *scale, char *buffer,
                      double *sums)
{
    const k_view *dx = &args->out[0];
    const bool f64 = s->carrier == IR_f64, writes = cpu_is_used(dx);
    for (int64_t r = low; r < high; r += ROWS) {
        const rows b = load_rows(args, s, r, high, buffer);
        if (sums) (f64 ? sums_double : sums_float)(&b, s, sums);
        for (int i = 0; i < b.n && writes; i++) {
            const int64_t at = (r + i) * s->length;
            void *to = cpu_tile_target(dx, at, s->carrier, buffer + 2 * ROWS * s->buffer);
            (f64 ? slope_double : slope_float)(b.dy[i], b.x[i], s, scale, b.mean[i], b.rstd[i], to);
            cpu_tile_store(dx, at, s->length, s->carrier, to);
        }
    }
}

static ampc_status layer_norm_grad_run(const k_args *args)
{
    const shape s = backward_shape(args);
    char *space = args->workspace;
    double *sums = (double *)(space + (1 + BUFFERS * (size_t)args->ctx->threads) * s.buffer);
    const void *scale = vector(&args->in[IR_IN(layer_norm_grad, scale)], &s, space);
    const bool sum = has_sums(args);
    if (s.length == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, s.rows *s.length)) schedule(static)
    for (int64_t g = 0; g < s.groups; g++) {
        double *group_sums = sum ? sums + g * 2 * s.length : NULL;
        if (sum) memset(group_sums, 0, (size_t)(2 * s.length) * sizeof(double));
        grad_rows(args, &s, s.rows * g / s.groups, s.rows * (g + 1) / s.groups, scale,
                  space + (size_t)(1 + BUFFERS * omp_get_thread_num()) * s.buffer, group_sums);
    }
    if (!sum) return AMPC_OK;
    store_sums(cpu_result(args, 1), &s, sums);
    store_sums(cpu_result(args, 2), &s, sums + s.length);
    return AMPC_OK;
}

const k_kernel cpu_layer_norm = {.prepare = layer_norm_prepare, .run = layer_norm_run};
const k_kernel cpu_layer_norm_grad = {.prepare = layer_norm_grad_prepare, .run = layer_norm_grad_run};
