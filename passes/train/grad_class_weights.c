/* grad_class_weights.c - gradient of nll_loss and softmax_cross_entropy with respect to the weights of the classes.
 *
 * With l the loss of each item without weights and c its class, the loss is w[c] l for each item, their sum S, or the
 * mean S / W, where W is the sum of w[c]. Its derivative by w[c] is the sum of l, or of (l - S/W) / W, over the items
 * of class c. Ignored items count nowhere. */
#include "passes/train/grad.h"

#define LABEL ir_in(g->n, IR_IN(nll_loss, label))
#define WEIGHT ir_in(g->n, IR_IN(nll_loss, weight))
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)

static ir_value *where(grad *g, ir_value *cond, ir_value *a, ir_value *b)
{
    return ir_done(g->b, ir_new(g->b, IR_OP_where, 3, cond, a, b));
}

/* The same loss of each item, without weights. */
static ir_value *item_losses(grad *g)
{
    ir_node *n = grad_node(g, g->n->op, 2, (ir_value *[]){X, LABEL});
    ir_set_int(n, IR_ATTR(nll_loss, reduction), IR_WORD(loss, none));
    return ir_done(g->b, n);
}

static ir_value *sum_of(grad *g, ir_value *v)
{
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; v && i < v->type.rank; i++) axes[i] = i;
    return v ? ir_reduce_sum(g->b, v, axes, v->type.rank, false) : NULL;
}

ir_value *grad_class_weights(grad *g)
{
    const int64_t ignored = g->n->attr[IR_ATTR(nll_loss, ignore_index)].i;
    const int64_t reduction = g->n->attr[IR_ATTR(nll_loss, reduction)].i;
    ir_value *loss = item_losses(g), *label = LABEL, *d = grad_cast_like(g, g->dy[0], loss), *skip = NULL;
    if (!loss || !d) return NULL;
    ir_value *zero = ir_scalar_like(g->b, loss, 0);
    if (ignored != INT64_MIN) {
        skip = BINARY(equal, label, ir_scalar_like(g->b, label, (double)ignored));
        label = where(g, skip, ir_scalar_like(g->b, label, 0), label);
    }
    if (reduction == IR_WORD(loss, mean)) {
        ir_value *weights = grad_cast_like(g, ir_done(g->b, ir_new(g->b, IR_OP_gather, 2, WEIGHT, label)), loss);
        ir_value *total = sum_of(g, skip ? where(g, skip, zero, weights) : weights);
        loss = BINARY(sub, loss, grad_cast_like(g, ir_out(g->n, 0), loss));
        d = BINARY(div, d, total);
    }
    loss = BINARY(mul, loss, d);
    ir_node *n = ir_new(g->b, IR_OP_gather_grad, 2, skip ? where(g, skip, zero, loss) : loss, label);
    return ir_done(g->b, n ? grad_shaped(n, IR_ATTR(gather_grad, shape), WEIGHT) : NULL);
}
