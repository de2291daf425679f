/* formulas_body.h - the rows of formulas.def as functions f_NAME_REAL(a, b, lo, hi); a formula ignores the arguments
 * that it does not need. lo and hi are also p and q.
 *
 * With WITH_REDUCTIONS defined, also the rows of reductions.def: map_FOLD_REAL(a), join_FOLD_REAL(s, t) and
 * finish_NAME_REAL(s, n).
 *
 * A template over REAL: float, double (both with REAL_IS_FLOAT defined), int64_t or uint64_t (with REAL_IS_UNSIGNED
 * defined). The includer provides K_FORMULA, the qualifiers of a small inline function, and for floats R(m_exp),
 * R(m_log) ... Integer arithmetic is 64-bit, wraps, and is defined for all operands. */
#include "ir/ops/real.h"

#define ABS R(m_abs)
#define FMOD R(m_fmod)
#define POW R(m_pow)
#ifdef REAL_IS_FLOAT
#define NEG(a) (-(a))
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define IS_NAN(a) ((a) != (a))
#define NEGATIVE(a) ((a) < 0)
#define FLOOR R(m_floor)
#define CEIL R(m_ceil)
#define ROUND R(m_round)
#define SQRT R(m_sqrt)
#define EXP R(m_exp)
#define DECAY R(m_decay)
#define LOG R(m_log)
#define LOG1P R(m_log1p)
#define SIN R(m_sin)
#define COS R(m_cos)
#define TAN R(m_tan)
#define ASIN R(m_asin)
#define ACOS R(m_acos)
#define ATAN R(m_atan)
#define SINH R(m_sinh)
#define COSH R(m_cosh)
#define TANH R(m_tanh)
#define ASINH R(m_asinh)
#define ACOSH R(m_acosh)
#define ATANH R(m_atanh)
#define ERF R(m_erf)
#define GELU_GATE R(m_gelu_gate)
#define GELU_SLOPE R(m_gelu_slope)
#define GELU_TANH_GATE R(m_gelu_tanh_gate)
#define GELU_TANH_SLOPE R(m_gelu_tanh_slope)
#else
#define WRAP(a, op, b) ((REAL)((uint64_t)(a)op(uint64_t)(b)))
#define NEG(a) WRAP(0, -, a)
#define ADD(a, b) WRAP(a, +, b)
#define SUB(a, b) WRAP(a, -, b)
#define MUL(a, b) WRAP(a, *, b)
#define DIV R(m_div)
#define SHIFT(a, op, b) ((uint64_t)(b) < 64 ? WRAP(a, op, b) : 0)
#define IS_NAN(a) false

#ifdef REAL_IS_UNSIGNED
#define NEGATIVE(a) false
K_FORMULA REAL R(m_abs)(REAL a) { return a; }
K_FORMULA REAL R(m_div)(REAL a, REAL b) { return b == 0 ? 0 : a / b; }
K_FORMULA REAL R(m_fmod)(REAL a, REAL b) { return b == 0 ? 0 : a % b; }
#else
#define NEGATIVE(a) ((a) < 0)
K_FORMULA REAL R(m_abs)(REAL a) { return a < 0 ? NEG(a) : a; }
K_FORMULA REAL R(m_div)(REAL a, REAL b) { return b == 0 ? 0 : b == -1 ? NEG(a) : a / b; }
K_FORMULA REAL R(m_fmod)(REAL a, REAL b) { return b == 0 || b == -1 ? 0 : a % b; }
#endif
K_FORMULA REAL R(m_pow)(REAL a, REAL b) /* fractions are truncated: 0 unless |a| is 1 */
{
    if (NEGATIVE(b)) return a == 1 ? 1 : a == (REAL)-1 ? (REAL)(b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)a;
    for (; b; b /= 2, square *= square)
        if (b % 2) result *= square;
    return (REAL)result;
}
#endif

#define RESULT_SAME REAL
#define RESULT_TRUTH bool
#define DEFINE_PART(name, parameters, ...) \
    K_FORMULA REAL R(name) parameters { return __VA_ARGS__; }
#define DEFINE(name, size, result, operands, numbers, ...) \
    K_FORMULA RESULT_##result R(f_##name)(REAL a, REAL b, REAL lo, REAL hi) \
    { \
        const REAL p = lo, q = hi; \
        (void)a, (void)b, (void)p, (void)q; \
        return __VA_ARGS__; \
    }
#ifdef REAL_IS_FLOAT
#define FLOAT_PART DEFINE_PART
#define FLOAT_FORMULA DEFINE
#elif defined REAL_IS_UNSIGNED
#define INTEGER_PART DEFINE_PART
#define UNSIGNED_FORMULA DEFINE
#else
#define INTEGER_PART DEFINE_PART
#define INTEGER_FORMULA DEFINE
#endif
#include "ir/ops/formulas.def"

#ifdef WITH_REDUCTIONS
#define COMBINE(name, join, start, ...) \
    K_FORMULA REAL R(map_##name)(REAL a) { return __VA_ARGS__; } \
    K_FORMULA REAL R(join_##name)(REAL s, REAL t) { return R(f_##join)(s, t, 0, 0); }
#define FINISH(name, types, ...) FINISH_##types(name, __VA_ARGS__)
#define FINISH_N(name, ...) \
    K_FORMULA REAL R(finish_##name)(REAL s, REAL n) \
    { \
        (void)n; \
        return __VA_ARGS__; \
    }
#ifdef REAL_IS_FLOAT
#define FINISH_F FINISH_N
#else
#define FINISH_F(...)
#endif
#include "ir/ops/reductions.def"
#undef FINISH_N
#undef FINISH_F
#endif

#undef ABS
#undef FMOD
#undef POW
#undef NEG
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef IS_NAN
#undef NEGATIVE
#undef SHIFT
#undef FLOOR
#undef CEIL
#undef ROUND
#undef SQRT
#undef EXP
#undef DECAY
#undef LOG
#undef LOG1P
#undef SIN
#undef COS
#undef TAN
#undef ASIN
#undef ACOS
#undef ATAN
#undef SINH
#undef COSH
#undef TANH
#undef ASINH
#undef ACOSH
#undef ATANH
#undef ERF
#undef GELU_GATE
#undef GELU_SLOPE
#undef GELU_TANH_GATE
#undef GELU_TANH_SLOPE
#undef WRAP
#undef RESULT_SAME
#undef RESULT_TRUTH
#undef DEFINE_PART
#undef DEFINE
