/* cudasim_math.h - functions that CUDA has and the C++ library lacks; part of cudasim.h.
 *
 * The fast variants (__expf, ...) are exact here, because tests compare with tolerances. They are macros, because glibc declares
 * some of these names itself. */
#ifndef CUDASIM_MATH_H
#define CUDASIM_MATH_H

#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __fdividef(x, y) ((float)(x) / (float)(y))
#define fdividef(x, y) ((float)(x) / (float)(y))
#define __fadd_rn(x, y) ((float)(x) + (float)(y))
#define __fsub_rn(x, y) ((float)(x) - (float)(y))
#define __fmul_rn(x, y) ((float)(x) * (float)(y))
#define __fdiv_rn(x, y) ((float)(x) / (float)(y))
#define __fmaf_rn(x, y, z) fmaf(x, y, z)
#define __fsqrt_rn(x) sqrtf(x)
#define __frcp_rn(x) (1.0f / (float)(x))
#define __frsqrt_rn(x) rsqrtf(x)
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; /* NaN becomes 0 */ }
static inline float normcdff(float x) { return (float)(0.5 * erfc((double)x * -0.70710678118654752440)); }

/* Loads and stores with cache hints. */
#define CUDASIM_LOAD(name) \
    template <typename T> static inline T name(const T *p) { return *p; }
CUDASIM_LOAD(__ldg)
CUDASIM_LOAD(__ldca)
CUDASIM_LOAD(__ldcg)
CUDASIM_LOAD(__ldcs)
CUDASIM_LOAD(__ldlu)
CUDASIM_LOAD(__ldcv)
#define CUDASIM_STORE(name) \
    template <typename T> static inline void name(T *p, T v) { *p = v; }
CUDASIM_STORE(__stwb)
CUDASIM_STORE(__stcg)
CUDASIM_STORE(__stcs)
CUDASIM_STORE(__stwt)

/* Bit manipulation. */
template <typename To, typename From> static inline To cudasim_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &v, sizeof to);
    return to;
}
#define __float_as_int(v) cudasim_bits<int>((float)(v))
#define __float_as_uint(v) cudasim_bits<unsigned>((float)(v))
#define __int_as_float(v) cudasim_bits<float>((int)(v))
#define __uint_as_float(v) cudasim_bits<float>((unsigned)(v))
#define __double_as_longlong(v) cudasim_bits<long long>((double)(v))
#define __longlong_as_double(v) cudasim_bits<double>((long long)(v))
static inline int __clz(unsigned v) { return v ? __builtin_clz(v) : 32; }
static inline int __clzll(unsigned long long v) { return v ? __builtin_clzll(v) : 64; }
static inline int __ffs(unsigned v) { return __builtin_ffs((int)v); }
static inline int __ffsll(unsigned long long v) { return __builtin_ffsll((long long)v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(__extension__(unsigned __int128) a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

/* Conversions with a rounding mode. As on the device, out-of-range values saturate and NaN becomes 0. */
template <typename I> static inline I cudasim_to_integer(double v)
{
    constexpr I lowest = std::is_signed_v<I> ? (I)((I)1 << (sizeof(I) * 8 - 1)) : (I)0;
    constexpr I highest = (I)~lowest;
    if (v != v) return 0;
    if (v <= (double)lowest) return lowest;
    return v >= (double)highest ? highest : (I)v;
}
#define CUDASIM_TO_INTEGER(name, type) \
    static inline type name##_rn(float v) { return cudasim_to_integer<type>(nearbyint((double)v)); } \
    static inline type name##_rz(float v) { return cudasim_to_integer<type>(trunc((double)v)); } \
    static inline type name##_rd(float v) { return cudasim_to_integer<type>(floor((double)v)); } \
    static inline type name##_ru(float v) { return cudasim_to_integer<type>(ceil((double)v)); }
CUDASIM_TO_INTEGER(__float2int, int)
CUDASIM_TO_INTEGER(__float2uint, unsigned)
CUDASIM_TO_INTEGER(__float2ll, long long)
CUDASIM_TO_INTEGER(__float2ull, unsigned long long)
static inline float __int2float_rn(int v) { return (float)v; }
static inline float __uint2float_rn(unsigned v) { return (float)v; }
static inline float __ll2float_rn(long long v) { return (float)v; }
static inline float __ull2float_rn(unsigned long long v) { return (float)v; }
static inline float __double2float_rn(double v) { return (float)v; }

/* CUDA's min and max are global functions. If one operand is NaN, the result is the other, as in fminf. */
template <typename A, typename B>
static inline std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> min(A a,
                                                                                                                 B b)
{
    using C = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<C>) return (C)a != (C)a || (C)b < (C)a ? (C)b : (C)a;
    else return (C)b < (C)a ? (C)b : (C)a;
}
template <typename A, typename B>
static inline std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> max(A a,
                                                                                                                 B b)
{
    using C = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<C>) return (C)a != (C)a || (C)b > (C)a ? (C)b : (C)a;
    else return (C)b > (C)a ? (C)b : (C)a;
}

#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif

#endif
