/* grad_matmul.c - gradients of matmul, convolution and pooling. */
#include "passes/train/grad.h"

/* Sum over all axes but `axis`. */
static ir_value *sum_to_axis(grad *g, ir_value *d, int axis)
{
    int64_t axes[IR_MAX_RANK];
    int n = 0;
    for (int i = 0; i < d->type.rank; i++)
        if (i != axis) axes[n++] = i;
    return ir_reduce_sum(g->b, d, axes, n, false);
}

/* Reshapes v from [.., m, n] to [rows, n]. */
static ir_value *flatten_rows(grad *g, ir_value *v)
{
    if (!v) return NULL;
    ir_dim dims[2] = {ir_dim_product(g->b->graph->module->dims, v->type.dims, v->type.rank - 1),
                      v->type.dims[v->type.rank - 1]};
    return ir_reshape(g->b, v, dims, 2);
}

/* y = op(a) op(b); the transposes follow from (AB)' = B'A'. For a shared 2-D b (a weight) one GEMM over all rows
 * replaces a batch of products that would have to be summed. */
bool grad_matmul(grad *g)
{
    ir_value *a = X, *b = W, *d = grad_cast_like(g, D, X);
    bool ta = g->n->attr[IR_ATTR(matmul, trans_a)].i, tb = g->n->attr[IR_ATTR(matmul, trans_b)].i;
    if (g->required[0]) g->dx[0] = ta ? ir_matmul(g->b, b, d, NULL, tb, true) : ir_matmul(g->b, d, b, NULL, false, !tb);
    if (g->required[1]) {
        bool shared = b->type.rank == 2 && a->type.rank > 2 && !ta;
        ir_value *a2 = shared ? flatten_rows(g, a) : a, *d2 = shared ? flatten_rows(g, d) : d;
        g->dx[1] = tb ? ir_matmul(g->b, d2, a2, NULL, true, ta) : ir_matmul(g->b, a2, d2, NULL, !ta, false);
    }
    if (g->required[2]) g->dx[2] = sum_to_axis(g, D, D->type.rank - 1);
    return true;
}

bool grad_conv(grad *g)
{
    ir_value *d = grad_cast_like(g, D, X);
    if (g->required[0]) {
        ir_node *n = grad_node(g, IR_OP_conv_grad_input, 2, (ir_value *[]){d, W});
        g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(conv_grad_input, shape), X));
    }
    if (g->required[1] || g->required[2]) {
        ir_node *n = grad_node(g, IR_OP_conv_grad_weight, 2, (ir_value *[]){d, X});
        if (!ir_done_all(g->b, grad_shaped(n, IR_ATTR(conv_grad_weight, shape), W))) return false;
        g->dx[1] = ir_out(n, IR_OUT(conv_grad_weight, dw));
        g->dx[2] = ir_out(n, IR_OUT(conv_grad_weight, dbias));
    }
    return true;
}

/* The gradient of a transposed convolution: dy is a convolution of its gradient, and for w they change places. */
bool grad_conv_grad_input(grad *g)
{
    ir_value *d = grad_cast_like(g, D, X);
    if (g->required[0]) g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_conv, 3, (ir_value *[]){d, W, NULL}));
    if (!g->required[1]) return true;
    ir_node *n = grad_node(g, IR_OP_conv_grad_weight, 2, (ir_value *[]){X, d});
    if (!ir_done_all(g->b, grad_shaped(n, IR_ATTR(conv_grad_weight, shape), W))) return false;
    g->dx[1] = ir_out(n, IR_OUT(conv_grad_weight, dw));
    return true;
}

bool grad_max_pool(grad *g)
{
    ir_value *indices = ir_out(g->n, IR_OUT(max_pool, indices));
    if (g->n->attr[IR_ATTR(max_pool, column_major)].i) {
        ir_node *again = grad_node(g, IR_OP_max_pool, 1, (ir_value *[]){X}); /* with row-major indices */
        ir_set_bool(again, IR_ATTR(max_pool, column_major), false);
        if (!ir_done_all(g->b, again)) return false;
        indices = ir_out(again, IR_OUT(max_pool, indices));
    }
    ir_node *n = ir_new(g->b, IR_OP_max_pool_grad, 2, D, indices);
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(max_pool_grad, shape), X))) != NULL;
}

bool grad_avg_pool(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_avg_pool_grad, 1, &D);
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(avg_pool_grad, shape), X))) != NULL;
}

/* ---- gradients of gradients ---------------------------------------------------------------------- */

/* dbias sums dy, as a bias is added to every element of a convolution's result. */
bool grad_conv_grad_weight(grad *g)
{
    ir_value *dw = g->dy[IR_OUT(conv_grad_weight, dw)], *dbias = g->dy[IR_OUT(conv_grad_weight, dbias)];
    ir_value *x = ir_in(g->n, IR_IN(conv_grad_weight, x));
    dw = dw ? grad_cast_like(g, dw, x) : NULL;
    dbias = dbias ? grad_cast_like(g, dbias, x) : NULL;
    if (!dw) {
        const ir_type *w = &ir_out(g->n, IR_OUT(conv_grad_weight, dw))->type;
        dw = ir_expand(g->b, ir_scalar_like(g->b, x, 0), w->dims, w->rank);
    }
    if (g->required[0]) g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_conv, 3, (ir_value *[]){x, dw, dbias}));
    if (g->required[1]) {
        ir_node *n = grad_node(g, IR_OP_conv_grad_input, 2, (ir_value *[]){X, dw});
        g->dx[1] = ir_done(g->b, grad_shaped(n, IR_ATTR(conv_grad_input, shape), x));
    }
    return diag_status(g->b->diag) == AMPC_OK;
}

/* dy went where the indices tell. */
bool grad_max_pool_grad(grad *g)
{
    ir_dim all = ir_type_count(g->b->graph->module->dims, &D->type);
    ir_value *indices = ir_in(g->n, IR_IN(max_pool_grad, indices));
    return (g->dx[0] = ir_done(g->b, ir_new(g->b, IR_OP_gather, 2, ir_reshape(g->b, D, &all, 1), indices))) != NULL;
}

bool grad_avg_pool_grad(grad *g) { return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_avg_pool, 1, &D))) != NULL; }
