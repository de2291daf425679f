/* scan.c - sums of the elements before each element of an axis, in f64 for floats.
 *
 * Rows of adjacent elements are processed one by one. Otherwise a tile of adjacent rows is processed together, element
 * by element of the axis, so that memory is accessed in order. */
#include "kernels/cpu/cpu.h"
#include "ir/ops/real.h"

#include <omp.h>

typedef struct scan {
    cpu_rows rows;
    ir_dtype carrier;
    bool exclusive, reverse;
} scan;

static int64_t step_of(const scan *s, int64_t i) { return s->reverse ? s->rows.length - 1 - i : i; }

#define SCAN(REAL, TOTAL) \
    static void scan_row_##REAL(const REAL *x, REAL *y, const scan *s) \
    { \
        TOTAL sum = 0; \
        for (int64_t i = 0; i < s->rows.length; i++) { \
            const int64_t at = step_of(s, i); \
            const TOTAL before = sum; \
            sum += (TOTAL)x[at]; \
            y[at] = (REAL)(s->exclusive ? before : sum); \
        } \
    } \
    CPU_CLONES static void scan_step_##REAL(const REAL *x, REAL *y, TOTAL *sum, int64_t n, bool exclusive) \
    { \
        CPU_SIMD for (int64_t j = 0; j < n; j++) \
        { \
            const TOTAL before = sum[j]; \
            sum[j] += (TOTAL)x[j]; \
            y[j] = (REAL)(exclusive ? before : sum[j]); \
        } \
    }
SCAN(float, double)
SCAN(double, double)
SCAN(int64_t, uint64_t)

static scan scan_of(const k_args *args)
{
    const k_view *x = &args->in[0];
    return (scan){cpu_rows_of(x, args->attr[IR_ATTR(cum_sum, axis)].i), cpu_carrier(x->dtype),
                  args->attr[IR_ATTR(cum_sum, exclusive)].i, args->attr[IR_ATTR(cum_sum, reverse)].i};
}

/* Workspace per thread: a row of x and one of y, if they are adjacent. */
static size_t row_bytes(const scan *s)
{
    return s->rows.inner == 1 ? cpu_lines((size_t)s->rows.length * sizeof(int64_t)) : 0;
}

static ampc_status cum_sum_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const scan s = scan_of(args);
    *workspace = (size_t)args->ctx->threads * 2 * row_bytes(&s);
    return AMPC_OK;
}

static void scan_rows(const k_args *args, const scan *s)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const int64_t length = s->rows.length;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t r = 0; r < s->rows.outer; r++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * 2 * row_bytes(s);
        const void *from = cpu_tile_load(x, r * length, length, s->carrier, buffer);
        void *to = cpu_tile_target(y, r * length, s->carrier, buffer + row_bytes(s));
        if (s->carrier == IR_f32) scan_row_float(from, to, s);
        else if (s->carrier == IR_f64) scan_row_double(from, to, s);
        else scan_row_int64_t(from, to, s);
        cpu_tile_store(y, r * length, length, s->carrier, to);
    }
}

/* Processes `n` adjacent rows, the first of which begins at element `base`. */
static void scan_tile(const k_args *args, const scan *s, int64_t base, int64_t n)
{
    cpu_tile sum = {.i64 = {0}};
    for (int64_t i = 0; i < s->rows.length; i++) {
        cpu_tile from, to;
        const int64_t at = base + step_of(s, i) * s->rows.inner;
        const void *x = cpu_tile_load(&args->in[0], at, n, s->carrier, &from);
        void *y = cpu_tile_target(&args->out[0], at, s->carrier, &to);
        if (s->carrier == IR_f32) scan_step_float(x, y, sum.f64, n, s->exclusive);
        else if (s->carrier == IR_f64) scan_step_double(x, y, sum.f64, n, s->exclusive);
        else scan_step_int64_t(x, y, (uint64_t *)sum.i64, n, s->exclusive);
        cpu_tile_store(&args->out[0], at, n, s->carrier, y);
    }
}

static ampc_status cum_sum_run(const k_args *args)
{
    const scan s = scan_of(args);
    const int64_t inner = s.rows.inner, tiles = cpu_ceil_div(inner, CPU_TILE);
    if (k_count(&args->in[0]) == 0) return AMPC_OK;
    if (inner == 1) {
        scan_rows(args, &s);
        return AMPC_OK;
    }
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(&args->in[0]))) schedule(static)
    for (int64_t t = 0; t < s.rows.outer * tiles; t++) {
        const int64_t first = t % tiles * CPU_TILE;
        scan_tile(args, &s, t / tiles * s.rows.length * inner + first, k_min(CPU_TILE, inner - first));
    }
    return AMPC_OK;
}

const k_kernel cpu_cum_sum = {.prepare = cum_sum_prepare, .run = cum_sum_run};
