/* grad_recurrent.c - gradients of recurrent networks. */
#include "passes/train/grad.h"

/* [T,B,n] as [T*B,n] */
static ir_value *rows_of(grad *g, ir_value *v)
{
    const ir_dim *d = v->type.dims, dims[2] = {ir_dim_mul(g->b->graph->module->dims, d[0], d[1]), d[2]};
    return ir_reshape(g->b, v, dims, 2);
}

/* Columns [start, start + size) of a matrix. */
static ir_value *columns_of(grad *g, ir_value *v, ir_dim start, ir_dim size)
{
    ir_node *n = ir_new(g->b, IR_OP_slice, 1, v);
    ir_set_list(n, IR_ATTR(slice, start), (ir_dim[]){0, start}, 2);
    ir_set_list(n, IR_ATTR(slice, size), (ir_dim[]){v->type.dims[0], size}, 2);
    ir_set_list(n, IR_ATTR(slice, step), (int64_t[]){1, 1}, 2);
    return ir_done(g->b, n);
}

/* The gradient of R: that of the products times what they multiply, which for the last gate of a GRU may be the state
 * after the reset. */
static ir_value *gradient_of_weights(grad *g, const ir_node *n)
{
    const ir_attr *attr = g->n->attr;
    ir_value *previous = rows_of(g, n->out[IR_OUT(recurrent_grad, previous)]);
    const bool late = attr[IR_ATTR(recurrent, linear_before_reset)].i;
    ir_value *products = rows_of(g, n->out[late ? IR_OUT(recurrent_grad, dproduct) : IR_OUT(recurrent_grad, dx)]);
    if (late || attr[IR_ATTR(recurrent, cell)].i != IR_WORD(cell, gru))
        return ir_matmul(g->b, products, previous, NULL, true, false);
    const ir_dim hidden = previous->type.dims[1], two = ir_dim_mul(g->b->graph->module->dims, hidden, 2);
    ir_value *parts[2] = {ir_matmul(g->b, columns_of(g, products, 0, two), previous, NULL, true, false)};
    ir_value *reset = rows_of(g, n->out[IR_OUT(recurrent_grad, reset)]);
    parts[1] = ir_matmul(g->b, columns_of(g, products, two, hidden), reset, NULL, true, false);
    if (!parts[0] || !parts[1]) return NULL;
    return ir_done(g->b, ir_new_array(g->b, IR_OP_concat, 2, parts, 0));
}

static ir_value *gradient_of_bias(grad *g, const ir_node *n, ir_dim hidden)
{
    ir_value *products = rows_of(g, n->out[IR_OUT(recurrent_grad, dproduct)]);
    ir_value *last = columns_of(g, products, ir_dim_mul(g->b->graph->module->dims, hidden, 2), hidden);
    return ir_reduce_sum(g->b, last, (int64_t[]){0}, 1, false);
}

/* `cells` and `gates` exist for this rule only; no operator has them as results. */
bool grad_recurrent(grad *g)
{
    ir_value *y = ir_out(g->n, 0), *const *dy = g->dy;
    ir_value *dh = grad_cast_like(g, dy[IR_OUT(recurrent, y)], y);
    ir_value *in[] = {dh,
                      grad_cast_like(g, dy[IR_OUT(recurrent, last_h)], y),
                      dy[IR_OUT(recurrent, last_c)],
                      ir_in(g->n, IR_IN(recurrent, r)),
                      y,
                      ir_out(g->n, IR_OUT(recurrent, cells)),
                      ir_out(g->n, IR_OUT(recurrent, gates)),
                      ir_in(g->n, IR_IN(recurrent, h0)),
                      ir_in(g->n, IR_IN(recurrent, c0)),
                      ir_in(g->n, IR_IN(recurrent, peephole)),
                      ir_in(g->n, IR_IN(recurrent, lengths))};
    if (dy[IR_OUT(recurrent, cells)] || dy[IR_OUT(recurrent, gates)]) {
        diag_error(g->b->diag, AMPC_UNSUPPORTED, ir_diag_loc(g->n), "no gradient through the results cells and gates");
        return false;
    }
    ir_node *n = grad_node(g, IR_OP_recurrent_grad, 11, in);
    if (!ir_done_all(g->b, n)) return false;
    g->dx[IR_IN(recurrent, x)] = n->out[IR_OUT(recurrent_grad, dx)];
    g->dx[IR_IN(recurrent, h0)] = n->out[IR_OUT(recurrent_grad, dh0)];
    g->dx[IR_IN(recurrent, c0)] = n->out[IR_OUT(recurrent_grad, dc0)];
    g->dx[IR_IN(recurrent, peephole)] = n->out[IR_OUT(recurrent_grad, dpeephole)];
    if (g->required[IR_IN(recurrent, r)]) g->dx[IR_IN(recurrent, r)] = gradient_of_weights(g, n);
    if (g->required[IR_IN(recurrent, bias)]) g->dx[IR_IN(recurrent, bias)] = gradient_of_bias(g, n, y->type.dims[2]);
    return true;
}
