/* nonzero.c - the coordinates of the elements that are not zero.
 *
 * Each thread counts its part of x; the sums of the counts before a part tell where its rows begin. */
#include "kernels/cpu/cpu.h"

#include <string.h>

/* Functions of an element of that many bits. An element is zero if no bit of `mask` is set, which excludes the sign of
 * a float. */
#define ELEMENT(T) \
    static int64_t count_##T(const void *x, int64_t first, int64_t end, uint64_t mask) \
    { \
        const T *at = x; \
        int64_t n = 0; \
        for (int64_t i = first; i < end; i++) n += (at[i] & (T)mask) != 0; \
        return n; \
    } \
    /* Stores the positions of at most CPU_TILE elements, and where to go on in *first; returns their number. */ \
    static int64_t find_##T(const void *x, int64_t *first, int64_t end, uint64_t mask, int64_t *found) \
    { \
        const T *at = x; \
        int64_t n = 0, i = *first; \
        for (; i < end && n < CPU_TILE; i++) \
            if (at[i] & (T)mask) found[n++] = i; \
        *first = i; \
        return n; \
    }
ELEMENT(uint8_t)
ELEMENT(uint16_t)
ELEMENT(uint32_t)
ELEMENT(uint64_t)

static const struct {
    int64_t (*count)(const void *x, int64_t first, int64_t end, uint64_t mask);
    int64_t (*find)(const void *x, int64_t *first, int64_t end, uint64_t mask, int64_t *found);
} elements[] = {
    [1] = {count_uint8_t, find_uint8_t},
    [2] = {count_uint16_t, find_uint16_t},
    [4] = {count_uint32_t, find_uint32_t},
    [8] = {count_uint64_t, find_uint64_t},
};

static uint64_t mask_of(ir_dtype t)
{
    const uint64_t sign = (uint64_t)1 << (8 * ir_dtype_size(t) - 1);
    return ir_dtype_is_float(t) ? sign - 1 : UINT64_MAX;
}

static void store_coordinates(const k_view *x, const int64_t *found, int64_t n, int64_t *row)
{
    for (int64_t i = 0; i < n; i++, row += x->rank) {
        int64_t rest = found[i];
        for (int k = x->rank - 1; k > 0; rest /= x->dims[k--]) row[k] = rest % x->dims[k];
        if (x->rank) row[0] = rest;
    }
}

/* Stores the rows of elements [first, end), of which `row` is the first. */
static void store_rows(const k_view *x, int64_t first, int64_t end, int64_t *row)
{
    const size_t size = ir_dtype_size(x->dtype);
    int64_t found[CPU_TILE];
    while (first < end) {
        const int64_t n = elements[size].find(x->data, &first, end, mask_of(x->dtype), found);
        store_coordinates(x, found, n, row);
        row += n * x->rank;
    }
}

static ampc_status nonzero_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    *workspace = (size_t)args->ctx->threads * sizeof(int64_t);
    return AMPC_OK;
}

static ampc_status nonzero_run(const k_args *args)
{
    const k_view *x = &args->in[0], *positions = &args->out[0], *count = cpu_result(args, IR_OUT(nonzero, count));
    const size_t size = ir_dtype_size(x->dtype);
    const int64_t n = k_count(x);
    const int parts = cpu_threads(args->ctx, n);
    int64_t *counts = args->workspace, *rows = positions->data, all = 0;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int i = 0; i < parts; i++)
        counts[i] = elements[size].count(x->data, n * i / parts, n * (i + 1) / parts, mask_of(x->dtype));
    for (int i = 0; i < parts; i++) {
        const int64_t before = all;
        all += counts[i];
        counts[i] = before;
    }
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int i = 0; i < parts; i++) store_rows(x, n * i / parts, n * (i + 1) / parts, rows + counts[i] * x->rank);
    memset(rows + all * x->rank, 0, (size_t)((n - all) * x->rank) * sizeof *rows);
    if (cpu_is_used(count)) *(int64_t *)count->data = all;
    return AMPC_OK;
}

const k_kernel cpu_nonzero = {.prepare = nonzero_prepare, .run = nonzero_run};
