/* math.h - elementary functions that the compiler can vectorise. m_NAME_float is accurate to about 2 units in the last
 * place and has no branches, tables, library calls or fused multiply-adds, so every instruction set produces the same
 * bits, except m_pow_float and m_fmod_float, which are from the C library as m_NAME_double (libm.h). Those that need
 * more precision are in math_wide.h.
 *
 *     exp    x = n ln 2 + r, minimax polynomial in r, scaled by 2^n in two factors (subnormal results are rounded once)
 *     decay  exp of x <= 44, scaled by one factor and a constant: half the work
 *     log    x = 2^e (1 + f), series in s = f / (2 + f)
 *     tanh   small: Pade approximant [7/6], as x minus a correction; large: 1 - 2 / (exp(2x) + 1)
 *     erf    below 1: Taylor series; above: 1 - exp(p(x)), p = polynomial interpolating log(erfc) on [1, 4]
 *     gelu   the gate of -|x| is p(|x|) / q(|x|), the slope 1/2 + x p(x^2) / q(x^2), with minimax absolute error
 *            (tests/ops/fit_gelu.py); beyond 5.2 to 6.2 they are 0 or 1 */
#ifndef AMPC_CPU_MATH_H
#define AMPC_CPU_MATH_H

#include "kernels/cpu/cpu.h"
#include "ir/ops/libm.h"
#include "kernels/cpu/math_wide.h"

/* x = n ln 2 + r: returns exp(r), and n in the low bits of *n, of which the 9 lowest are valid. -140 <= x <= 104. */
CPU_INLINE float m_exp_parts_float(float x, uint32_t *n)
{
    float shifted = x * 1.44269504f + 12582912.f; /* 1.5 2^23: adding it leaves the nearest integer in the low bits */
    float whole = shifted - 12582912.f, r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    float p = 1.38145650e-3f;
    p = p * r + 8.36872682e-3f;
    p = p * r + 4.16683890e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 0.5f;
    *n = ir_bits_f32(shifted);
    return p * (r * r) + r + 1;
}

CPU_INLINE float m_exp_float(float x)
{
    float c = 89 < x ? 89 : x; /* written like this, NaN stays */
    c = x < -104 ? 0 : c;      /* not -104: products that underflow cost a hundred times as much */
    uint32_t n, half;
    float p = m_exp_parts_float(c, &n);
    n -= 0x4b400000u;
    half = (uint32_t)((int32_t)n >> 1) << 23;
    float y = p * ir_f32_bits(half + 0x3f800000u) * ir_f32_bits((n << 23) - half + 0x3f800000u);
    return x < -104 ? 0 : y;
}

CPU_INLINE float m_decay_float(float x)
{
    uint32_t n;
    float p = m_exp_parts_float(-132.4f > x ? -132.4f : x, &n); /* n = -191 makes the first factor 0 */
    return p * ir_f32_bits((n << 23) + 0x5f800000u) * 0x1p-64f;
}

CPU_INLINE float m_log_float(float x)
{
    bool tiny = x < 0x1p-126f;
    float y = tiny ? x * 0x1p25f : x;
    uint32_t u = ir_bits_f32(y) - 0x3f3504f3u; /* 1 + f in [sqrt(1/2), sqrt(2)) */
    float e = (float)((int32_t)u >> 23) - (tiny ? 25 : 0);
    float f = ir_f32_bits((u & 0x7fffffu) + 0x3f3504f3u) - 1;
    float s = f / (2 + f), z = s * s, half = 0.5f * f * f;
    float r = 2.f / 11;
    r = r * z + 2.f / 9;
    r = r * z + 2.f / 7;
    r = r * z + 2.f / 5;
    r = r * z + 2.f / 3;
    r *= z;
    float v = e * 0.693359375f - ((half - (s * (half + r) - e * 2.12194440e-4f)) - f);
    v = x == INFINITY ? x : v;
    v = x == 0 ? -INFINITY : v;
    return x >= 0 ? v : NAN;
}

CPU_INLINE float m_log1p_float(float x) /* 0 <= x <= 1 */
{
    float u = 1 + x;
    return m_log_float(u) + (x - (u - 1)) / u;
}

CPU_INLINE float m_tanh_float(float x)
{
    float a = fabsf(x), z = x * x;
    float over = z * (45045 + z * (2772 + z * 27)), under = 135135 + z * (62370 + z * (3150 + z * 28));
    float power = m_decay_float(10 < a ? 20 : 2 * a) + 1;
    float gap = (a < 1 ? over : 2) / (a < 1 ? under : power); /* one division serves both */
    return a < 1 ? x - x * gap : copysignf(1 - gap, x);
}

CPU_INLINE float m_erf_float(float x)
{
    float a = fabsf(x), z = a < 1 ? x * x : 1;
    float p = 1.3122533e-8f * 1.1283792f; /* (-1)^k 2/sqrt(pi) / (k! (2k + 1)), k = 10 .. 1 */
    p = p * z - 1.4503852e-7f * 1.1283792f;
    p = p * z + 1.4589169e-6f * 1.1283792f;
    p = p * z - 1.3227513e-5f * 1.1283792f;
    p = p * z + 1.0683761e-4f * 1.1283792f;
    p = p * z - 7.5757576e-4f * 1.1283792f;
    p = p * z + 4.6296296e-3f * 1.1283792f;
    p = p * z - 2.3809524e-2f * 1.1283792f;
    p = p * z + 0.1f * 1.1283792f;
    p = p * z - 0.33333333f * 1.1283792f;
    float small = x + x * (p * z + 0.12837917f);
    float t = a < 4 ? a - 1 : 3, q = 1.61406161e-6f; /* polynomial in a - 1, exact where erfc is largest */
    q = q * t - 3.26781297e-5f;
    q = q * t + 3.18828906e-4f;
    q = q * t - 2.05062074e-3f;
    q = q * t + 1.00724613e-2f;
    q = q * t - 4.15714927e-2f;
    q = q * t - 0.843106415f;
    q = q * t - 2.63896745f;
    q = q * t - 1.84960551f;
    float large = copysignf(1 - m_decay_float(q), x);
    return a < 1 ? small : x != x ? x : large;
}

/* What gelu needs: ratios of polynomials in |x|, and in x^2. With erf and exp, each would cost three times as much. */
CPU_INLINE float m_gelu_gate_float(float x)
{
    float t = fabsf(x);
    float p = -0.000124271784f;
    p = p * t + 0.00322332559f;
    p = p * t - 0.0336534604f;
    p = p * t + 0.17689243f;
    p = p * t - 0.468363971f;
    p = p * t + 0.5f;
    float q = 5.71657765e-05f;
    q = q * t - 0.000210973638f;
    q = q * t + 0.000992998946f;
    q = q * t - 0.000363042462f;
    q = q * t + 0.00408150209f;
    q = q * t + 0.0193201173f;
    q = q * t - 0.00625142036f;
    q = q * t + 0.242981657f;
    q = q * t - 0.138842121f;
    q = q * t + 1;
    float below = t > 5.5f ? 0 : p / q; /* the gate of -t */
    return x < 0 ? below : 1 - below;
}

CPU_INLINE float m_gelu_tanh_gate_float(float x)
{
    float t = fabsf(x);
    float p = -0.000167630773f;
    p = p * t + 0.00411452772f;
    p = p * t - 0.0405662134f;
    p = p * t + 0.200883999f;
    p = p * t - 0.499810487f;
    p = p * t + 0.5f;
    float q = 4.65354096e-05f;
    q = q * t - 0.000223339914f;
    q = q * t + 0.000947238586f;
    q = q * t - 0.000926211767f;
    q = q * t + 0.0025610968f;
    q = q * t + 0.01656463f;
    q = q * t - 0.0224597175f;
    q = q * t + 0.240778163f;
    q = q * t - 0.201734796f;
    q = q * t + 1;
    float below = t > 5.2f ? 0 : p / q; /* the gate of -t */
    return x < 0 ? below : 1 - below;
}

CPU_INLINE float m_gelu_slope_float(float x)
{
    float z = x * x;
    float p = 1.85864248e-08f;
    p = p * z + 1.11341285e-06f;
    p = p * z + 3.41707637e-05f;
    p = p * z + 0.000273484038f;
    p = p * z + 0.0137077067f;
    p = p * z - 0.0184564553f;
    p = p * z + 0.797884524f;
    float q = 1.36794577e-09f;
    q = q * z + 3.92432014e-07f;
    q = q * z + 1.12522712e-05f;
    q = q * z + 0.00026326938f;
    q = q * z + 0.00417442759f;
    q = q * z + 0.0455818847f;
    q = q * z + 0.310201138f;
    q = q * z + 1;
    float odd = x * (p / q);
    return 0.5f + (fabsf(x) > 6.2f ? copysignf(0.5f, x) : odd);
}

CPU_INLINE float m_gelu_tanh_slope_float(float x)
{
    float z = x * x;
    float p = 1.5378502e-08f;
    p = p * z + 3.75417457e-08f;
    p = p * z + 3.15175675e-05f;
    p = p * z - 0.000298911589f;
    p = p * z + 0.0136312144f;
    p = p * z - 0.050065048f;
    p = p * z + 0.797884524f;
    float q = 1.5565812e-09f;
    q = q * z + 1.65121946e-07f;
    q = q * z + 4.33922605e-06f;
    q = q * z + 0.000129998734f;
    q = q * z + 0.00177764776f;
    q = q * z + 0.0315643884f;
    q = q * z + 0.272235751f;
    q = q * z + 1;
    float odd = x * (p / q);
    return 0.5f + (fabsf(x) > 5.7f ? copysignf(0.5f, x) : odd);
}

CPU_INLINE float m_sqrt_float(float x) { return sqrtf(x); }
CPU_INLINE float m_floor_float(float x) { return floorf(x); }
CPU_INLINE float m_ceil_float(float x) { return ceilf(x); }
CPU_INLINE float m_round_float(float x) { return rintf(x); }
CPU_INLINE float m_abs_float(float x) { return fabsf(x); }
CPU_INLINE float m_pow_float(float x, float y) { return powf(x, y); }
CPU_INLINE float m_fmod_float(float x, float y) { return fmodf(x, y); }

#endif
