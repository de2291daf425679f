/* grad_reduce.c - gradients of the reductions. x is the operand, y the result and d its gradient; y and d are used with
 * size 1 for each reduced axis, so that they broadcast to x. */
#include "passes/train/grad.h"

#define UNARY(op, x) ir_unary(g->b, IR_OP_##op, x)
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)
#define NUMBER(like, v) ((like) ? ir_scalar_like(g->b, like, v) : NULL)

static const ir_attr *axes_of(const grad *g) { return &g->n->attr[IR_ATTR(reduce_sum, axes)]; }

/* v, which has the shape of the result, with size 1 for each reduced axis. */
static ir_value *keep_axes(grad *g, ir_value *v)
{
    const ir_attr *axes = axes_of(g);
    ir_type reduced = X->type;
    for (int i = 0; i < axes->list.count; i++) {
        int64_t axis = axes->list.items[i];
        reduced.dims[axis < 0 ? axis + reduced.rank : axis] = 1;
    }
    return ir_reshape_like(g->b, v, &reduced);
}

/* In f32, or f64 if x is: derivatives of products and squares exceed the range of low types. */
static ir_value *widen(grad *g, ir_value *v) { return ir_cast(g->b, v, X->type.dtype == IR_f64 ? IR_f64 : IR_f32); }
static ir_value *wide_d(grad *g) { return widen(g, keep_axes(g, g->dy[0])); }
static ir_value *wide_y(grad *g) { return widen(g, keep_axes(g, ir_out(g->n, 0))); }

static ir_value *spread(grad *g, ir_value *v) { return v ? ir_expand(g->b, v, X->type.dims, X->type.rank) : NULL; }

bool grad_reduce_sum(grad *g) { return (g->dx[0] = spread(g, keep_axes(g, g->dy[0]))) != NULL; }

/* Divides before broadcasting: there are fewer elements, and the count may be symbolic. */
bool grad_reduce_mean(grad *g)
{
    const ir_attr *axes = axes_of(g);
    ir_dim count[IR_MAX_RANK];
    for (int i = 0; i < axes->list.count; i++) {
        int64_t axis = axes->list.items[i];
        count[i] = X->type.dims[axis < 0 ? axis + X->type.rank : axis];
    }
    ir_node *share = ir_new(g->b, IR_OP_div_count, 1, g->dy[0]);
    ir_set_list(share, IR_ATTR(div_count, count), count, axes->list.count);
    return (g->dx[0] = spread(g, keep_axes(g, ir_done(g->b, share)))) != NULL;
}

/* Maximum and minimum: elements that tie share the gradient equally, as in PyTorch. */
bool grad_reduce_extreme(grad *g)
{
    const ir_attr *axes = axes_of(g);
    ir_value *chosen = widen(g, BINARY(equal, X, keep_axes(g, ir_out(g->n, 0))));
    ir_value *count = ir_reduce_sum(g->b, chosen, axes->list.items, axes->list.count, true);
    return (g->dx[0] = BINARY(mul, chosen, BINARY(div, wide_d(g), count))) != NULL;
}

/* With p the product of the elements that are not 0, the derivative is p / x if none is 0; if one is, it is p for
 * that one and 0 for the others; if several are, it is 0. */
bool grad_reduce_prod(grad *g)
{
    const ir_attr *axes = axes_of(g);
    ir_value *x = widen(g, X), *zero = x ? BINARY(equal, x, NUMBER(x, 0.0)) : NULL;
    ir_value *factors = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, zero, NUMBER(x, 1.0), x));
    ir_node *product = ir_new(g->b, IR_OP_reduce_prod, 1, factors);
    if (product) ir_set_list(product, IR_ATTR(reduce_prod, axes), axes->list.items, axes->list.count);
    ir_value *p = ir_done(g->b, product), *is_zero = zero ? widen(g, zero) : NULL;
    ir_value *zeros = is_zero ? ir_reduce_sum(g->b, is_zero, axes->list.items, axes->list.count, true) : NULL;
    ir_value *others = BINARY(equal, zeros, is_zero), *d = BINARY(mul, wide_d(g), p);
    ir_value *slope = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, others, d, NUMBER(x, 0.0)));
    return (g->dx[0] = BINARY(div, slope, factors)) != NULL;
}

bool grad_reduce_l1(grad *g)
{
    ir_value *d = wide_d(g);
    return (g->dx[0] = BINARY(mul, UNARY(sign, widen(g, X)), d)) != NULL;
}

/* 0 at x = 0, as in PyTorch. */
bool grad_reduce_l2(grad *g)
{
    ir_value *y = wide_y(g), *zero = BINARY(equal, y, NUMBER(y, 0.0));
    ir_value *norm = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, zero, NUMBER(y, 1.0), y));
    ir_value *share = BINARY(div, wide_d(g), norm);
    return (g->dx[0] = BINARY(mul, widen(g, X), share)) != NULL;
}

bool grad_reduce_sum_square(grad *g)
{
    ir_value *d = wide_d(g), *slope = BINARY(add, d, d);
    return (g->dx[0] = BINARY(mul, widen(g, X), slope)) != NULL;
}

/* The sum itself is exp(y). */
bool grad_reduce_log_sum(grad *g)
{
    ir_value *slope = UNARY(exp, UNARY(neg, wide_y(g)));
    return (g->dx[0] = spread(g, BINARY(mul, wide_d(g), slope))) != NULL;
}

/* 0 where all elements are 0, as for reduce_l2. */
bool grad_global_norm(grad *g)
{
    ir_value *y = ir_out(g->n, 0), *zero = BINARY(equal, y, NUMBER(y, 0.0));
    ir_value *norm = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, zero, NUMBER(y, 1.0), y));
    ir_value *factor = BINARY(div, g->dy[0], norm);
    for (int i = 0; i < g->n->n_in; i++)
        if (g->required[i]) g->dx[i] = BINARY(mul, grad_cast_like(g, ir_in(g->n, i), y), factor);
    return diag_status(g->b->diag) == AMPC_OK;
}
