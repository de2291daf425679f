/* reduce.c - sums, means and the global norm.
 *
 * Merged dimensions are either kept or reduced. If the innermost is reduced, an output is a sum
 * over contiguous pieces (lanes.c); if it is kept, a tile of outputs is a sum of contiguous rows:
 * 32 rows at a time in the carrier's type, these blocks in f64. Where there are few outputs and
 * many terms, the terms are cut into groups whose number depends on shapes alone; partial sums
 * are added in order. */
#include "kernels/cpu/cpu.h"
#include "kernels/real.h"

#include <math.h>

enum {
    GROUP_TERMS = 16384, /* terms per group, at least */
    UNITS = 64,          /* enough independent units of work: no groups needed */
    UNIT_TERMS = 4096,   /* short sums share a unit up to this many */
    BLOCK_ROWS = 32
};

typedef struct plan {
    cpu_walk kept, reduced; /* the outer dimensions of each kind; src strides */
    int64_t n_kept, n_reduced;
    bool inner_kept;
    int64_t length;  /* of the innermost dimension */
    int64_t columns; /* outputs per unit */
    int64_t
        column_tiles; /* units per outer kept index; of all outputs if the innermost is reduced */
    int64_t units, groups;
    int64_t outputs, terms; /* results; elements per result */
} plan;

static void append(cpu_walk *w, int64_t *count, int64_t dim, int64_t stride)
{
    w->dims[w->rank] = dim;
    w->src[w->rank++] = stride;
    *count *= dim;
}

static bool is_reduced(const ir_attr *axes, int rank, int i)
{
    for (int k = 0; k < axes->list.count; k++)
        if (axes->list.items[k] == i || axes->list.items[k] + rank == i) return true;
    return false;
}

static plan plan_of(const k_view *x, const ir_attr *axes)
{
    plan p = {.n_kept = 1, .n_reduced = 1, .inner_kept = true, .length = 1};
    int64_t strides[IR_MAX_RANK];
    cpu_dense_strides(x->rank, x->dims, strides);
    int inner = x->rank - 1;
    while (inner > 0 && x->dims[inner] == 1) inner--;
    if (inner >= 0) p.inner_kept = !is_reduced(axes, x->rank, inner);
    for (; inner >= 0 && is_reduced(axes, x->rank, inner) != p.inner_kept; inner--)
        p.length *= x->dims[inner];
    for (int i = 0; i <= inner; i++) {
        if (is_reduced(axes, x->rank, i))
            append(&p.reduced, &p.n_reduced, x->dims[i], strides[i]);
        else
            append(&p.kept, &p.n_kept, x->dims[i], strides[i]);
    }
    p.terms = p.n_reduced * (p.inner_kept ? 1 : p.length);
    int64_t outputs = p.inner_kept ? p.length : p.n_kept; /* that a unit may be cut from */
    int64_t most = p.inner_kept ? CPU_TILE : k_min(CPU_TILE, UNIT_TERMS / k_max(1, p.terms));
    p.columns = k_max(1, k_min(most, outputs));
    p.column_tiles = cpu_ceil_div(outputs, p.columns);
    p.units = p.column_tiles * (p.inner_kept ? p.n_kept : 1);
    p.outputs = p.n_kept * (p.inner_kept ? p.length : 1);
    p.groups = p.units >= UNITS || p.units == 0
                   ? 1
                   : k_max(1, k_min(UNITS / p.units, p.terms * p.columns / GROUP_TERMS));
    return p;
}

static int64_t walk_offset(const cpu_walk *w, int64_t index)
{
    int64_t offset = 0;
    for (int i = w->rank - 1; i > 0; i--) {
        offset += index % w->dims[i] * w->src[i];
        index /= w->dims[i];
    }
    return w->rank ? offset + index * w->src[0] : 0;
}

#define REAL float
#define TOTAL double
#include "kernels/cpu/reduce_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/reduce_body.h"
#undef REAL
#undef TOTAL
#define REAL uint64_t
#define TOTAL uint64_t
#define MEAN(sum, n) (uint64_t)((n) ? (int64_t)(sum) / (n) : 0)
#include "kernels/cpu/reduce_body.h"
#undef REAL
#undef TOTAL
#undef MEAN

static ampc_status reduce_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    plan p = plan_of(&args->in[0], &args->attr[IR_ATTR(reduce_sum, axes)]);
    if (p.groups > 1) *workspace = (size_t)(p.groups * p.outputs) * sizeof(double);
    return AMPC_OK;
}

static ampc_status reduce_run(const k_args *args)
{
    const plan p = plan_of(&args->in[0], &args->attr[IR_ATTR(reduce_sum, axes)]);
    if (p.outputs == 0) return AMPC_OK;
    switch (cpu_carrier(args->in[0].dtype)) {
    case IR_f32: reduce_float(args, &p); break;
    case IR_f64: reduce_double(args, &p); break;
    default: reduce_uint64_t(args, &p); break;
    }
    return AMPC_OK;
}

_Static_assert(IR_ATTR(reduce_sum, axes) == IR_ATTR(reduce_mean, axes), "one driver");

/* ---- global norm ---- */

static ampc_status global_norm_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    int64_t most = 0;
    for (int i = 0; i < args->n_in; i++) most = k_max(most, k_count(&args->in[i]));
    *workspace = (size_t)cpu_ceil_div(most, GROUP_TERMS) * sizeof(double);
    return AMPC_OK;
}

static double squares(const k_view *x, int64_t first, int64_t n)
{
    ir_dtype carrier = cpu_carrier(x->dtype);
    double sum = 0;
    for (int64_t i = 0; i < n; i += CPU_TILE) {
        cpu_tile scratch;
        int64_t m = k_min(CPU_TILE, n - i);
        const void *p = cpu_tile_load(x, first + i, m, carrier, &scratch);
        sum += carrier == IR_f64 ? lanes_squares_double(p, 0, m) : lanes_squares_float(p, 0, m);
    }
    return sum;
}

static ampc_status global_norm_run(const k_args *args)
{
    double total = 0, *partial = args->workspace;
    for (int i = 0; i < args->n_in; i++) {
        const k_view *x = &args->in[i];
        int64_t n = k_count(x), groups = cpu_ceil_div(n, GROUP_TERMS);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
        for (int64_t g = 0; g < groups; g++)
            partial[g] = squares(x, g * GROUP_TERMS, k_min(GROUP_TERMS, n - g * GROUP_TERMS));
        for (int64_t g = 0; g < groups; g++) total += partial[g];
    }
    total = sqrt(total);
    cpu_tile_store(&args->out[0], 0, 1, IR_f64, &total);
    return AMPC_OK;
}

const k_kernel cpu_reduce_sum = {"reduce_sum", reduce_prepare, reduce_run, NULL};
const k_kernel cpu_reduce_mean = {"reduce_mean", reduce_prepare, reduce_run, NULL};
const k_kernel cpu_global_norm = {"global_norm", global_norm_prepare, global_norm_run, NULL};
