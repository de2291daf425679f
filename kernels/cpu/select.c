/* select.c - arg_max and top_k along one axis.
 *
 * The first k elements of a row are kept in a heap of positions, which is then sorted in place. */
#include "kernels/cpu/cpu.h"
#include "ir/ops/real.h"

#include <omp.h>

#define REAL float
#include "kernels/cpu/select_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/select_body.h"
#undef REAL
#define REAL int64_t
#include "kernels/cpu/select_body.h"
#undef REAL
#define REAL uint64_t
#include "kernels/cpu/select_body.h"
#undef REAL

/* The functions of each carrier. */
static const struct {
    int64_t (*extreme)(const void *row, int64_t n, bool largest, bool last);
    void (*first)(const void *row, int64_t n, int64_t k, bool largest, void *values, int64_t *positions);
} selects[IR_DTYPE_COUNT] = {
    [IR_f32] = {find_extreme_float, select_first_float},
    [IR_f64] = {find_extreme_double, select_first_double},
    [IR_i64] = {find_extreme_int64_t, select_first_int64_t},
    [IR_u64] = {find_extreme_uint64_t, select_first_uint64_t},
};

/* The bytes of a block of rows in 8-byte carriers. */
static size_t block_bytes(const cpu_rows *s) { return cpu_lines((size_t)cpu_rows_scratch(s) * sizeof(int64_t)); }

/* ---- arg_max ---- */

static ampc_status arg_max_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const cpu_rows s = cpu_rows_of(&args->in[0], args->attr[IR_ATTR(arg_max, axis)].i);
    *workspace = (size_t)args->ctx->threads * block_bytes(&s);
    return AMPC_OK;
}

static ampc_status arg_max_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const cpu_rows s = cpu_rows_of(x, args->attr[IR_ATTR(arg_max, axis)].i);
    const ir_dtype carrier = cpu_formula_carrier(x->dtype);
    const bool largest = args->attr[IR_ATTR(arg_max, largest)].i, last = args->attr[IR_ATTR(arg_max, last)].i;
    const int64_t stride = s.length * (int64_t)ir_dtype_size(carrier);
    if (k_count(x) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t block = 0; block < s.blocks; block++) {
        int64_t first, found[CPU_ROW_BLOCK], n = cpu_rows_block(&s, block, &first);
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * block_bytes(&s);
        const char *rows = cpu_rows_load(x, &s, first, n, carrier, buffer);
        for (int64_t r = 0; r < n; r++) found[r] = selects[carrier].extreme(rows + r * stride, s.length, largest, last);
        cpu_tile_store(y, first, n, IR_i64, found);
    }
    return AMPC_OK;
}

const k_kernel cpu_arg_max = {.prepare = arg_max_prepare, .run = arg_max_run};

/* ---- top_k ---- */

/* Rows of x and of the results. */
typedef struct top_k_shape {
    cpu_rows x, y;
    int64_t k;
} top_k_shape;

static top_k_shape top_k_shape_of(const k_args *args)
{
    const int64_t axis = args->attr[IR_ATTR(top_k, axis)].i;
    return (top_k_shape){cpu_rows_of(&args->in[0], axis), cpu_rows_of(&args->out[0], axis),
                         args->attr[IR_ATTR(top_k, count)].list.items[0]};
}

/* Workspace per thread: a block of x, of values and of positions. */
static size_t top_k_bytes(const top_k_shape *s) { return block_bytes(&s->x) + 2 * block_bytes(&s->y); }

static ampc_status top_k_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const top_k_shape s = top_k_shape_of(args);
    *workspace = (size_t)args->ctx->threads * top_k_bytes(&s);
    return AMPC_OK;
}

static ampc_status top_k_run(const k_args *args)
{
    const k_view *x = &args->in[0], *values = &args->out[0], *indices = cpu_result(args, 1);
    const top_k_shape s = top_k_shape_of(args);
    const ir_dtype carrier = cpu_formula_carrier(x->dtype);
    const bool largest = args->attr[IR_ATTR(top_k, largest)].i;
    const int64_t size = (int64_t)ir_dtype_size(carrier);
    if (k_count(values) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t block = 0; block < s.x.blocks; block++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * top_k_bytes(&s);
        char *chosen = buffer + block_bytes(&s.x);
        int64_t *positions = (int64_t *)(chosen + block_bytes(&s.y));
        int64_t first, n = cpu_rows_block(&s.x, block, &first);
        const char *rows = cpu_rows_load(x, &s.x, first, n, carrier, buffer);
        for (int64_t r = 0; r < n; r++)
            selects[carrier].first(rows + r * s.x.length * size, s.x.length, s.k, largest, chosen + r * s.k * size,
                                   positions + r * s.k);
        if (s.y.inner == 1) cpu_tile_store(values, first * s.k, s.k, carrier, chosen);
        else cpu_rows_store(values, &s.y, first, n, carrier, chosen);
        if (cpu_is_used(indices)) cpu_rows_store(indices, &s.y, first, n, IR_i64, positions);
    }
    return AMPC_OK;
}

const k_kernel cpu_top_k = {.prepare = top_k_prepare, .run = top_k_run};
