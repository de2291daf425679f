/* narrow.c - f32 to f16 and bf16 and back at memory speed, with the same bits as ir_f32_to_f16 and so on.
 *
 * f16 uses the F16C and AVX-512 instructions if the processor has them. bf16 uses integer arithmetic that compilers
 * vectorise, because the AVX512_BF16 instructions flush subnormals. */
#include "ir/ops/dtype.h"

#include <assert.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* Without optimisation the intrinsic is a compiler macro that converts -1 to a mask. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
__attribute__((target("avx512f"))) static size_t narrow_avx512(uint16_t *d, const float *s, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(d + i), _mm512_cvtps_ph(_mm512_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

/* Compilers make twice as many instructions of narrow_bf16, because AVX-512F has no arithmetic on 16 bits. */
__attribute__((target("avx512f"))) static size_t narrow_bf16_avx512(uint16_t *d, const float *s, size_t n)
{
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff), quiet = _mm512_set1_epi32(0x400000);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 x = _mm512_loadu_ps(s + i);
        const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
        const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, half), odd);
        const __m512i kept = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, quiet);
        _mm256_storeu_si256((__m256i *)(d + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
    }
    return i;
}
#pragma GCC diagnostic pop

__attribute__((target("avx,f16c"))) static size_t narrow_f16c(uint16_t *d, const float *s, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

__attribute__((target("avx,f16c"))) static size_t widen_f16c(float *d, const uint16_t *s, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
    return i;
}

/* These return the number of elements converted. Every processor with AVX2 has F16C. */
static size_t narrow_vector(uint16_t *d, const float *s, size_t n)
{
    if (__builtin_cpu_supports("avx512f")) return narrow_avx512(d, s, n);
    return __builtin_cpu_supports("avx2") ? narrow_f16c(d, s, n) : 0;
}
static size_t narrow_bf16_vector(uint16_t *d, const float *s, size_t n)
{
    return __builtin_cpu_supports("avx512f") ? narrow_bf16_avx512(d, s, n) : 0;
}
static size_t widen_vector(float *d, const uint16_t *s, size_t n)
{
    return __builtin_cpu_supports("avx2") ? widen_f16c(d, s, n) : 0;
}
#else
static size_t narrow_vector(uint16_t *d, const float *s, size_t n)
{
    (void)d, (void)s, (void)n;
    return 0;
}
static size_t narrow_bf16_vector(uint16_t *d, const float *s, size_t n)
{
    (void)d, (void)s, (void)n;
    return 0;
}
static size_t widen_vector(float *d, const uint16_t *s, size_t n)
{
    (void)d, (void)s, (void)n;
    return 0;
}
#endif

IR_CLONES static void narrow_bf16(uint16_t *restrict d, const float *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++) d[i] = ir_f32_to_bf16(s[i]);
}

void ir_narrow(ir_dtype to, uint16_t *dst, const float *src, size_t n)
{
    assert(ir_dtype_is_low(to)); /* callers check it */
    if (to == IR_bf16) {
        const size_t done = narrow_bf16_vector(dst, src, n);
        narrow_bf16(dst + done, src + done, n - done);
        return;
    }
    for (size_t i = narrow_vector(dst, src, n); i < n; i++) dst[i] = ir_f32_to_f16(src[i]);
}

IR_CLONES static void widen_bf16(float *restrict d, const uint16_t *restrict s, size_t n)
{
    for (size_t i = 0; i < n; i++) d[i] = ir_bf16_to_f32(s[i]);
}

void ir_widen(ir_dtype from, float *dst, const uint16_t *src, size_t n)
{
    assert(ir_dtype_is_low(from)); /* callers check it */
    if (from == IR_bf16) {
        widen_bf16(dst, src, n);
        return;
    }
    for (size_t i = widen_vector(dst, src, n); i < n; i++) dst[i] = ir_f16_to_f32(src[i]);
}
