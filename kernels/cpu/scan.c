/* scan.c - sums of the elements before each element of an axis, in f64 for floats. */
#include "kernels/cpu/cpu.h"
#include "ir/real.h"

#include <omp.h>

typedef struct scan {
    bool exclusive, reverse;
} scan;

#define SCAN(REAL, TOTAL) \
    static void scan_##REAL(const REAL *x, REAL *y, int64_t n, scan how) \
    { \
        TOTAL sum = 0; \
        for (int64_t i = 0; i < n; i++) { \
            const int64_t at = how.reverse ? n - 1 - i : i; \
            const TOTAL before = sum; \
            sum += (TOTAL)x[at]; \
            y[at] = (REAL)(how.exclusive ? before : sum); \
        } \
    }
SCAN(float, double)
SCAN(double, double)
SCAN(int64_t, uint64_t)

static size_t block_bytes(const cpu_rows *s) { return cpu_lines((size_t)cpu_rows_scratch(s) * sizeof(int64_t)); }

static ampc_status cum_sum_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const cpu_rows s = cpu_rows_of(&args->in[0], args->attr[IR_ATTR(cum_sum, axis)].i);
    *workspace = (size_t)args->ctx->threads * 2 * block_bytes(&s);
    return AMPC_OK;
}

static ampc_status cum_sum_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const cpu_rows s = cpu_rows_of(x, args->attr[IR_ATTR(cum_sum, axis)].i);
    const scan how = {args->attr[IR_ATTR(cum_sum, exclusive)].i, args->attr[IR_ATTR(cum_sum, reverse)].i};
    const ir_dtype carrier = cpu_carrier(x->dtype);
    if (k_count(x) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t block = 0; block < s.blocks; block++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * 2 * block_bytes(&s);
        int64_t first, n = cpu_rows_block(&s, block, &first);
        const void *from = cpu_rows_load(x, &s, first, n, carrier, buffer);
        void *to = cpu_rows_target(y, &s, first, carrier, buffer + block_bytes(&s));
        for (int64_t r = 0; r < n; r++) {
            const int64_t at = r * s.length;
            if (carrier == IR_f32) scan_float((const float *)from + at, (float *)to + at, s.length, how);
            else if (carrier == IR_f64) scan_double((const double *)from + at, (double *)to + at, s.length, how);
            else scan_int64_t((const int64_t *)from + at, (int64_t *)to + at, s.length, how);
        }
        cpu_rows_store(y, &s, first, n, carrier, to);
    }
    return AMPC_OK;
}

const k_kernel cpu_cum_sum = {.prepare = cum_sum_prepare, .run = cum_sum_run};
