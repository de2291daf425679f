/* fold.h - internals of constant folding: what the evaluations use (fold_*.c, one function per family of ops).
 *
 * When an evaluation runs, all present operands are known and every result has a static shape within the limit. It
 * fills the results and returns true, or returns false if it cannot determine them. */
#ifndef AMPC_FOLD_H
#define AMPC_FOLD_H

#include "ir/ops/formulas.h"
#include "ir/graph/ir.h"

typedef struct cells { /* an ir_const_value under construction */
    ir_type type;
    int64_t count;
    ir_dim *ints;
    double *floats;
} cells;

typedef struct fold_state {
    const ir_node *node;
    ir_dim_table *dims;
    const ir_const_value **in; /* NULL: absent */
    cells *out;                /* zeroed */
} fold_state;

typedef bool fold_function(const fold_state *f);

/* One function per word of the fold column of ops.def. */
#define OP(name, amp, traits, infer, word, grad, kernel) fold_function fold_##word;
#include "ir/ops/ops.def"

/* Addresses a tensor along the axes of another one. */
typedef struct fold_view {
    int64_t offset, stride[IR_MAX_RANK];
} fold_view;

fold_view fold_view_dense(const ir_type *type);
/* `from` broadcast to shape `to`. */
fold_view fold_view_broadcast(const ir_type *from, const ir_type *to);
/* The position in the view of element `index` (row major) of `shape`. */
int64_t fold_view_at(const fold_view *v, const ir_type *shape, int64_t index);

/* The value that a kernel of that dtype would store: floats are computed in f32 (f64 for f64) and rounded once more if
 * narrower; integers wrap. IR_DIM_NONE: a symbolic integer that the type might not hold. */
double fold_round(ir_dtype t, double v);
/* The integer that 64 bits stand for; IR_DIM_NONE: a u64 that no ir_dim stands for. */
static inline ir_dim fold_number(ir_dtype t, int64_t bits)
{
    return t == IR_u64 && bits < IR_DIM_LOWEST ? IR_DIM_NONE : ir_dim_number(bits);
}
ir_dim fold_wrap(ir_dtype t, ir_dim v);

/* Element k of a known value becomes element i of the result. */
void fold_copy(const cells *to, int64_t i, const ir_const_value *from, int64_t k);

/* Evaluates a formula without bounds on floats, in double. */
double fold_float(ir_formula formula, double a, double b);
/* Evaluates a formula on integers; IR_DIM_NONE if the result is not known. */
ir_dim fold_integer(const fold_state *f, ir_formula formula, ir_dim a, ir_dim b);
/* The same with bounds; IR_DIM_NONE for an absent bound. */
ir_dim fold_bounded(const fold_state *f, ir_formula formula, ir_dim a, ir_dim b, ir_dim lo, ir_dim hi);

#endif
