/* fold_integer.c - integer arithmetic on numbers and on symbolic dimensions.
 *
 * Two numbers: as the kernels do it, in 64 bits, wrapping, defined everywhere. With a symbol: the expression where
 * there is one, a truth value where it is the same for all sizes, else IR_DIM_NONE. */
#include "ir/fold_formulas.h"

static bool plain(ir_dim a, ir_dim b)
{
    return !ir_dim_is_symbolic(a) && !ir_dim_is_symbolic(b);
}

static ir_dim number(uint64_t bits)
{
    return ir_dim_number((int64_t)bits);
}

/* a - b is never negative. */
static bool never_less(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return ir_dim_least(t, ir_dim_sub(t, a, b)) >= 0;
}

ir_dim fold_int_add(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return plain(a, b) ? number((uint64_t)a + (uint64_t)b) : ir_dim_add(t, a, b);
}

ir_dim fold_int_sub(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return plain(a, b) ? number((uint64_t)a - (uint64_t)b) : ir_dim_sub(t, a, b);
}

ir_dim fold_int_mul(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return plain(a, b) ? number((uint64_t)a * (uint64_t)b) : ir_dim_mul(t, a, b);
}

/* Toward zero, so a symbolic dividend must divide exactly or be no less than 0. */
ir_dim fold_int_div(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (b == 0) return 0;
    if (b == -1) return fold_int_sub(t, 0, a);
    if (plain(a, b)) return a / b;
    if (ir_dim_is_symbolic(b)) return IR_DIM_NONE;
    ir_dim exact = ir_dim_div(t, a, b);
    if (exact != IR_DIM_NONE || b < 0 || !never_less(t, a, 0)) return exact;
    return ir_dim_floordiv(t, a, b);
}

/* Sign of the dividend. */
ir_dim fold_int_fmod(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (b == 0 || b == -1) return 0;
    if (plain(a, b)) return a % b;
    return ir_dim_sub(t, a, ir_dim_mul(t, fold_int_div(t, a, b), b));
}

/* Sign of the divisor. */
ir_dim fold_int_mod(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (!plain(a, b)) {
        if (ir_dim_is_symbolic(b) || b <= 0) return IR_DIM_NONE;
        return ir_dim_sub(t, a, ir_dim_mul(t, ir_dim_floordiv(t, a, b), b));
    }
    ir_dim r = fold_int_fmod(t, a, b);
    return r && (r < 0) != (b < 0) ? r + b : r;
}

/* A negative exponent gives the truncated fraction: 0 unless |a| is 1. */
ir_dim fold_int_pow(ir_dim_table *t, ir_dim a, ir_dim b)
{
    (void)t;
    if (!plain(a, b)) return IR_DIM_NONE;
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)a;
    for (; b; b >>= 1, square *= square)
        if (b & 1) result *= square;
    return number(result);
}

ir_dim fold_int_min(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return plain(a, b) ? (a < b ? a : b) : ir_dim_min(t, a, b);
}

ir_dim fold_int_max(ir_dim_table *t, ir_dim a, ir_dim b)
{
    return plain(a, b) ? (a > b ? a : b) : ir_dim_max(t, a, b);
}

ir_dim fold_int_less(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (plain(a, b)) return a < b;
    return ir_dim_least(t, ir_dim_sub(t, b, a)) >= 1 ? 1 : never_less(t, a, b) ? 0 : IR_DIM_NONE;
}

static ir_dim negate(ir_dim truth)
{
    return truth == IR_DIM_NONE ? truth : !truth;
}

ir_dim fold_int_greater(ir_dim_table *t, ir_dim a, ir_dim b) { return fold_int_less(t, b, a); }
ir_dim fold_int_less_or_equal(ir_dim_table *t, ir_dim a, ir_dim b) { return negate(fold_int_less(t, b, a)); }
ir_dim fold_int_greater_or_equal(ir_dim_table *t, ir_dim a, ir_dim b) { return negate(fold_int_less(t, a, b)); }

ir_dim fold_int_equal(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == b || plain(a, b)) return a == b;
    return fold_int_less(t, a, b) == 1 || fold_int_less(t, b, a) == 1 ? 0 : IR_DIM_NONE;
}

/* Truth values are never symbolic. */
ir_dim fold_int_and(ir_dim_table *t, ir_dim a, ir_dim b) { return (void)t, a && b; }
ir_dim fold_int_or(ir_dim_table *t, ir_dim a, ir_dim b) { return (void)t, a || b; }
ir_dim fold_int_xor(ir_dim_table *t, ir_dim a, ir_dim b) { return (void)t, !a != !b; }
ir_dim fold_int_not(ir_dim_table *t, ir_dim a) { return (void)t, !a; }

ir_dim fold_int_neg(ir_dim_table *t, ir_dim a) { return fold_int_sub(t, 0, a); }
ir_dim fold_int_relu(ir_dim_table *t, ir_dim a) { return fold_int_max(t, a, 0); }

ir_dim fold_int_abs(ir_dim_table *t, ir_dim a) { return fold_int_max(t, a, fold_int_neg(t, a)); }

ir_dim fold_int_sign(ir_dim_table *t, ir_dim a)
{
    if (plain(a, 0)) return (a > 0) - (a < 0);
    return fold_int_less(t, 0, a) == 1 ? 1 : fold_int_less(t, a, 0) == 1 ? -1 : IR_DIM_NONE;
}
