/* infer.h - internals of inference: what the rules (infer_*.c, one function per word of the infer column) use;
 * implemented in infer_rule.c.
 *
 * Before a rule runs, arity, mandatory operands, dtypes and attribute ranges have been checked. The rule checks shapes
 * and sets its results. Every function that returns a status has reported its error. */
#ifndef AMPC_INFER_H
#define AMPC_INFER_H

#include "ir/graph/ir.h"

typedef struct inference {
    ir_node *node;
    diag *diag;
    ir_module *module;
    ir_dim_table *dims;
    ir_dtype group[IR_GROUP_U + 1]; /* dtype shared by the operands of a group */
} inference;

#define OP(name, amp, traits, word, fold, grad, kernel) ampc_status infer_##word(const inference *x);
#include "ir/ops/ops.def"

ampc_status infer_reject(const inference *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For messages: "f32[N,784]", "N". */
const char *infer_show(const inference *x, const ir_type *type);
const char *infer_show_dim(const inference *x, ir_dim d);

/* Operands. `infer_in` returns NULL for an absent one; `infer_operand` returns the type of the operand in that slot. */
const ir_type *infer_in(const inference *x, int i);
static inline const ir_slot *infer_slot(const inference *x, int i)
{
    return ir_op_in_slot(x->node->op, i, x->node->n_in);
}
const ir_type *infer_operand(const inference *x, const char *slot);
/* Check that an operand has the given shape, is a scalar, or has low to high dimensions. An absent operand or slot is
 * accepted. Messages: "bias must be f32[10], is f32[11]". */
ampc_status infer_expect(const inference *x, int i, const ir_type *shape);
ampc_status infer_expect_operand(const inference *x, const char *slot, const ir_type *shape);
ampc_status infer_expect_rng(const inference *x, const ir_type *rng);
ampc_status infer_expect_scalar(const inference *x, int i);
ampc_status infer_expect_rank(const inference *x, int i, int low, int high);

/* Attributes of rules that several ops share. The op must have the slot; `find` returns NULL if it does not. */
const ir_attr *infer_attr_find(const inference *x, const char *slot);
const ir_attr *infer_attr(const inference *x, const char *slot);
/* The items of a list attribute, which must have exactly `count` entries. */
ampc_status infer_list(const inference *x, const char *slot, int count, const int64_t **items);
/* The attribute `shape`. */
ampc_status infer_shape(const inference *x, ir_type *out);
/* The axis attribute, counted from the front, of a tensor with `rank` axes. */
ampc_status infer_axis(const inference *x, int rank, int *out);
ampc_status infer_axis_number(const inference *x, int64_t axis, int rank, int *out);

/* Sets the type of result i; does nothing if the node has no such result. dtype IR_NO_DTYPE: determined by the slot. */
ampc_status infer_result(const inference *x, int i, ir_type type);
/* A shape without dtype. */
ir_type infer_untyped(int rank, const ir_dim *dims);

#endif
