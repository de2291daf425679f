/* grad_select.c - gradients of cum_sum, top_k and det. x is the operand and d the gradient of the result. */
#include "passes/train/grad.h"

/* The terms of y[i] are the x[j] for which x[i] is a term of dx[j]. */
bool grad_cum_sum(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_cum_sum, 1, (ir_value *[]){D});
    if (!n) return false;
    ir_set_bool(n, IR_ATTR(cum_sum, reverse), !g->n->attr[IR_ATTR(cum_sum, reverse)].i);
    return (g->dx[0] = ir_done(g->b, n)) != NULL;
}

bool grad_det(grad *g)
{
    return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_det_grad, 2, (ir_value *[]){D, X}))) != NULL;
}

/* ---- top_k: x is a table of single elements, from which the positions gather ---------------------- */

static ir_value *iota(grad *g, ir_dim size)
{
    ir_node *n = ir_new(g->b, IR_OP_iota, 0);
    ir_set_list(n, IR_ATTR(iota, size), &size, 1);
    return ir_done(g->b, n);
}

/* A size as an i64 value. */
static ir_value *size_value(grad *g, ir_dim size)
{
    ir_node *n = ir_new(g->b, IR_OP_dims, 0);
    ir_set_list(n, IR_ATTR(dims, value), &size, 1);
    return ir_done(g->b, n);
}

/* Positions [outer, k, inner] along an axis of `size` elements as positions in the whole array. */
static ir_value *flatten(grad *g, ir_value *positions, ir_dim outer, ir_dim size, ir_dim inner)
{
    ir_dim block = ir_dim_mul(g->b->graph->module->dims, size, inner);
    ir_value *step = size_value(g, block), *rows = ir_binary(g->b, IR_OP_mul, iota(g, outer), step);
    ir_value *columns = iota(g, inner);
    rows = ir_reshape(g->b, rows, (ir_dim[]){outer, 1, 1}, 3);
    positions = ir_binary(g->b, IR_OP_mul, positions, size_value(g, inner));
    return ir_binary(g->b, IR_OP_add, ir_binary(g->b, IR_OP_add, positions, rows), columns);
}

bool grad_top_k(grad *g)
{
    if (!D) return g->zero = true;
    const ir_type *x = &X->type, *y = &ir_out(g->n, 0)->type;
    ir_dim_table *t = g->b->graph->module->dims;
    int64_t axis = g->n->attr[IR_ATTR(top_k, axis)].i;
    if (axis < 0) axis += x->rank;
    ir_dim outer = ir_dim_product(t, x->dims, (int)axis);
    ir_dim inner = ir_dim_product(t, x->dims + axis + 1, x->rank - (int)axis - 1);
    ir_dim all = ir_type_count(t, x), chosen = ir_type_count(t, y);
    ir_value *at = ir_cast(g->b, ir_out(g->n, IR_OUT(top_k, indices)), IR_i64);
    at = ir_reshape(g->b, at, (ir_dim[]){outer, y->dims[axis], inner}, 3);
    at = ir_reshape(g->b, flatten(g, at, outer, x->dims[axis], inner), &chosen, 1);
    ir_node *n = ir_new(g->b, IR_OP_gather_grad, 2, ir_reshape(g->b, D, &chosen, 1), at);
    ir_set_list(n, IR_ATTR(gather_grad, shape), &all, 1);
    return (g->dx[0] = ir_reshape_like(g->b, ir_done(g->b, n), x)) != NULL;
}
