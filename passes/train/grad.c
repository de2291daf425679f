/* grad.c - helpers of the gradient rules, and the two rules that emit no nodes. */
#include "passes/train/grad.h"

#include <string.h>

ir_node *grad_node(grad *g, ir_op op, int n_in, ir_value *const *in) { return grad_node_with(g, op, n_in, in, 0); }

ir_node *grad_node_with(grad *g, ir_op op, int n_in, ir_value *const *in, int n_out)
{
    ir_node *n = ir_new_array(g->b, op, n_in, in, n_out);
    if (!n) return NULL;
    const ir_op_info *from = ir_op_get(g->n->op), *to = ir_op_get(op);
    for (int i = 0; i < to->n_attr; i++)
        for (int j = 0; j < from->n_attr; j++)
            if (to->attr[i].kind == from->attr[j].kind && to->attr[i].kind != IR_SLOT_DTYPE &&
                strcmp(to->attr[i].name, from->attr[j].name) == 0)
                n->attr[i] = g->n->attr[j];
    return n;
}

ir_node *grad_shaped(ir_node *n, int attr, const ir_value *v)
{
    ir_set_list(n, attr, v->type.dims, v->type.rank);
    return n;
}

ir_value *grad_cast_like(grad *g, ir_value *v, const ir_value *like)
{
    return v && like ? ir_cast(g->b, v, like->type.dtype) : NULL;
}

ir_value *grad_zeros(grad *g, const ir_value *v)
{
    return ir_expand(g->b, ir_scalar(g->b, v->type.dtype, 0.0), v->type.dims, v->type.rank);
}

bool grad_none(grad *g)
{
    diag_error(g->b->diag, AMPC_UNSUPPORTED, ir_diag_loc(g->n), "operator %s has no gradient",
               g->n->loc.op ? g->n->loc.op : ir_op_get(g->n->op)->name);
    return false;
}

/* The gradient of a piecewise constant op is zero wherever it exists. */
bool grad_zero(grad *g) { return g->zero = true; }
