/* formulas_body.h - the rows of formulas.def as functions f_NAME_REAL(a, b, lo, hi); a formula ignores the arguments
 * that it does not need.
 *
 * A template over REAL: float, double (both with REAL_IS_FLOAT defined) or int64_t. The includer provides K_FORMULA,
 * the qualifiers of a small inline function, and for floats R(m_exp), R(m_log) ... Integer arithmetic is 64-bit, wraps,
 * and is defined for all operands. */
#include "ir/real.h"

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
#define FLOOR R(m_floor)
#define CEIL R(m_ceil)
#define ROUND R(m_round)
#define SQRT R(m_sqrt)
#define EXP R(m_exp)
#define LOG R(m_log)
#define LOG1P R(m_log1p)
#define SIN R(m_sin)
#define COS R(m_cos)
#define TANH R(m_tanh)
#define ERF R(m_erf)
#else
#define WRAP(a, op, b) ((int64_t)((uint64_t)(a)op(uint64_t)(b)))
#define NEG(a) WRAP(0, -, a)
#define ADD(a, b) WRAP(a, +, b)
#define SUB(a, b) WRAP(a, -, b)
#define MUL(a, b) WRAP(a, *, b)
#define DIV m_div_int64_t
#define IS_NAN(a) false

K_FORMULA int64_t m_abs_int64_t(int64_t a) { return a < 0 ? NEG(a) : a; }
K_FORMULA int64_t m_div_int64_t(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? NEG(a) : a / b; }
K_FORMULA int64_t m_fmod_int64_t(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
K_FORMULA int64_t m_pow_int64_t(int64_t a, int64_t b) /* fractions are truncated: 0 unless |a| is 1 */
{
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)a;
    for (; b; b >>= 1, square *= square)
        if (b & 1) result *= square;
    return (int64_t)result;
}
#endif

#define RESULT_SAME REAL
#define RESULT_TRUTH bool
#define DEFINE_PART(name, parameters, ...) \
    K_FORMULA REAL R(name) parameters { return __VA_ARGS__; }
#define DEFINE(name, size, result, operands, numbers, ...) \
    K_FORMULA RESULT_##result R(f_##name)(REAL a, REAL b, REAL lo, REAL hi) \
    { \
        (void)a, (void)b, (void)lo, (void)hi; \
        return __VA_ARGS__; \
    }
#ifdef REAL_IS_FLOAT
#define FLOAT_PART DEFINE_PART
#define FLOAT_FORMULA DEFINE
#else
#define INTEGER_PART DEFINE_PART
#define INTEGER_FORMULA DEFINE
#endif
#include "ir/formulas.def"

#undef ABS
#undef FMOD
#undef POW
#undef NEG
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef IS_NAN
#undef FLOOR
#undef CEIL
#undef ROUND
#undef SQRT
#undef EXP
#undef LOG
#undef LOG1P
#undef SIN
#undef COS
#undef TANH
#undef ERF
#undef WRAP
#undef RESULT_SAME
#undef RESULT_TRUTH
#undef DEFINE_PART
#undef DEFINE
