/* math_wide.h - elementary functions of floats computed in double, without branches, tables, library calls or fused
 * multiply-adds, so that loops over them are vectorised and every instruction set produces the same bits.
 *
 * The result is rounded to float once, and within 0.51 units in the last place of the true value (measured: sin over
 * all operands, the others over every 509th). Polynomials interpolate the function at Chebyshev nodes.
 *
 *     sin, cos, tan  the operand in quarter turns modulo 4, from those 28-bit parts of 2/pi that matter for its
 *                    magnitude; products with the first two parts are exact (M. Payne, R. Hanek, "Radian reduction for
 *                    trigonometric functions", 1983). Then polynomials on [-pi/4, pi/4]
 *     asin, acos     polynomial up to 1/2; above, asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2))
 *     atan           one of a, (a - 1) / (a + 1), -1 / a, with polynomial up to tan(pi/8)
 *     sinh, cosh     exp(x) = 2^(x log2 e); sinh below 1: polynomial
 *     asinh, atanh   two terms of the series below 2^-10; otherwise logarithms, as acosh
 *
 * pow is not here: written like this, it needs 2.9 ns with AVX-512, but 5.9 with AVX2; the C library needs 4.3. */
#ifndef AMPC_CPU_MATH_WIDE_H
#define AMPC_CPU_MATH_WIDE_H

#include "kernels/cpu/cpu.h"

/* Adding it leaves the nearest integer in the low bits; of numbers up to 2^51. */
#define W_ROUND 0x1.8p52

CPU_INLINE uint64_t w_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

CPU_INLINE double w_of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

CPU_INLINE double w_round(double x) { return x + W_ROUND - W_ROUND; }
CPU_INLINE double w_sign_of(double magnitude, double sign)
{
    return w_of_bits((w_bits(magnitude) & INT64_MAX) | (w_bits(sign) & (uint64_t)INT64_MIN));
}

/* ---- exponential and logarithm --------------------------------------------------------------- */

CPU_INLINE double w_exp2(double x) /* |x| <= 1000 */
{
    double shifted = x + W_ROUND, f = x - (shifted - W_ROUND);
    double p = 1.5297323760701075e-05;
    p = p * f + 0.00015461444698569129;
    p = p * f + 0.001333350238616277;
    p = p * f + 0.0096180566785246373;
    p = p * f + 0.055504108839096185;
    p = p * f + 0.24022650922288757;
    p = p * f + 0.69314718055994529;
    p = p * f + 1;
    return w_of_bits(w_bits(p) + (w_bits(shifted) << 52));
}

CPU_INLINE double w_log(double x) /* x >= 1, or infinity */
{
    const uint64_t low = 0x3fe6a09e667f3bcd, bias = (uint64_t)1023 << 52; /* sqrt(1/2): 1 + f is in [low, 2 low) */
    uint64_t e = (w_bits(x) - low + bias) >> 52;
    double f = w_of_bits(w_bits(x) - (e << 52) + bias) - 1;
    double s = f / (2 + f), z = s * s, exponent = w_of_bits(e | 0x4330000000000000) - (0x1p52 + 1023);
    double p = 0.083109085764294641;
    p = p * z + 0.09070096901432996;
    p = p * z + 0.11111431140054358;
    p = p * z + 0.14285712069162079;
    p = p * z + 0.20000000005603252;
    p = p * z + 0.33333333333331039;
    p = p * z + 1;
    return x < INFINITY ? exponent * 0.69314718055994529 + 2 * s * p : x;
}

/* ---- circular functions ---------------------------------------------------------------------- */

/* The remainder of x / 4, nearest to 0, for |x| <= 2^53. Exact. */
CPU_INLINE double w_modulo_4(double x) { return x - (x + 0x1.8p54 - 0x1.8p54); }

/* x is the result + *turns pi/2, modulo 2 pi. Only the low bits of *turns are valid. */
CPU_INLINE double w_quarter(float x, uint64_t *turns)
{
    /* Parts of 2/pi; a leading one is left out as soon as it only contributes whole turns. */
    const float a = fabsf(x);
    double p = 0x1.45f306cp-1, q = 0x1.c9c882ap-29, r = 0x1.4fe13abe8fa9ap-59;
    p = a < 0x1p53f ? p : 0x1.c9c882ap-29;
    q = a < 0x1p53f ? q : 0x1.4fe13a8p-59;
    r = a < 0x1p53f ? r : 0x1.f47d4d377036ep-86;
    p = a < 0x1p81f ? p : 0x1.4fe13a8p-59;
    q = a < 0x1p81f ? q : 0x1.f47d4dp-86;
    r = a < 0x1p81f ? r : 0x1.bb81b6c52b328p-113;
    p = a < 0x1p109f ? p : 0x1.f47d4dp-86;
    q = a < 0x1p109f ? q : 0x1.bb81b6cp-113;
    r = a < 0x1p109f ? r : 0x1.4acc9e21c821p-143;
    const double first = w_modulo_4((double)x * p), second = w_modulo_4((double)x * q), rest = (double)x * r;
    const double shifted = first + second + rest + W_ROUND;
    *turns = w_bits(shifted);
    return (first - (shifted - W_ROUND) + second + rest) * 1.5707963267948966;
}

CPU_INLINE double w_sine(double r) /* |r| <= pi/4 */
{
    double z = r * r, p = 2.7243811975258105e-06;
    p = p * z - 0.00019840039113012213;
    p = p * z + 0.0083333317856717302;
    p = p * z - 0.16666666663624022;
    return r * (p * z + 1);
}

CPU_INLINE double w_cosine(double r)
{
    double z = r * r, p = -2.7230772762207327e-07;
    p = p * z + 2.4799792756213906e-05;
    p = p * z - 0.0013888884859611132;
    p = p * z + 0.04166666663498856;
    p = p * z - 0.49999999999960137;
    return p * z + 1;
}

CPU_INLINE double w_odd_turns(uint64_t turns, double even, double odd)
{
    uint64_t mask = 0 - (turns & 1);
    return w_of_bits((w_bits(odd) & mask) | (w_bits(even) & ~mask));
}

CPU_INLINE float w_turned(double r, uint64_t turns) /* sin(r + turns pi/2) */
{
    return (float)w_of_bits(w_bits(w_odd_turns(turns, w_sine(r), w_cosine(r))) ^ (turns & 2) << 62);
}

CPU_INLINE float m_sin_float(float x)
{
    uint64_t turns;
    double r = w_quarter(x, &turns);
    return w_turned(r, turns);
}

CPU_INLINE float m_cos_float(float x)
{
    uint64_t turns;
    double r = w_quarter(x, &turns);
    return w_turned(r, turns + 1);
}

CPU_INLINE float m_tan_float(float x)
{
    uint64_t turns;
    double r = w_quarter(x, &turns), sine = w_sine(r), cosine = w_cosine(r);
    return (float)(w_odd_turns(turns, sine, -cosine) / w_odd_turns(turns, cosine, sine));
}

/* ---- their inverses -------------------------------------------------------------------------- */

CPU_INLINE double w_arcsine(double a) /* 0 <= a <= 1/2 */
{
    double z = a * a, p = 0.02834674523183333;
    p = p * z + 0.0010675063150363119;
    p = p * z + 0.01686409027396012;
    p = p * z + 0.016902683886393575;
    p = p * z + 0.022412417726695433;
    p = p * z + 0.030379945210024933;
    p = p * z + 0.044642906474584965;
    p = p * z + 0.074999999534297118;
    p = p * z + 0.16666666666738633;
    return a * (p * z + 1);
}

/* asin(|x|) is the result if |x| <= 1/2, else pi/2 - 2 times the result */
CPU_INLINE double w_arcsine_of(float x)
{
    double a = fabs((double)x), inner = sqrt((1 - a) * 0.5);
    return w_arcsine(a <= 0.5 ? a : inner);
}

CPU_INLINE float m_asin_float(float x)
{
    double t = w_arcsine_of(x), v = fabsf(x) <= 0.5f ? t : 1.5707963267948966 - 2 * t;
    return (float)w_sign_of(v, x);
}

CPU_INLINE float m_acos_float(float x)
{
    double t = w_arcsine_of(x), v = fabsf(x) <= 0.5f ? 1.5707963267948966 - w_sign_of(t, x) : 2 * t;
    return (float)(x < -0.5f ? 3.1415926535897931 - v : v);
}

CPU_INLINE float m_atan_float(float x)
{
    double a = fabs((double)x);
    double over = a < 2.4142135623730951 ? a - 1 : -1, under = a < 2.4142135623730951 ? a + 1 : a;
    double start = a < 2.4142135623730951 ? 0.78539816339744828 : 1.5707963267948966;
    over = a < 0.41421356237309503 ? a : over;
    under = a < 0.41421356237309503 ? 1 : under;
    start = a < 0.41421356237309503 ? 0 : start;
    double t = over / under, z = t * t, p = 0.032938757974709847;
    p = p * z - 0.060262983947018789;
    p = p * z + 0.076045794868523031;
    p = p * z - 0.090840781416635374;
    p = p * z + 0.11110818413358031;
    p = p * z - 0.14285708076608974;
    p = p * z + 0.19999999949530611;
    p = p * z - 0.33333333333265697;
    return (float)w_sign_of(start + t * (p * z + 1), x);
}

/* ---- hyperbolic functions -------------------------------------------------------------------- */

CPU_INLINE double w_exp(float a) /* exp(|x|), at most exp(200) */
{
    float size = fabsf(a);
    return w_exp2((double)(size < 200 ? size : 200) * 1.4426950408889634);
}

CPU_INLINE float m_sinh_float(float x)
{
    double e = w_exp(x), z = (double)x * (double)x, p = 2.5456706571523821e-08;
    p = p * z + 2.755377026364149e-06;
    p = p * z + 0.0001984128253011599;
    p = p * z + 0.0083333333174643621;
    p = p * z + 0.16666666666698407;
    double small = (double)x * (p * z + 1), large = w_sign_of(0.5 * (e - 1 / e), x);
    float v = (float)(fabsf(x) < 1 ? small : large);
    return x == x ? v : x;
}

CPU_INLINE float m_cosh_float(float x)
{
    double e = w_exp(x), v = 0.5 * (e + 1 / e);
    return x == x ? (float)v : x;
}

CPU_INLINE float m_asinh_float(float x)
{
    double a = fabs((double)x), z = a * a, small = a * (1 - z * 0.16666666666666666);
    double v = a < 0x1p-10 ? small : w_log(a + sqrt(z + 1));
    return (float)w_sign_of(v, x);
}

CPU_INLINE float m_acosh_float(float x)
{
    double a = x, v = w_log(a + sqrt(a * a - 1));
    return (float)(x >= 1 ? v : NAN);
}

CPU_INLINE float m_atanh_float(float x)
{
    double a = fabs((double)x), small = a * (1 + a * a * 0.33333333333333331);
    double v = a < 0x1p-10 ? small : 0.5 * w_log((1 + a) / (1 - a));
    return (float)(a <= 1 ? w_sign_of(v, x) : NAN);
}

#endif
