/* grad_pointwise.c - gradients of the pointwise ops. x, a, b are operands, y is the result and d its gradient. */
#include "passes/train/grad.h"

#define UNARY(op, x) ir_unary(g->b, IR_OP_##op, x)
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)
#define NUMBER(v) ir_scalar_like(g->b, X, v)
/* The op's gradient op, with its attributes. */
#define SLOPE(op, x) ir_done(g->b, grad_node(g, IR_OP_##op##_grad, 2, (ir_value *[]){D, x}))

static bool done(grad *g)
{
    for (int i = 0; i < g->n->n_in; i++)
        if (g->dx[i]) return true;
    return diag_status(g->b->diag) == AMPC_OK;
}

#define RULE1(name, formula) \
    bool grad_##name(grad *g) \
    { \
        g->dx[0] = formula; \
        return done(g); \
    }

RULE1(neg, UNARY(neg, D))
RULE1(abs, BINARY(mul, D, UNARY(sign, X)))
RULE1(relu, BINARY(relu_grad, D, Y))
/* A straight rounding passes its gradient. */
bool grad_round(grad *g) { return g->n->attr[IR_ATTR(round, straight)].i ? (g->dx[0] = D, done(g)) : grad_zero(g); }

RULE1(sqrt, BINARY(div, D, BINARY(add, Y, Y)))
RULE1(reciprocal, UNARY(neg, BINARY(mul, D, BINARY(mul, Y, Y))))
RULE1(exp, BINARY(mul, D, Y))
RULE1(log, BINARY(div, D, X))
RULE1(sin, BINARY(mul, D, UNARY(cos, X)))
RULE1(cos, UNARY(neg, BINARY(mul, D, UNARY(sin, X))))
RULE1(tanh, BINARY(tanh_grad, D, Y))
RULE1(sigmoid, BINARY(sigmoid_grad, D, Y))
RULE1(erf, BINARY(erf_grad, D, X))
RULE1(softplus, BINARY(mul, D, UNARY(sigmoid, X)))
RULE1(softsign, BINARY(softsign_grad, D, X))
RULE1(gelu, SLOPE(gelu, X))
RULE1(tan, SLOPE(tan, Y))
RULE1(asin, SLOPE(asin, X))
RULE1(acos, UNARY(neg, SLOPE(asin, X)))
RULE1(atan, SLOPE(atan, X))
RULE1(sinh, BINARY(mul, D, UNARY(cosh, X)))
RULE1(cosh, BINARY(mul, D, UNARY(sinh, X)))
RULE1(asinh, SLOPE(asinh, X))
RULE1(acosh, SLOPE(acosh, X))
RULE1(atanh, SLOPE(atanh, X))
RULE1(hard_sigmoid, SLOPE(hard_sigmoid, X))
RULE1(hard_swish, SLOPE(hard_swish, X))
RULE1(leaky_relu, SLOPE(leaky_relu, X))
RULE1(thresholded_relu, SLOPE(thresholded_relu, X))
RULE1(elu, SLOPE(elu, X))
RULE1(selu, SLOPE(selu, X))
RULE1(celu, SLOPE(celu, X))
RULE1(mish, SLOPE(mish, X))
RULE1(swish, SLOPE(swish, X))
RULE1(shrink, SLOPE(shrink, X))
RULE1(div_count, ir_done(g->b, grad_node(g, IR_OP_div_count, 1, (ir_value *[]){D})))

#define RULE2(name, formula_a, formula_b) \
    bool grad_##name(grad *g) \
    { \
        if (g->required[0]) g->dx[0] = formula_a; \
        if (g->required[1]) g->dx[1] = formula_b; \
        return done(g); \
    }

RULE2(add, D, D)
RULE2(sub, D, UNARY(neg, D))
RULE2(mul, BINARY(mul, D, B), BINARY(mul, D, A))
RULE2(div, BINARY(div, D, B), UNARY(neg, BINARY(div, BINARY(mul, D, Y), B)))

/* a - y is a multiple of b. */
RULE2(mod, D, BINARY(mul, D, UNARY(round, BINARY(div, BINARY(sub, Y, A), B))))

/* d(a^b)/db = y log(a), defined as 0 where a <= 0 (PyTorch's rule at 0). */
static ir_value *pow_exponent(grad *g)
{
    ir_value *positive = BINARY(greater, A, NUMBER(0.0));
    ir_value *base = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, positive, A, NUMBER(1.0)));
    return BINARY(mul, D, BINARY(mul, Y, UNARY(log, base)));
}

/* d(a^b)/da = b a^(b-1); where b is 0 the power is constant, even at a = 0. */
static ir_value *pow_base(grad *g)
{
    ir_value *slope = BINARY(mul, B, BINARY(pow, A, BINARY(sub, B, NUMBER(1.0))));
    ir_value *constant = BINARY(equal, B, NUMBER(0.0));
    return BINARY(mul, D, ir_done(g->b, ir_new(g->b, IR_OP_where, 3, constant, NUMBER(0.0), slope)));
}

RULE2(pow, pow_base(g), pow_exponent(g))

static ir_value *where(grad *g, ir_value *cond, ir_value *a, ir_value *b)
{
    return ir_done(g->b, ir_new(g->b, IR_OP_where, 3, cond, a, b));
}

/* Elements outside the bounds pass their gradient to the bound that they became: the upper one if the bounds cross. */
bool grad_clip(grad *g)
{
    ir_value *lo = ir_in(g->n, IR_IN(clip, lo)), *hi = ir_in(g->n, IR_IN(clip, hi)), *zero = X ? NUMBER(0.0) : NULL;
    ir_value *crossed = lo && hi ? BINARY(less, hi, lo) : NULL;
    g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_clip_grad, 4, (ir_value *[]){D, X, lo, hi}));
    if (g->required[IR_IN(clip, lo)]) {
        ir_value *d = where(g, BINARY(less, X, lo), D, zero);
        g->dx[IR_IN(clip, lo)] = crossed ? where(g, crossed, zero, d) : d;
    }
    if (g->required[IR_IN(clip, hi)]) {
        ir_value *d = where(g, BINARY(greater, X, hi), D, zero);
        g->dx[IR_IN(clip, hi)] = crossed ? where(g, crossed, D, d) : d;
    }
    return done(g);
}

/* At 0 the slope counts, as in PyTorch. */
RULE2(prelu, where(g, BINARY(greater, A, NUMBER(0.0)), D, BINARY(mul, D, B)),
      BINARY(mul, D, BINARY(min, A, NUMBER(0.0))))

/* The selected operand gets the gradient; a tie is split equally, as in PyTorch. */
static ir_value *chosen(grad *g, ir_op beats, ir_value *x, ir_value *other)
{
    ir_value *tie = ir_done(
        g->b, ir_new(g->b, IR_OP_where, 3, BINARY(equal, x, other), BINARY(mul, D, NUMBER(0.5)), NUMBER(0.0)));
    return ir_done(g->b, ir_new(g->b, IR_OP_where, 3, ir_binary(g->b, beats, x, other), D, tie));
}

RULE2(min, chosen(g, IR_OP_less, A, B), chosen(g, IR_OP_less, B, A))
RULE2(max, chosen(g, IR_OP_greater, A, B), chosen(g, IR_OP_greater, B, A))

bool grad_dropout(grad *g)
{
    ir_value *mask = ir_out(g->n, IR_OUT(dropout, mask));
    g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_dropout_grad, 2, (ir_value *[]){D, mask}));
    return done(g);
}
