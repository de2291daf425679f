/* pointwise.h - which formula each pointwise op has and how many operands, for all devices. */
#ifndef AMPC_POINTWISE_H
#define AMPC_POINTWISE_H

#include "kernels/formula_map.h"
#include "kernels/kernel.h"

typedef enum k_formula {
#define FORMULA_ENUM(name) FORMULA_##name,
    /* clang-format off */
    FORMULAS_ALL(FORMULA_ENUM, FORMULA_ENUM, FORMULA_ENUM, FORMULA_ENUM)
    FORMULAS_FLOAT(FORMULA_ENUM, FORMULA_ENUM, FORMULA_ENUM)
    FORMULAS_BOOL(FORMULA_ENUM, FORMULA_ENUM)
/* clang-format on */
#undef FORMULA_ENUM
        FORMULA_div_count,
    FORMULA_square,
    FORMULA_COUNT
} k_formula;

/* clang-format off */
/* Ops with their operands; `flagged` is the formula when the op's first attribute, a flag, is
 * set. */
/*    op  operands  formula  flagged */
#define SAME_NAME(X, op, operands) X(op, operands, op, op)
#define POINTWISE_MAP(X)                                                                           \
    SAME_NAME(X, neg, 1) SAME_NAME(X, abs, 1) SAME_NAME(X, sign, 1) SAME_NAME(X, floor, 1)         \
    SAME_NAME(X, ceil, 1) SAME_NAME(X, round, 1) SAME_NAME(X, relu, 1) SAME_NAME(X, sqrt, 1)       \
    SAME_NAME(X, reciprocal, 1) SAME_NAME(X, exp, 1) SAME_NAME(X, log, 1) SAME_NAME(X, sin, 1)     \
    SAME_NAME(X, cos, 1) SAME_NAME(X, tanh, 1) SAME_NAME(X, sigmoid, 1) SAME_NAME(X, erf, 1)       \
    SAME_NAME(X, softplus, 1) X(gelu, 1, gelu, gelu_tanh) SAME_NAME(X, not, 1)                     \
    SAME_NAME(X, clip, 1) SAME_NAME(X, div_count, 1)                                               \
    SAME_NAME(X, add, 2) SAME_NAME(X, sub, 2) SAME_NAME(X, mul, 2) SAME_NAME(X, div, 2)            \
    SAME_NAME(X, pow, 2) SAME_NAME(X, min, 2) SAME_NAME(X, max, 2) X(mod, 2, mod, fmod)            \
    SAME_NAME(X, equal, 2) SAME_NAME(X, less, 2) SAME_NAME(X, less_or_equal, 2)                    \
    SAME_NAME(X, greater, 2) SAME_NAME(X, greater_or_equal, 2) SAME_NAME(X, and, 2)                \
    SAME_NAME(X, or, 2) SAME_NAME(X, xor, 2) SAME_NAME(X, relu_grad, 2)                            \
    SAME_NAME(X, sigmoid_grad, 2) SAME_NAME(X, tanh_grad, 2) SAME_NAME(X, erf_grad, 2)             \
    X(gelu_grad, 2, gelu_grad, gelu_tanh_grad) SAME_NAME(X, clip_grad, 2)
/* clang-format on */

typedef struct k_pointwise {
    int operands; /* bounds follow them */
    k_formula formula;
} k_pointwise;

_Static_assert(IR_ATTR(gelu, tanh) == 0 && IR_ATTR(gelu_grad, tanh) == 0 && IR_ATTR(mod, fmod) == 0,
               "the flag is the first attribute");

static inline k_pointwise k_pointwise_of(const k_args *args)
{
    static const struct {
        int operands;
        k_formula plain, flagged;
    } rows[IR_OP_COUNT] = {
#define ROW(op, operands, formula, flagged)                                                        \
    [IR_OP_##op] = {operands, FORMULA_##formula, FORMULA_##flagged},
        POINTWISE_MAP(ROW)
#undef ROW
    };
    bool flag = rows[args->op].plain != rows[args->op].flagged && args->attr[0].i;
    return (k_pointwise){rows[args->op].operands, flag ? rows[args->op].flagged : rows[args->op].plain};
}

/* The number that div_count divides by. */
static inline double k_pointwise_count(const k_args *args)
{
    double count = 1;
    const ir_attr *dims = &args->attr[IR_ATTR(div_count, count)];
    for (int i = 0; i < dims->list.count; i++) count *= (double)dims->list.items[i];
    return count;
}

#endif
