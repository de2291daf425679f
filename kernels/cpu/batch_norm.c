/* batch_norm.c - normalisation per channel, and its gradient.
 *
 * x is [N, C, S]. A channel is visited in pieces of about a tile; where S is small, 64 channels
 * are visited together and separated while loading, so that memory is still read in whole cache
 * lines. Statistics: mean and squared deviations of each piece in the carrier's type, pieces
 * joined in f64 (Chan, Golub, LeVeque 1979): one pass over memory, no cancellation. A thread owns
 * whole channels, so the order of sums depends on shapes alone. */
#include "kernels/cpu/cpu.h"
#include "kernels/real.h"

#include <math.h>

enum { TOGETHER = 64, SMALL = 16, PANEL = 16 * CPU_TILE };

typedef struct layout {
    int64_t batch, channels, size; /* N, C, S */
    int64_t count;                 /* elements per channel */
    int64_t together, groups;      /* channels visited together, groups of such channels */
    int64_t rows, per_row, pieces; /* rows of S per piece, pieces per row, pieces per group */
} layout;

static layout layout_of(const k_view *x)
{
    layout l = {.batch = x->dims[0], .channels = x->dims[1], .size = 1};
    for (int i = 2; i < x->rank; i++) l.size *= x->dims[i];
    l.count = l.batch * l.size;
    l.together = l.size < SMALL ? TOGETHER : 1;
    l.groups = cpu_ceil_div(l.channels, l.together);
    l.rows = l.size == 0      ? 1
             : l.together > 1 ? PANEL / TOGETHER / l.size
                              : k_max(1, CPU_TILE / l.size);
    l.per_row = cpu_ceil_div(l.size, CPU_TILE);
    l.pieces = cpu_ceil_div(l.batch, l.rows) * l.per_row;
    return l;
}

/* Rows [row, row + rows) of the batch, columns [column, column + columns) of S. */
typedef struct piece {
    int64_t row, rows, column, columns, count;
} piece;

static piece piece_of(const layout *l, int64_t i)
{
    piece p = {.row = i / l->per_row * l->rows, .column = i % l->per_row * CPU_TILE};
    p.rows = k_min(l->rows, l->batch - p.row);
    p.columns = k_min(CPU_TILE, l->size - p.column);
    p.count = p.rows * p.columns;
    return p;
}

static int64_t element(const layout *l, const piece *p, int64_t row, int64_t channel)
{
    return ((p->row + row) * l->channels + channel) * l->size + p->column;
}

/* A piece is part of one row: it needs no copy. */
static bool direct(const layout *l) { return l->together == 1 && l->rows == 1; }

static const k_view *result(const k_args *args, int i)
{
    static const k_view none = {.dtype = IR_NO_DTYPE};
    return i < args->n_out ? &args->out[i] : &none;
}

static double number(const k_view *v, int64_t i) { return ir_load_f64(v->dtype, cpu_at(v, i)); }

static void store_number(const k_view *v, int64_t i, double value)
{
    if (cpu_wanted(v)) cpu_tile_store(v, i, 1, IR_f64, &value);
}

#define REAL float
#include "kernels/cpu/batch_norm_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/batch_norm_body.h"
#undef REAL

typedef void group_fn(const k_args *args, const layout *l, int64_t group);

static ampc_status run_groups(const k_args *args, group_fn *f32, group_fn *f64)
{
    const layout l = layout_of(&args->in[0]);
    group_fn *group = args->in[0].dtype == IR_f64 ? f64 : f32;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, l.count *l.channels)) schedule(static)
    for (int64_t g = 0; g < l.groups; g++) group(args, &l, g);
    return AMPC_OK;
}

static ampc_status batch_norm_run(const k_args *args)
{
    return run_groups(args, normalise_float, normalise_double);
}

static ampc_status batch_norm_grad_run(const k_args *args)
{
    return run_groups(args, slope_float, slope_double);
}

const k_kernel cpu_batch_norm = {"batch_norm", NULL, batch_norm_run, NULL};
const k_kernel cpu_batch_norm_grad = {"batch_norm_grad", NULL, batch_norm_grad_run, NULL};
