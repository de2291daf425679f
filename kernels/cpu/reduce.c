/* reduce.c - the reductions of ir/ops/reductions.def and the global norm.
 *
 * Merged dimensions are either kept or reduced. If the innermost is reduced, an output is a fold of contiguous pieces
 * (lanes.c). If it is kept, a tile of outputs is a fold of contiguous rows: 32 rows at a time in the carrier's type,
 * and these blocks in f64. If there are few outputs with many terms, the terms are divided into groups whose number
 * depends only on shapes, and the partial results are joined in order. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "ir/ops/real.h"
#include "ir/ops/reductions.h"
#include "kernels/reduction.h"
#include "kernels/update.h"

#include <math.h>

enum {
    UNITS = 64,        /* enough units of work without groups */
    UNIT_TERMS = 4096, /* maximum terms of a unit that combines short sums */
    BLOCK_ROWS = 32
};

/* What to reduce (shape), and how the work is divided. */
typedef struct plan {
    k_reduction shape;
    int64_t columns;      /* outputs per unit */
    int64_t column_tiles; /* units per outer kept index; if the innermost run is reduced, in total */
    int64_t units, groups;
    ir_reduction of;
    double start; /* result without terms; `start_integer` for integers */
    int64_t start_integer;
} plan;

static plan plan_of(k_reduction shape)
{
    plan p = {.shape = shape};
    const k_reduction *r = &p.shape;
    int64_t outputs = r->inner_kept ? r->length : r->n_kept; /* to divide into units */
    int64_t longest = r->inner_kept ? CPU_TILE : k_min(CPU_TILE, UNIT_TERMS / k_max(1, r->terms));
    p.columns = k_max(1, k_min(longest, outputs));
    p.column_tiles = cpu_ceil_div(outputs, p.columns);
    p.units = p.column_tiles * (r->inner_kept ? r->n_kept : 1);
    p.groups = p.units >= UNITS || p.units == 0
                   ? 1
                   : k_max(1, k_min(UNITS / p.units, r->terms * p.columns / CPU_GROUP_TERMS));
    return p;
}

static plan plan_of_args(const k_args *args)
{
    plan p = plan_of(k_reduction_of(&args->in[0], &args->attr[IR_ATTR(reduce_sum, axes)]));
    p.of = ir_reduction_of(args->op);
    p.start = ir_combine_start_float(p.of.combine);
    p.start_integer = ir_combine_start_integer(p.of.combine, args->in[0].dtype);
    return p;
}

int64_t cpu_sum_groups(int64_t outputs, int64_t terms)
{
    return plan_of((k_reduction){.n_kept = outputs, .length = terms, .outputs = outputs, .terms = terms}).groups;
}

static int64_t walk_offset(const k_walk *w, int64_t index)
{
    int64_t offset = 0;
    for (int i = w->rank - 1; i > 0; i--) {
        offset += index % w->dims[i] * w->src[i];
        index /= w->dims[i];
    }
    return w->rank ? offset + index * w->src[0] : 0;
}

static double start_float(const plan *p) { return p->start; }
static double start_double(const plan *p) { return p->start; }
static int64_t start_int64_t(const plan *p) { return p->start_integer; }
static uint64_t start_uint64_t(const plan *p) { return (uint64_t)p->start_integer; }

#define WITH_REDUCTIONS
#define WITH_FLOAT
#define WITH_DOUBLE
#define CARRIER_BODY "kernels/cpu/reduce_body.h"
#include "ir/ops/formulas_each.h"

static ampc_status reduce_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    plan p = plan_of_args(args);
    if (p.groups > 1) *workspace = (size_t)(p.groups * p.shape.outputs) * sizeof(double);
    return AMPC_OK;
}

static ampc_status reduce_run(const k_args *args)
{
    const plan p = plan_of_args(args);
    if (p.shape.outputs == 0) return AMPC_OK;
    switch (cpu_formula_carrier(args->in[0].dtype)) {
    case IR_f32: reduce_float(args, &p); break;
    case IR_f64: reduce_double(args, &p); break;
    case IR_u64: reduce_uint64_t(args, &p); break;
    default: reduce_int64_t(args, &p); break;
    }
    return AMPC_OK;
}

#define REDUCTION(op, ...) const k_kernel cpu_##op = {.prepare = reduce_prepare, .run = reduce_run};
#include "ir/ops/reductions.def"

/* ---- global norm ---- */

size_t cpu_partial_squares(const k_view *gradients, int n)
{
    int64_t longest = 0;
    for (int i = 0; i < n; i++) longest = k_max(longest, k_count(&gradients[i]));
    return (size_t)cpu_ceil_div(longest, CPU_GROUP_TERMS);
}

double cpu_squares(ir_dtype carrier, const void *x, int64_t n)
{
    return carrier == IR_f64 ? lanes_squares_double(x, 0, n) : lanes_squares_float(x, 0, n);
}

static ampc_status global_norm_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    *workspace = cpu_partial_squares(args->in, args->listed) * sizeof(double);
    return AMPC_OK;
}

/* Unscales into `to`, rounding like check_finite_and_unscale. */
static const void *unscaled(const void *x, double inverse, ir_dtype carrier, int64_t n, cpu_tile *to)
{
    if (carrier == IR_f64) CPU_SIMD for (int64_t i = 0; i < n; i++)((double *)to)[i] = ((const double *)x)[i] * inverse;
    else CPU_SIMD for (int64_t i = 0; i < n; i++)((float *)to)[i] = ((const float *)x)[i] * (float)inverse;
    return to;
}

/* The sum of squares of elements [first, first + n), unscaled unless `scale` is NULL. */
static double squares(const k_view *x, const k_view *scale, int64_t first, int64_t n)
{
    ir_dtype carrier = cpu_carrier(x->dtype);
    double sum = 0;
    for (int64_t i = 0; i < n; i += CPU_TILE) {
        cpu_tile scratch;
        int64_t m = k_min(CPU_TILE, n - i);
        const void *p = cpu_tile_load(x, first + i, m, carrier, &scratch);
        if (scale) p = unscaled(p, cpu_inverse(scale), carrier, m, &scratch);
        sum += cpu_squares(carrier, p, m);
    }
    return sum;
}

static ampc_status global_norm_run(const k_args *args)
{
    double total = 0, *partial = args->workspace;
    const k_view *scale = k_extra_in(args, K_SLOT(norm, scale)), *made = k_extra_in(args, K_SLOT(norm, squares));
    for (int64_t i = 0; made && i < k_count(made); i++) total += ((const double *)made->data)[i];
    for (int i = 0; i < args->listed; i++) {
        const k_view *x = &args->in[i];
        int64_t n = k_count(x), groups = cpu_ceil_div(n, CPU_GROUP_TERMS);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
        for (int64_t g = 0; g < groups; g++)
            partial[g] = squares(x, scale, g * CPU_GROUP_TERMS, k_min(CPU_GROUP_TERMS, n - g * CPU_GROUP_TERMS));
        for (int64_t g = 0; g < groups; g++) total += partial[g];
    }
    total = sqrt(total);
    cpu_tile_store(&args->out[0], 0, 1, IR_f64, &total);
    return AMPC_OK;
}

const k_kernel cpu_global_norm = {.prepare = global_norm_prepare, .run = global_norm_run};
