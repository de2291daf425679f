/* grad_primitive.c - gradients of normalisation, softmax and cross entropy that can be differentiated again.
 *
 * The usual rules of normalisation and cross entropy emit one op, which has no gradient itself and reads statistics
 * that the forward op has kept. These rules compute everything from x with ops that have gradients. The gradient ops of
 * softmax do have gradients. d is the gradient of y. */
#include "passes/train/grad.h"

#define UNARY(op, x) ir_unary(g->b, IR_OP_##op, x)
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)
#define MUL(x, y) BINARY(mul, x, y)
#define SUB(x, y) BINARY(sub, x, y)
#define NUMBER(like, v) ((like) ? ir_scalar_like(g->b, like, v) : NULL)

static ir_value *mean(grad *g, ir_value *x, const int64_t *axes, int n)
{
    ir_node *node = ir_new(g->b, IR_OP_reduce_mean, 1, x);
    if (node) ir_set_list(node, IR_ATTR(reduce_mean, axes), axes, n);
    return ir_done(g->b, node);
}

static ir_value *sum(grad *g, ir_value *x, int axis) { return ir_reduce_sum(g->b, x, (int64_t[]){axis}, 1, true); }

/* In f32, or f64 if x is. */
static ir_value *widen(grad *g, ir_value *v)
{
    return v ? ir_cast(g->b, v, X->type.dtype == IR_f64 ? IR_f64 : IR_f32) : NULL;
}

/* 1 / sqrt(variance + eps) */
static ir_value *inverse_deviation(grad *g, ir_value *variance, double eps)
{
    return UNARY(reciprocal, UNARY(sqrt, BINARY(add, variance, NUMBER(variance, eps))));
}

/* What normalising x over some axes means. */
typedef struct normal {
    ir_value *x, *rstd; /* normalised x */
    int64_t axes[IR_MAX_RANK];
    int count;
    bool center;
} normal;

static void normalise(grad *g, normal *n, double eps)
{
    ir_value *x = widen(g, X);
    if (n->center) x = SUB(x, mean(g, x, n->axes, n->count));
    n->rstd = inverse_deviation(g, mean(g, MUL(x, x), n->axes, n->count), eps);
    n->x = MUL(x, n->rstd);
}

/* The gradient of the operand, where d is that of normalised x: the statistics depend on x too. */
static ir_value *through_normal(grad *g, const normal *n, ir_value *d)
{
    ir_value *along = MUL(n->x, mean(g, MUL(d, n->x), n->axes, n->count));
    if (n->center) d = SUB(d, mean(g, d, n->axes, n->count));
    return MUL(SUB(d, along), n->rstd);
}

bool grad_layer_norm_primitive(grad *g)
{
    normal n = {.center = g->n->attr[IR_ATTR(layer_norm, center)].i};
    int64_t axis = g->n->attr[IR_ATTR(layer_norm, axis)].i;
    for (int i = (int)(axis < 0 ? axis + X->type.rank : axis); i < X->type.rank; i++) n.axes[n.count++] = i;
    ir_value *d = widen(g, D), *scale = ir_in(g->n, IR_IN(layer_norm, scale));
    normalise(g, &n, g->n->attr[IR_ATTR(layer_norm, eps)].f);
    g->dx[0] = through_normal(g, &n, scale ? MUL(d, widen(g, scale)) : d);
    g->dx[1] = MUL(d, n.x);
    g->dx[2] = d;
    return diag_status(g->b->diag) == AMPC_OK;
}

/* ---- batch normalisation: statistics of each channel, axis 1 --------------------------------------- */

/* A value [C] as [C,1,..], which broadcasts to x. */
static ir_value *by_channel(grad *g, ir_value *v)
{
    ir_type shape = ir_type_make(IR_f32, X->type.rank - 1, (int64_t[IR_MAX_RANK]){0});
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i ? 1 : v->type.dims[0];
    return ir_reshape_like(g->b, widen(g, v), &shape);
}

bool grad_batch_norm_primitive(grad *g)
{
    normal n = {.center = true};
    const double eps = g->n->attr[IR_ATTR(batch_norm, eps)].f;
    const bool training = g->n->attr[IR_ATTR(batch_norm, training)].i;
    for (int i = 0; i < X->type.rank; i++)
        if (i != 1) n.axes[n.count++] = i;
    ir_value *d = widen(g, D), *scaled = MUL(d, by_channel(g, ir_in(g->n, IR_IN(batch_norm, scale))));
    if (training) normalise(g, &n, eps);
    else {
        n.rstd = inverse_deviation(g, by_channel(g, ir_in(g->n, IR_IN(batch_norm, var))), eps);
        ir_value *mean = by_channel(g, ir_in(g->n, IR_IN(batch_norm, mean)));
        n.x = MUL(SUB(widen(g, X), mean), n.rstd);
    }
    g->dx[0] = training ? through_normal(g, &n, scaled) : MUL(scaled, n.rstd);
    g->dx[1] = d ? ir_reduce_sum(g->b, MUL(d, n.x), n.axes, n.count, false) : NULL;
    g->dx[2] = d ? ir_reduce_sum(g->b, d, n.axes, n.count, false) : NULL;
    return diag_status(g->b->diag) == AMPC_OK;
}

/* ---- cross entropy ------------------------------------------------------------------------------- */

#define LABEL ir_in(g->n, IR_IN(softmax_cross_entropy, label))

/* The weight of each item, [N,1,..]: that of its label, 0 if it is ignored. */
static ir_value *item_weights(grad *g, ir_value *label)
{
    const int64_t ignored = g->n->attr[IR_ATTR(softmax_cross_entropy, ignore_index)].i;
    ir_value *weight = ir_in(g->n, IR_IN(softmax_cross_entropy, weight)), *one = ir_scalar(g->b, IR_f32, 1);
    one = widen(g, one);
    if (ignored == INT64_MIN && !weight) return ir_expand(g->b, one, label->type.dims, label->type.rank);
    ir_value *ignore = BINARY(equal, label, NUMBER(label, (double)ignored));
    if (weight) {
        ir_value *at = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, ignore, NUMBER(label, 0), label));
        one = widen(g, ir_done(g->b, ir_new(g->b, IR_OP_gather, 2, weight, at)));
    }
    return ir_done(g->b, ir_new(g->b, IR_OP_where, 3, ignore, NUMBER(one, 0), one));
}

/* The gradient of each item's loss, [N,1,..]. */
static ir_value *item_gradients(grad *g, ir_value *label)
{
    const int64_t reduction = g->n->attr[IR_ATTR(softmax_cross_entropy, reduction)].i;
    ir_value *weights = item_weights(g, label), *d = widen(g, D);
    if (!weights || !d) return NULL;
    if (reduction == IR_WORD(loss, none)) d = ir_reshape_like(g->b, d, &label->type);
    if (reduction == IR_WORD(loss, mean)) {
        int64_t axes[IR_MAX_RANK];
        for (int i = 0; i < weights->type.rank; i++) axes[i] = i;
        d = BINARY(div, d, ir_reduce_sum(g->b, weights, axes, weights->type.rank, false));
    }
    return MUL(weights, d);
}

/* softmax(x) minus 1 at the label, times the gradient of the item; of nll_loss without the softmax. */
ir_value *grad_cross_entropy_primitive(grad *g, ir_value *x, bool with_softmax)
{
    const ir_dim classes = x->type.dims[1];
    ir_type column = x->type, row = ir_type_make(IR_i64, x->type.rank - 1, (int64_t[IR_MAX_RANK]){0});
    column.dims[1] = 1;
    for (int i = 0; i < row.rank; i++) row.dims[i] = i ? 1 : classes;
    ir_value *label = ir_reshape_like(g->b, ir_cast(g->b, LABEL, IR_i64), &column);
    ir_node *iota = ir_new(g->b, IR_OP_iota, 0);
    if (!label || !iota) return NULL;
    ir_set_list(iota, IR_ATTR(iota, size), &classes, 1);
    ir_value *number = ir_reshape_like(g->b, ir_done(g->b, iota), &row);
    ir_value *chosen = widen(g, BINARY(equal, number, label)), *items = item_gradients(g, label);
    if (!with_softmax) return MUL(UNARY(neg, chosen), items);
    ir_node *softmax = ir_new(g->b, IR_OP_softmax, 1, widen(g, x));
    if (softmax) ir_set_int(softmax, IR_ATTR(softmax, axis), 1);
    return MUL(SUB(ir_done(g->b, softmax), chosen), items);
}

/* ---- gradients of gradients ---------------------------------------------------------------------- */

static int axis_of(const grad *g, int attr)
{
    const int64_t axis = g->n->attr[attr].i;
    return (int)(axis < 0 ? axis + X->type.rank : axis);
}

/* v without the NaN of fully masked rows, where the gradient does not depend on it. */
static ir_value *unmasked(grad *g, ir_value *v)
{
    ir_value *zero = v ? NUMBER(v, 0) : NULL;
    return v ? ir_done(g->b, ir_new(g->b, IR_OP_where, 3, UNARY(is_nan, v), zero, v)) : NULL;
}

/* y = b (dy - sum(dy b)), where b is the softmax. */
bool grad_softmax_grad(grad *g)
{
    ir_value *dy = X, *b = unmasked(g, ir_in(g->n, 1));
    const int axis = axis_of(g, IR_ATTR(softmax_grad, axis));
    if (g->required[0]) g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_softmax_grad, 2, (ir_value *[]){D, b}));
    if (g->required[1]) {
        ir_value *second = MUL(dy, sum(g, MUL(D, b), axis));
        g->dx[1] = SUB(MUL(D, SUB(dy, sum(g, MUL(dy, b), axis))), second);
    }
    return diag_status(g->b->diag) == AMPC_OK;
}

/* y = dy - exp(b) sum(dy), where b is the log-softmax. */
bool grad_log_softmax_grad(grad *g)
{
    ir_value *e = unmasked(g, UNARY(exp, ir_in(g->n, 1))), *weighted = MUL(D, e);
    const int axis = axis_of(g, IR_ATTR(log_softmax_grad, axis));
    if (g->required[0]) g->dx[0] = SUB(D, sum(g, weighted, axis));
    if (g->required[1]) g->dx[1] = UNARY(neg, MUL(weighted, sum(g, X, axis)));
    return diag_status(g->b->diag) == AMPC_OK;
}
