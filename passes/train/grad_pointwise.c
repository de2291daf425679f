/* grad_pointwise.c - gradients of the pointwise ops. x, a, b are operands, y is the result and d its gradient. */
#include "ir/ops/formulas.h"
#include "passes/train/grad.h"

#include <string.h>

#define UNARY(op, x) ir_unary(g->b, IR_OP_##op, x)
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)
#define NUMBER(v) ir_scalar_like(g->b, X, v)

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

/* d times the slope that the row of the op's formula states. */
static ir_value *sloped(grad *g)
{
    ir_attr attr[IR_DERIVATIVE_ATTRS];
    const ir_function *f = ir_function_of(g->n->op, g->n->attr, attr);
    ir_value *in[] = {D, f->of_result ? Y : X, NULL, NULL};
    for (int i = 1; i < g->n->n_in; i++) in[i + 1] = ir_in(g->n, i);
    ir_node *n = ir_new_array(g->b, IR_OP_slope, 1 + g->n->n_in, in, 0);
    if (n) memcpy(n->attr, attr, sizeof attr);
    return ir_done(g->b, n);
}

RULE1(pointwise, sloped(g))

/* The slope is linear in d. Its own derivative is the curvature of the function, if that is not zero. */
bool grad_slope(grad *g)
{
    ir_value *dy = ir_in(g->n, 0), *v = ir_in(g->n, 1), *in[] = {D, v, NULL, NULL};
    for (int i = 2; i < g->n->n_in; i++) in[i] = ir_in(g->n, i);
    g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_slope, g->n->n_in, in));
    if (!ir_functions[g->n->attr[IR_ATTR(slope, of)].i].curvature) g->zero = true;
    else if (g->required[1])
        g->dx[1] = ir_done(g->b, grad_node(g, IR_OP_curvature, 2, (ir_value *[]){BINARY(mul, D, dy), v}));
    return done(g);
}

RULE1(neg, UNARY(neg, D))
RULE1(abs, BINARY(mul, D, UNARY(sign, X)))
/* A straight rounding passes its gradient. */
bool grad_round(grad *g) { return g->n->attr[IR_ATTR(round, straight)].i ? (g->dx[0] = D, done(g)) : grad_zero(g); }

RULE1(sqrt, BINARY(div, D, BINARY(add, Y, Y)))
RULE1(reciprocal, UNARY(neg, BINARY(mul, D, BINARY(mul, Y, Y))))
RULE1(exp, BINARY(mul, D, Y))
RULE1(log, BINARY(div, D, X))
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
    g->dx[0] = sloped(g);
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
static ir_value *prelu_x(grad *g)
{
    ir_value *negative = BINARY(mul, D, B);
    return where(g, BINARY(greater, A, NUMBER(0.0)), D, negative);
}

RULE2(prelu, prelu_x(g), BINARY(mul, D, BINARY(min, A, NUMBER(0.0))))

/* The selected operand gets the gradient; a tie is split equally, as in PyTorch. */
static ir_value *chosen(grad *g, ir_op beats, ir_value *x, ir_value *other)
{
    ir_value *zero = NUMBER(0.0), *half = BINARY(mul, D, NUMBER(0.5));
    ir_value *tie = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, BINARY(equal, x, other), half, zero));
    return ir_done(g->b, ir_new(g->b, IR_OP_where, 3, ir_binary(g->b, beats, x, other), D, tie));
}

RULE2(min, chosen(g, IR_OP_less, A, B), chosen(g, IR_OP_less, B, A))
RULE2(max, chosen(g, IR_OP_greater, A, B), chosen(g, IR_OP_greater, B, A))

/* It is linear, like a slope, and the mask has no gradient. */
bool grad_dropout_grad(grad *g)
{
    g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_dropout_grad, 2, (ir_value *[]){D, ir_in(g->n, 1)}));
    return done(g);
}

bool grad_dropout(grad *g)
{
    ir_value *mask = ir_out(g->n, IR_OUT(dropout, mask));
    g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_dropout_grad, 2, (ir_value *[]){D, mask}));
    return done(g);
}
