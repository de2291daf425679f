/* grad_second.c - gradients of the ops that gradients of pointwise ops consist of: second derivatives.
 *
 * y = dy f'(b) is linear in dy, so its gradient by dy is the same op applied to d, the gradient of y; that by b is
 * d dy f''(b). Where f''/f' is simple, it is d y (f''/f')(b). b is the operand of f or, for relu, sigmoid, tanh and
 * tan, its result. */
#include "passes/train/grad.h"

#define DY ir_in(g->n, 0)
#define UNARY(op, x) ir_unary(g->b, IR_OP_##op, x)
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)
#define NUMBER(v) ir_scalar_like(g->b, B, v)
#define MUL(x, y) BINARY(mul, x, y)
#define ADD(x, y) BINARY(add, x, y)
#define SUB(x, y) BINARY(sub, x, y)
#define DIV(x, y) BINARY(div, x, y)
#define TIMES(x, v) MUL(x, NUMBER(v))
#define PLUS(x, v) ADD(x, NUMBER(v))
#define FROM(v, x) SUB(NUMBER(v), x) /* v - x */
#define ATTRIBUTE(op, name) g->n->attr[IR_ATTR(op, name)].f

/* The same op with d in place of dy. */
static ir_value *of_d(grad *g)
{
    ir_value *in[] = {D, B, g->n->n_in > 2 ? ir_in(g->n, 2) : NULL, g->n->n_in > 3 ? ir_in(g->n, 3) : NULL};
    return ir_done(g->b, grad_node(g, g->n->op, g->n->n_in, in));
}

/* f'' is zero wherever it exists. */
static bool linear(grad *g)
{
    g->zero = true;
    return (g->dx[0] = of_d(g)) != NULL;
}

bool grad_relu_grad(grad *g) { return linear(g); }
bool grad_hard_sigmoid_grad(grad *g) { return linear(g); }
bool grad_leaky_relu_grad(grad *g) { return linear(g); }
bool grad_thresholded_relu_grad(grad *g) { return linear(g); }
bool grad_shrink_grad(grad *g) { return linear(g); }
bool grad_clip_grad(grad *g) { return linear(g); }
bool grad_dropout_grad(grad *g) { return linear(g); }

#define RULE(name, by_b) \
    bool grad_##name(grad *g) \
    { \
        if (g->required[0]) g->dx[0] = of_d(g); \
        if (g->required[1]) g->dx[1] = by_b; \
        return diag_status(g->b->diag) == AMPC_OK; \
    }

#define SLOPE(factor) MUL(MUL(D, DY), factor) /* the factor is f'' */
#define RATIO(factor) MUL(MUL(D, Y), factor)  /* the factor is f''/f' */
#define SQUARE MUL(B, B)

RULE(sigmoid_grad, SLOPE(FROM(1, TIMES(B, 2))))
RULE(tanh_grad, SLOPE(TIMES(B, -2)))
RULE(tan_grad, SLOPE(TIMES(B, 2)))
RULE(erf_grad, RATIO(TIMES(B, -2)))
RULE(softsign_grad, RATIO(DIV(TIMES(UNARY(sign, B), -2), PLUS(UNARY(abs, B), 1))))
RULE(asin_grad, RATIO(DIV(B, FROM(1, SQUARE))))
RULE(atan_grad, RATIO(DIV(TIMES(B, -2), PLUS(SQUARE, 1))))
RULE(asinh_grad, RATIO(UNARY(neg, DIV(B, PLUS(SQUARE, 1)))))
RULE(acosh_grad, RATIO(DIV(B, FROM(1, SQUARE))))
RULE(atanh_grad, RATIO(DIV(TIMES(B, 2), FROM(1, SQUARE))))

/* The normal density times 2 - x^2. */
static ir_value *gelu_slope(grad *g)
{
    ir_value *density = TIMES(UNARY(exp, TIMES(SQUARE, -0.5)), 0.39894228040143268);
    return MUL(density, FROM(2, SQUARE));
}

/* With t = tanh(u), u = c (x + a x^3): (1 - t^2) (u' + x (u''/2 - t u'^2)). */
static ir_value *gelu_tanh_slope(grad *g)
{
    const double c = 0.79788456080286536, a = 0.044715;
    ir_value *t = UNARY(tanh, TIMES(MUL(B, PLUS(TIMES(SQUARE, a), 1)), c));
    ir_value *first = TIMES(PLUS(TIMES(SQUARE, 3 * a), 1), c), *second = TIMES(B, 3 * a * c);
    ir_value *inner = SUB(second, MUL(t, MUL(first, first)));
    return MUL(FROM(1, MUL(t, t)), ADD(first, MUL(B, inner)));
}

RULE(gelu_grad, SLOPE(g->n->attr[IR_ATTR(gelu_grad, tanh)].i ? gelu_tanh_slope(g) : gelu_slope(g)))

/* With z = p x and s = sigmoid(z): p s (1 - s) (2 + z (1 - 2 s)). */
static ir_value *swish_slope(grad *g)
{
    const double p = ATTRIBUTE(swish_grad, alpha);
    ir_value *z = TIMES(B, p), *s = UNARY(sigmoid, z), *both = MUL(s, UNARY(sigmoid, UNARY(neg, z)));
    return MUL(TIMES(both, p), PLUS(MUL(z, FROM(1, TIMES(s, 2))), 2));
}

RULE(swish_grad, SLOPE(swish_slope(g)))

/* With t = tanh(softplus(x)) and s = sigmoid(x): (1 - t^2) s (2 + x (1 - s - 2 t s)). */
static ir_value *mish_slope(grad *g)
{
    ir_value *t = UNARY(tanh, UNARY(softplus, B)), *s = UNARY(sigmoid, B);
    ir_value *inner = SUB(FROM(1, s), TIMES(MUL(t, s), 2));
    return MUL(MUL(FROM(1, MUL(t, t)), s), PLUS(MUL(B, inner), 2));
}

RULE(mish_grad, SLOPE(mish_slope(g)))

/* v where b is not positive, else 0. */
static ir_value *below(grad *g, ir_value *v)
{
    return ir_done(g->b, ir_new(g->b, IR_OP_where, 3, BINARY(greater, B, NUMBER(0)), NUMBER(0), v));
}

/* exp is its own derivative. */
RULE(elu_grad, below(g, MUL(D, Y)))
RULE(selu_grad, below(g, MUL(D, Y)))
RULE(celu_grad, below(g, TIMES(MUL(D, Y), 1 / ATTRIBUTE(celu_grad, alpha))))

/* 1/3 between -3 and 3. */
static ir_value *hard_swish_slope(grad *g)
{
    return ir_done(g->b, ir_new(g->b, IR_OP_clip_grad, 4, TIMES(MUL(D, DY), 1.0 / 3), B, NUMBER(-3), NUMBER(3)));
}

RULE(hard_swish_grad, hard_swish_slope(g))
