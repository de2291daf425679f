/* grad_norm.c - gradients of normalisation, softmax and losses. */
#include "passes/train/grad.h"

/* The gradient must arrive only at the first result; the others are statistics. */
static bool only_first(grad *g)
{
    for (int i = 1; i < g->n->n_out; i++)
        if (g->dy[i]) {
            diag_error(g->b->diag, AMPC_UNSUPPORTED, ir_diag_loc(g->n), "no gradient through result %d (%s)", i,
                       ir_op_out_slot(g->n->op, i, g->n->n_out)->name);
            return false;
        }
    return true;
}

static bool set_three_gradients(grad *g, ir_node *n)
{
    if (!ir_done_all(g->b, n)) return false;
    for (int i = 0; i < 3 && i < g->n->n_in; i++) g->dx[i] = n->out[i];
    return true;
}

bool grad_layer_norm(grad *g)
{
    if (!only_first(g)) return false;
    if (g->primitives) return grad_layer_norm_primitive(g);
    ir_value *in[] = {grad_cast_like(g, D, X), X, ir_in(g->n, IR_IN(layer_norm, scale)),
                      ir_out(g->n, IR_OUT(layer_norm, mean)), ir_out(g->n, IR_OUT(layer_norm, rstd))};
    return set_three_gradients(g, grad_node(g, IR_OP_layer_norm_grad, 5, in));
}

bool grad_softmax(grad *g)
{
    return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_softmax_grad, 2, (ir_value *[]){D, Y}))) != NULL;
}

bool grad_log_softmax(grad *g)
{
    return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_log_softmax_grad, 2, (ir_value *[]){D, Y}))) != NULL;
}

/* A value of the shape of x, without the classes that are padding. */
static ir_value *without_padding(grad *g, ir_value *v)
{
    const int64_t classes = g->n->attr[IR_ATTR(softmax_cross_entropy, classes)].i;
    ir_type part = X->type;
    if (classes) part.dims[1] = classes;
    return ir_cut(g->b, v, part.dims);
}

static ir_value *with_padding(grad *g, ir_value *v) { return ir_pad(g->b, v, X->type.dims); }

/* The gradient that arrives at log_prob, the log-softmax of x over axis 1. */
static ir_value *through_log_prob(grad *g, ir_value *d)
{
    ir_value *in[] = {without_padding(g, grad_cast_like(g, d, X)),
                      without_padding(g, ir_out(g->n, IR_OUT(softmax_cross_entropy, log_prob)))};
    ir_node *n = grad_node(g, IR_OP_log_softmax_grad, 2, in);
    ir_set_int(n, IR_ATTR(log_softmax_grad, axis), 1);
    return with_padding(g, ir_done(g->b, n));
}

/* The gradient that arrives at lse, one number per item: the derivative is the softmax over axis 1, not exp(x - lse),
 * in which a large lse has lost what all probabilities are multiplied by. */
static ir_value *through_lse(grad *g, ir_value *d)
{
    ir_value *lse = ir_out(g->n, IR_OUT(softmax_cross_entropy, lse));
    ir_type items = X->type;
    items.dims[1] = 1;
    ir_node *softmax = ir_new(g->b, IR_OP_softmax, 1, without_padding(g, grad_cast_like(g, X, lse)));
    ir_set_int(softmax, IR_ATTR(softmax, axis), 1);
    ir_value *slope = ir_reshape_like(g->b, grad_cast_like(g, d, lse), &items);
    return with_padding(g, grad_cast_like(g, ir_binary(g->b, IR_OP_mul, ir_done(g->b, softmax), slope), X));
}

bool grad_softmax_cross_entropy(grad *g)
{
    ir_value *lse = ir_out(g->n, IR_OUT(softmax_cross_entropy, lse)), *dx = NULL;
    ir_value *to_log_prob = g->dy[IR_OUT(softmax_cross_entropy, log_prob)];
    ir_value *to_lse = g->dy[IR_OUT(softmax_cross_entropy, lse)];
    ir_value *in[] = {D, X, lse, ir_in(g->n, 1), ir_in(g->n, 2)};
    if (D && g->primitives) dx = with_padding(g, grad_cross_entropy_primitive(g, without_padding(g, X), true));
    else if (D) dx = ir_done(g->b, grad_node(g, IR_OP_softmax_cross_entropy_grad, 5, in));
    if (to_log_prob) {
        ir_value *second = through_log_prob(g, to_log_prob);
        dx = dx ? ir_binary(g->b, IR_OP_add, dx, second) : second;
    }
    if (to_lse) {
        ir_value *third = through_lse(g, to_lse);
        dx = dx ? ir_binary(g->b, IR_OP_add, dx, third) : third;
    }
    g->dx[0] = dx;
    if (D && g->required[IR_IN(softmax_cross_entropy, weight)])
        g->dx[IR_IN(softmax_cross_entropy, weight)] = grad_class_weights(g);
    else g->zero = true; /* log_prob and lse depend on no weight */
    return dx != NULL;
}

bool grad_nll_loss(grad *g)
{
    ir_value *in[] = {D, X, ir_in(g->n, 1), ir_in(g->n, 2)};
    if (g->required[IR_IN(nll_loss, weight)]) g->dx[IR_IN(nll_loss, weight)] = grad_class_weights(g);
    g->dx[0] = g->primitives ? grad_cross_entropy_primitive(g, X, false)
                             : ir_done(g->b, grad_node(g, IR_OP_nll_loss_grad, 4, in));
    return g->dx[0] != NULL;
}
