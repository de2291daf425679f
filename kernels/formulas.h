/* formulas.h - the scalar formula of every pointwise op, once for all devices.
 *
 * A template over REAL (float or double): include it once per type, after defining REAL. R(name)
 * is name_REAL. The device provides R(m_exp), R(m_log), R(m_log1p), R(m_tanh), R(m_erf),
 * R(m_sqrt), R(m_pow) ... and K_FORMULA, the qualifiers of a small inline function. Constants are
 * integers or casts, so that no float is widened.
 *
 * The integer formulas stand at the end, outside of the template: own arithmetic in 64 bits,
 * wrapping. */
#include "kernels/real.h"

#ifdef REAL

/* ---- one operand ---- */
K_FORMULA REAL R(f_neg)(REAL a) { return -a; }
K_FORMULA REAL R(f_abs)(REAL a) { return R(m_abs)(a); }
K_FORMULA REAL R(f_sign)(REAL a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
K_FORMULA REAL R(f_floor)(REAL a) { return R(m_floor)(a); }
K_FORMULA REAL R(f_ceil)(REAL a) { return R(m_ceil)(a); }
K_FORMULA REAL R(f_round)(REAL a) { return R(m_round)(a); } /* half to even */
K_FORMULA REAL R(f_relu)(REAL a) { return a < 0 ? 0 : a; }  /* NaN passes */
K_FORMULA REAL R(f_sqrt)(REAL a) { return R(m_sqrt)(a); }
K_FORMULA REAL R(f_reciprocal)(REAL a) { return 1 / a; }
K_FORMULA REAL R(f_exp)(REAL a) { return R(m_exp)(a); }
K_FORMULA REAL R(f_log)(REAL a) { return R(m_log)(a); }
K_FORMULA REAL R(f_sin)(REAL a) { return R(m_sin)(a); }
K_FORMULA REAL R(f_cos)(REAL a) { return R(m_cos)(a); }
K_FORMULA REAL R(f_tanh)(REAL a) { return R(m_tanh)(a); }
K_FORMULA REAL R(f_erf)(REAL a) { return R(m_erf)(a); }
K_FORMULA REAL R(f_sigmoid)(REAL a) /* accurate in both tails */
{
    REAL e = R(m_exp)(-R(m_abs)(a));
    return (a < 0 ? e : 1) / (1 + e);
}
K_FORMULA REAL R(f_softplus)(REAL a)
{
    return (a < 0 ? 0 : a) + R(m_log1p)(R(m_exp)(-R(m_abs)(a)));
}
K_FORMULA REAL R(f_normal_cdf)(REAL a)
{
    return (REAL)0.5 * (1 + R(m_erf)(a * (REAL)0.70710678118654752));
}
K_FORMULA REAL R(f_gelu)(REAL a) { return a * R(f_normal_cdf)(a); }
/* the argument of tanh in the approximation of gelu: sqrt(2/pi) (a + 0.044715 a^3) */
K_FORMULA REAL R(f_gelu_inner)(REAL a)
{
    return (REAL)0.79788456080286536 * a * (1 + (REAL)0.044715 * a * a);
}
K_FORMULA REAL R(f_gelu_tanh)(REAL a)
{
    return (REAL)0.5 * a * (1 + R(m_tanh)(R(f_gelu_inner)(a)));
}

/* ---- two operands ---- */
K_FORMULA REAL R(f_add)(REAL a, REAL b) { return a + b; }
K_FORMULA REAL R(f_sub)(REAL a, REAL b) { return a - b; }
K_FORMULA REAL R(f_mul)(REAL a, REAL b) { return a * b; }
K_FORMULA REAL R(f_div)(REAL a, REAL b) { return a / b; }
K_FORMULA REAL R(f_pow)(REAL a, REAL b) { return R(m_pow)(a, b); }
K_FORMULA REAL R(f_min)(REAL a, REAL b) { return a < b || a != a ? a : b; } /* NaN passes */
K_FORMULA REAL R(f_max)(REAL a, REAL b) { return a > b || a != a ? a : b; }
K_FORMULA REAL R(f_fmod)(REAL a, REAL b) { return R(m_fmod)(a, b); } /* sign of the dividend */
K_FORMULA REAL R(f_mod)(REAL a, REAL b)                              /* sign of the divisor */
{
    REAL r = R(m_fmod)(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
K_FORMULA bool R(f_equal)(REAL a, REAL b) { return a == b; }
K_FORMULA bool R(f_less)(REAL a, REAL b) { return a < b; }
K_FORMULA bool R(f_less_or_equal)(REAL a, REAL b) { return a <= b; }
K_FORMULA bool R(f_greater)(REAL a, REAL b) { return a > b; }
K_FORMULA bool R(f_greater_or_equal)(REAL a, REAL b) { return a >= b; }

/* ---- derivative times dy, from the result y or the operand x ---- */
K_FORMULA REAL R(f_relu_grad)(REAL dy, REAL y) { return y <= 0 ? 0 : dy; }
K_FORMULA REAL R(f_sigmoid_grad)(REAL dy, REAL y) { return dy * (y * (1 - y)); }
K_FORMULA REAL R(f_tanh_grad)(REAL dy, REAL y) { return dy * (1 - y * y); }
K_FORMULA REAL R(f_erf_grad)(REAL dy, REAL x)
{
    return dy * ((REAL)1.1283791670955126 * R(m_exp)(-x * x));
}
K_FORMULA REAL R(f_gelu_grad)(REAL dy, REAL x)
{
    REAL density = (REAL)0.39894228040143268 * R(m_exp)((REAL)-0.5 * x * x);
    return dy * (R(f_normal_cdf)(x) + x * density);
}
K_FORMULA REAL R(f_gelu_tanh_grad)(REAL dy, REAL x)
{
    REAL t = R(m_tanh)(R(f_gelu_inner)(x));
    REAL slope = (REAL)0.79788456080286536 * (1 + (REAL)0.134145 * x * x);
    return dy * ((REAL)0.5 * (1 + t) + (REAL)0.5 * x * (1 - t * t) * slope);
}

/* ---- with numbers ---- */
K_FORMULA REAL R(f_clip)(REAL a, REAL lo, REAL hi) { return R(f_min)(R(f_max)(a, lo), hi); }
K_FORMULA REAL R(f_clip_grad)(REAL dy, REAL x, REAL lo, REAL hi)
{
    return x >= lo && x <= hi ? dy : 0;
}

#elif !defined(K_FORMULAS_INTEGER)
#define K_FORMULAS_INTEGER

K_FORMULA int64_t f_neg_int64_t(int64_t a) { return (int64_t)(0 - (uint64_t)a); }
K_FORMULA int64_t f_abs_int64_t(int64_t a) { return a < 0 ? f_neg_int64_t(a) : a; }
K_FORMULA int64_t f_sign_int64_t(int64_t a) { return (a > 0) - (a < 0); }
K_FORMULA int64_t f_relu_int64_t(int64_t a) { return a < 0 ? 0 : a; }
K_FORMULA int64_t f_not_int64_t(int64_t a) { return !a; }
K_FORMULA int64_t f_add_int64_t(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
K_FORMULA int64_t f_sub_int64_t(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
K_FORMULA int64_t f_mul_int64_t(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
K_FORMULA int64_t f_div_int64_t(int64_t a, int64_t b) /* toward zero; x / 0 = 0 */
{
    return b == 0 ? 0 : b == -1 ? f_neg_int64_t(a) : a / b;
}
K_FORMULA int64_t f_fmod_int64_t(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
K_FORMULA int64_t f_mod_int64_t(int64_t a, int64_t b)
{
    int64_t r = f_fmod_int64_t(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
K_FORMULA int64_t f_pow_int64_t(int64_t a,
                                int64_t b) /* negative exponents truncate: 0 unless |a| is 1 */
{
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)a;
    for (; b; b >>= 1, square *= square)
        if (b & 1) result *= square;
    return (int64_t)result;
}
K_FORMULA int64_t f_min_int64_t(int64_t a, int64_t b) { return a < b ? a : b; }
K_FORMULA int64_t f_max_int64_t(int64_t a, int64_t b) { return a > b ? a : b; }
K_FORMULA bool f_equal_int64_t(int64_t a, int64_t b) { return a == b; }
K_FORMULA bool f_less_int64_t(int64_t a, int64_t b) { return a < b; }
K_FORMULA bool f_less_or_equal_int64_t(int64_t a, int64_t b) { return a <= b; }
K_FORMULA bool f_greater_int64_t(int64_t a, int64_t b) { return a > b; }
K_FORMULA bool f_greater_or_equal_int64_t(int64_t a, int64_t b) { return a >= b; }
K_FORMULA bool f_and_int64_t(int64_t a, int64_t b) { return a && b; }
K_FORMULA bool f_or_int64_t(int64_t a, int64_t b) { return a || b; }
K_FORMULA bool f_xor_int64_t(int64_t a, int64_t b) { return !a != !b; }
K_FORMULA int64_t f_clip_int64_t(int64_t a, int64_t lo, int64_t hi)
{
    return f_min_int64_t(f_max_int64_t(a, lo), hi);
}

#endif
