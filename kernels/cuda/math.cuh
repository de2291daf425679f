/* math.cuh - the elementary functions of formulas.def on the device, in f32, accurate to a few ulp.
 *
 * They are CUDA's own except sine, cosine and tangent, because CUDA's keep a table in local memory for large operands.
 * Up to 2^25, the operand is reduced in f64 by pi/2 in three parts. Above, m 2^e (m has 24 bits) is multiplied by the
 * 96 relevant bits of 2/pi, modulo 4 (M. Payne, R. Hanek, "Radian reduction for trigonometric functions", 1983). */
#pragma once

#include "ir/ops/real.h"
#include "kernels/cuda/device.cuh"

K_FORMULA float m_abs_float(float x) { return fabsf(x); }
K_FORMULA float m_floor_float(float x) { return floorf(x); }
K_FORMULA float m_ceil_float(float x) { return ceilf(x); }
K_FORMULA float m_round_float(float x) { return rintf(x); }
K_FORMULA float m_sqrt_float(float x) { return sqrtf(x); }
K_FORMULA float m_exp_float(float x) { return expf(x); }
K_FORMULA float m_decay_float(float x) { return expf(x); }
K_FORMULA float m_log_float(float x) { return logf(x); }
K_FORMULA float m_log1p_float(float x) { return log1pf(x); }
K_FORMULA float m_tanh_float(float x) { return tanhf(x); }
K_FORMULA float m_erf_float(float x) { return erff(x); }
K_FORMULA float m_asin_float(float x) { return asinf(x); }
K_FORMULA float m_acos_float(float x) { return acosf(x); }
K_FORMULA float m_atan_float(float x) { return atanf(x); }
K_FORMULA float m_sinh_float(float x) { return sinhf(x); }
K_FORMULA float m_cosh_float(float x) { return coshf(x); }
K_FORMULA float m_asinh_float(float x) { return asinhf(x); }
K_FORMULA float m_acosh_float(float x) { return acoshf(x); }
K_FORMULA float m_atanh_float(float x) { return atanhf(x); }
K_FORMULA float m_fmod_float(float x, float y) { return fmodf(x, y); }
K_FORMULA float m_pow_float(float x, float y) { return y == 2.0f ? x * x : powf(x, y); }

#define REAL float
#include "ir/ops/gelu_body.h"
#undef REAL

/* x as r in [-pi/4, pi/4] plus a number of quarter turns, modulo 4. */
struct quarter {
    double r;
    int turns;
};

static __device__ __forceinline__ quarter quarter_small(float x) /* |x| < 2^25 */
{
    const double turns = rint((double)x * 0.63661977236758134308);
    double r = (double)x - turns * 0x1.921fb54p+0; /* 27 bits: the product is exact */
    r -= turns * 0x1.10b461p-30;                    /* the next 27 */
    r -= turns * 0x1.a62633145c06ep-58;
    return {r, (int)turns};
}

static __device__ quarter quarter_large(float x) /* |x| >= 2^25, finite */
{
    const unsigned bits = __float_as_uint(x);
    const unsigned long long m = (bits & 0x7fffffu) | 0x800000u;
    const int skipped = (int)(bits >> 23 & 0xff) - 152; /* leading bits of 2/pi that only contribute whole turns */
    const int word = skipped / 32, shift = skipped % 32;
    const unsigned two_over_pi[7] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                     0xdb629599, 0x3c439041, 0xfe5163ab};
    unsigned long long window[4]; /* words word .. word + 3, without non-constant indices */
#pragma unroll
    for (int i = 0; i < 4; i++)
        window[i] = word == 0   ? two_over_pi[i]
                    : word == 1 ? two_over_pi[i + 1]
                    : word == 2 ? two_over_pi[i + 2]
                                : two_over_pi[i + 3];
    unsigned long long part[3];
#pragma unroll
    for (int i = 0; i < 3; i++) part[i] = (window[i] << 32 | window[i + 1]) >> (32 - shift) & 0xffffffffu;
    const unsigned long long low = m * part[2], middle = m * part[1] + (low >> 32), high = m * part[0] + (middle >> 32);
    const unsigned long long product =
        high << 32 | (middle & 0xffffffffu); /* quarter turns, with two bits before the point */
    const long long fraction = (long long)(product << 2);
    const int turns = (int)(product >> 62) + (fraction < 0);
    const double r = (double)fraction * (1.5707963267948966 * 0x1p-64);
    return x < 0 ? quarter{-r, -turns} : quarter{r, turns};
}

struct circle {
    double sine, cosine;
    int turns; /* quarters to turn them by */
};

static __device__ __forceinline__ circle circle_of(float x) /* finite */
{
    const quarter q = fabsf(x) < 33554432.0f ? quarter_small(x) : quarter_large(x);
    const double z = q.r * q.r;
    const double sine =
        q.r * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 - z / 39916800)))));
    const double cosine =
        1 +
        z * (-1.0 / 2 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z / 479001600)))));
    return {sine, cosine, q.turns};
}

/* sin(x + turns pi/2) */
static __device__ __forceinline__ float sine_of(float x, int turns)
{
    if (x - x != 0) return x - x; /* infinity becomes NaN */
    const circle c = circle_of(x);
    turns += c.turns;
    const double v = turns & 1 ? c.cosine : c.sine;
    return (float)(turns & 2 ? -v : v);
}

static __device__ __forceinline__ float tangent_of(float x)
{
    if (x - x != 0) return x - x;
    const circle c = circle_of(x);
    return (float)(c.turns & 1 ? -c.cosine / c.sine : c.sine / c.cosine);
}

K_FORMULA float m_sin_float(float x) { return x == 0 ? x : sine_of(x, 0); }
K_FORMULA float m_cos_float(float x) { return sine_of(x, 1); }
K_FORMULA float m_tan_float(float x) { return x == 0 ? x : tangent_of(x); }
