/* fold_integer.c - integer formulas on numbers and symbolic dimensions.
 *
 * Formulas on numbers compute what the kernels compute. With a symbol, the result is an expression if there is one, a
 * truth value if it is the same for all sizes, and otherwise IR_DIM_NONE. */
#include "ir/fold/fold.h"

#define K_FORMULA static inline
#include "ir/ops/formulas_each.h"

static int64_t unsigned_of(ir_formula formula, uint64_t a, uint64_t b, uint64_t lo, uint64_t hi)
{
    switch (formula) {
        /* clang-format off */
#define UNSIGNED_FORMULA(name, ...) \
    case IR_FORMULA_##name: return (int64_t)f_##name##_uint64_t(a, b, lo, hi);
#include "ir/ops/formulas.def"
    /* clang-format on */
    default: return IR_DIM_NONE;
    }
}

static int64_t number_of(ir_formula formula, int64_t a, int64_t b, int64_t lo, int64_t hi)
{
    switch (formula) {
        /* clang-format off */
#define INTEGER_FORMULA(name, ...) \
    case IR_FORMULA_##name: return f_##name##_int64_t(a, b, lo, hi);
#include "ir/ops/formulas.def"
    /* clang-format on */
    default: return IR_DIM_NONE;
    }
}

/* ---- symbols --------------------------------------------------------------------------------- */

/* Whether a - b is never negative. */
static bool never_less(ir_dim_table *t, ir_dim a, ir_dim b) { return ir_dim_lower_bound(t, ir_dim_sub(t, a, b)) >= 0; }

/* Division truncates toward zero, so a symbolic dividend must be divisible or never negative. */
static ir_dim divide(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (b == 0) return 0;
    if (b == -1) return ir_dim_sub(t, 0, a);
    if (ir_dim_is_symbolic(b)) return IR_DIM_NONE;
    ir_dim exact = ir_dim_div(t, a, b);
    if (exact != IR_DIM_NONE || b < 0 || !never_less(t, a, 0)) return exact;
    return ir_dim_floordiv(t, a, b);
}

/* The result has the sign of the dividend. */
static ir_dim remainder_of(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return b == 0 || b == -1 ? 0 : ir_dim_sub(t, a, ir_dim_mul(t, divide(t, a, b), b));
}

/* The result has the sign of the divisor. */
static ir_dim modulo(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (ir_dim_is_symbolic(b) || b <= 0) return IR_DIM_NONE;
    return ir_dim_sub(t, a, ir_dim_mul(t, ir_dim_floordiv(t, a, b), b));
}

static ir_dim is_less(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return ir_dim_lower_bound(t, ir_dim_sub(t, b, a)) >= 1 ? 1 : never_less(t, a, b) ? 0 : IR_DIM_NONE;
}

static ir_dim is_equal(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == b) return 1;
    return is_less(t, a, b) == 1 || is_less(t, b, a) == 1 ? 0 : IR_DIM_NONE;
}

static ir_dim negate(ir_dim truth) { return truth == IR_DIM_NONE ? truth : !truth; }

static ir_dim sign(ir_dim_table *t, ir_dim a)
{
    return is_less(t, 0, a) == 1 ? 1 : is_less(t, a, 0) == 1 ? -1 : IR_DIM_NONE;
}

/* An absent bound is IR_DIM_NONE. */
static ir_dim clip(ir_dim_table *t, ir_dim a, ir_dim lo, ir_dim hi)
{
    if (lo != IR_DIM_NONE) a = ir_dim_max(t, a, lo);
    return hi == IR_DIM_NONE ? a : ir_dim_min(t, a, hi);
}

/* The symbolic rule of each integer formula. Truth values are never symbolic. */
#define RULE(name, value) \
    static ir_dim symbolic_##name(ir_dim_table *t, ir_dim a, ir_dim b, ir_dim lo, ir_dim hi) \
    { \
        (void)t, (void)a, (void)b, (void)lo, (void)hi; \
        return value; \
    }
RULE(neg, ir_dim_sub(t, 0, a))
RULE(abs, ir_dim_max(t, a, ir_dim_sub(t, 0, a)))
RULE(sign, sign(t, a))
RULE(relu, ir_dim_max(t, a, 0))
RULE(not, IR_DIM_NONE)
RULE(clip, clip(t, a, lo, hi))
RULE(add, ir_dim_add(t, a, b))
RULE(sub, ir_dim_sub(t, a, b))
RULE(mul, ir_dim_mul(t, a, b))
RULE(div, divide(t, a, b))
RULE(pow, IR_DIM_NONE)
RULE(min, ir_dim_min(t, a, b))
RULE(max, ir_dim_max(t, a, b))
RULE(mod, modulo(t, a, b))
RULE(fmod, remainder_of(t, a, b))
RULE(equal, is_equal(t, a, b))
RULE(less, is_less(t, a, b))
RULE(less_or_equal, negate(is_less(t, b, a)))
RULE(greater, is_less(t, b, a))
RULE(greater_or_equal, negate(is_less(t, a, b)))
RULE(and, IR_DIM_NONE)
RULE(or, IR_DIM_NONE)
RULE(xor, IR_DIM_NONE)
RULE(prelu, IR_DIM_NONE)
RULE(bit_not, IR_DIM_NONE)
RULE(bit_and, IR_DIM_NONE)
RULE(bit_or, IR_DIM_NONE)
RULE(bit_xor, IR_DIM_NONE)
RULE(shift, IR_DIM_NONE)
RULE(shift_right, IR_DIM_NONE)

ir_dim fold_bounded(const fold_state *f, ir_formula formula, ir_dim a, ir_dim b, ir_dim lo, ir_dim hi)
{
    if (!ir_dim_is_symbolic(a) && !ir_dim_is_symbolic(b) && !ir_dim_is_symbolic(lo) && !ir_dim_is_symbolic(hi))
        return f->in[0]->type.dtype == IR_u64
                   ? fold_number(IR_u64,
                                 unsigned_of(formula, (uint64_t)a, (uint64_t)b, lo == IR_DIM_NONE ? 0 : (uint64_t)lo,
                                             hi == IR_DIM_NONE ? UINT64_MAX : (uint64_t)hi))
                   : ir_dim_number(number_of(formula, a, b, lo, hi == IR_DIM_NONE ? INT64_MAX : hi));
    switch (formula) {
        /* clang-format off */
#define INTEGER_FORMULA(name, ...) \
    case IR_FORMULA_##name: return symbolic_##name(f->dims, a, b, lo, hi);
#include "ir/ops/formulas.def"
    /* clang-format on */
    default: return IR_DIM_NONE;
    }
}

ir_dim fold_integer(const fold_state *f, ir_formula formula, ir_dim a, ir_dim b)
{
    return fold_bounded(f, formula, a, b, IR_DIM_NONE, IR_DIM_NONE);
}
