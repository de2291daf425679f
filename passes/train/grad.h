/* grad.h - how a gradient rule talks to the autodiff walk.
 *
 * A rule sees one forward node with the gradients of its results and makes the gradients of its operands, in the
 * forward dtype or any other float type, broadcast or not: the walk sums over broadcast axes, casts to the operand's
 * type and accumulates. A rule need not look at `want`: what nobody reads is removed later. It does so only where the
 * unwanted part would be work that dce cannot see (a second result of one node). */
#ifndef AMPC_GRAD_H
#define AMPC_GRAD_H

#include "ir/ir.h"

typedef struct grad {
    ir_builder *b;        /* makes backward nodes with the forward node's location */
    ir_node *n;           /* the forward node */
    ir_value *const *dy;  /* by result; NULL where no gradient arrives */
    const bool *want;     /* by operand */
    ir_value **dx;        /* by operand, to be filled; NULL: none, an error unless ir_op_stops or `zero` says so */
    bool zero;            /* set by the rule: zero wherever it exists */
} grad;

typedef bool grad_rule(grad *g); /* false: failed, reported */

/* One per word of the grad column of ops.def; a missing one is a link error that names it. */
#define OP(name, amp, traits, infer, fold, word, kernel) grad_rule grad_##word;
#include "ir/ops.def"

/* ---- shorthands of the rules ----------------------------------------------------------------- */

/* A node of another op whose attributes of the same name and kind are those of the forward node. */
ir_node *grad_node(grad *g, ir_op op, int n_in, ir_value *const *in);
/* Sets the DIMS attribute `shape` of `n` to the dimensions of v. */
ir_node *grad_shaped(ir_node *n, int attr, const ir_value *v);
/* v in the dtype of `like`. */
ir_value *grad_cast_like(grad *g, ir_value *v, const ir_value *like);
/* Zeros of v's type. */
ir_value *grad_zeros(grad *g, const ir_value *v);

#endif
