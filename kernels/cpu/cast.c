/* cast.c - fast conversions between element types, and the tile loads and stores built on them.
 *
 * A table has a loop for each pair of types that occurs in training; f32 to 16 bits is ir_narrow, and the remaining
 * pairs use ir_convert. f16 is widened by F16C or AVX-512 instructions if the processor has them. All results equal
 * ir_convert's bit for bit. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef void convert_fn(void *dst, const void *src, int64_t n);

/* Pairs whose conversion is one C expression in `v`, the source element. */
/*    from   to     type of from  type of to  expression */
#define CONVERT_MAP(X) \
    X(f32, f64, float, double, (double)v) \
    X(f64, f32, double, float, (float)v) \
    X(bf16, f32, uint16_t, float, ir_bf16_to_f32(v)) \
    X(i64, f32, int64_t, float, (float)v) \
    X(i32, f32, int32_t, float, (float)v) \
    X(u8, f32, uint8_t, float, (float)v) \
    X(i8, f32, int8_t, float, (float)v) \
    X(u16, f32, uint16_t, float, (float)v) \
    X(bool, f32, uint8_t, float, v ? 1.f : 0.f) \
    X(f32, bool, float, uint8_t, v != 0) \
    X(i64, f64, int64_t, double, (double)v) \
    X(i32, i64, int32_t, int64_t, v) \
    X(i64, i32, int64_t, int32_t, (int32_t)v) \
    X(i16, i64, int16_t, int64_t, v) \
    X(i64, i16, int64_t, int16_t, (int16_t)v) \
    X(u8, i64, uint8_t, int64_t, v) \
    X(i64, u8, int64_t, uint8_t, (uint8_t)v) \
    X(i8, i64, int8_t, int64_t, v) \
    X(i64, i8, int64_t, int8_t, (int8_t)v) \
    X(u16, i64, uint16_t, int64_t, v) \
    X(i64, u16, int64_t, uint16_t, (uint16_t)v) \
    X(u32, i64, uint32_t, int64_t, v) \
    X(i64, u32, int64_t, uint32_t, (uint32_t)v) \
    X(u64, i64, uint64_t, int64_t, (int64_t)v) \
    X(i64, u64, int64_t, uint64_t, (uint64_t)v) \
    X(bool, i64, uint8_t, int64_t, v != 0) \
    X(i64, bool, int64_t, uint8_t, v != 0)

#define LOOP(from, to, source, target, expression) \
    CPU_CLONES static void convert_##from##_##to(void *dst, const void *src, int64_t n) \
    { \
        const source *restrict s = src; \
        target *restrict d = dst; \
        for (int64_t i = 0; i < n; i++) { \
            source v = s[i]; \
            d[i] = expression; \
        } \
    }
CONVERT_MAP(LOOP)
#undef LOOP

static void f16_f32_portable(float *d, const uint16_t *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) d[i] = ir_f16_to_f32(s[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static int64_t f16_f32_avx512(float *d, const uint16_t *s, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(d + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(s + i))));
    return i;
}

__attribute__((target("avx,f16c"))) static int64_t f16_f32_f16c(float *d, const uint16_t *s, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
    return i;
}

#define TRY_VECTOR(name) \
    cpu_isa() >= CPU_ISA_avx512 ? name##_avx512(d, s, n) : cpu_isa() >= CPU_ISA_avx2 ? name##_f16c(d, s, n) : 0
#else
#define TRY_VECTOR(name) 0
#endif

static void convert_f16_f32(void *dst, const void *src, int64_t n)
{
    float *d = dst;
    const uint16_t *s = src;
    int64_t done = TRY_VECTOR(f16_f32);
    f16_f32_portable(d + done, s + done, n - done);
}

static void convert_f32_f16(void *dst, const void *src, int64_t n) { ir_narrow(IR_f16, dst, src, (size_t)n); }

static void convert_f32_bf16(void *dst, const void *src, int64_t n) { ir_narrow(IR_bf16, dst, src, (size_t)n); }

/* Between the 16-bit types via f32, which represents both exactly. */
#define CONVERT_16(from, to) \
    static void convert_##from##_##to(void *dst, const void *src, int64_t n) \
    { \
        float scratch[CPU_TILE]; \
        for (int64_t i = 0; i < n; i += CPU_TILE) { \
            int64_t m = k_min(CPU_TILE, n - i); \
            convert_##from##_f32(scratch, (const uint16_t *)src + i, m); \
            convert_f32_##to((uint16_t *)dst + i, scratch, m); \
        } \
    }
CONVERT_16(f16, bf16)
CONVERT_16(bf16, f16)

static convert_fn *const fast[IR_DTYPE_COUNT][IR_DTYPE_COUNT] = {
#define ROW(from, to, source, target, expression) [IR_##from][IR_##to] = convert_##from##_##to,
    CONVERT_MAP(ROW)
#undef ROW
        [IR_f16][IR_f32] = convert_f16_f32,
    [IR_f32][IR_f16] = convert_f32_f16,
    [IR_f32][IR_bf16] = convert_f32_bf16,
    [IR_f16][IR_bf16] = convert_f16_bf16,
    [IR_bf16][IR_f16] = convert_bf16_f16,
};

void cpu_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, int64_t n)
{
    if (to == from && (to != IR_bool || dst == src)) {
        if (dst != src && n > 0) memcpy(dst, src, (size_t)n * ir_dtype_size(to));
    } else if (fast[from][to]) {
        fast[from][to](dst, src, n);
    } else {
        ir_convert(to, dst, from, src, (size_t)n);
    }
}

/* Same results as ir_f32_to_bf16, but keeps the 32-bit format. */
CPU_CLONES static void round_bf16(float *x, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float v = x[i];
        const uint32_t u = ir_bits_f32(v), rounded = u + 0x7fffu + ((u >> 16) & 1u), quiet = u | 0x400000u;
        x[i] = ir_f32_bits((v != v ? quiet : rounded) & 0xffff0000u);
    }
}

void cpu_as_stored(ir_dtype t, ir_dtype carrier, void *values, int64_t n)
{
    if (t == carrier) return;
    if (t == IR_bf16 && carrier == IR_f32) {
        round_bf16(values, n);
        return;
    }
    int64_t size = (int64_t)ir_dtype_size(carrier);
    for (int64_t i = 0; i < n; i += CPU_TILE) {
        cpu_tile stored;
        int64_t m = k_min(CPU_TILE, n - i);
        void *at = (char *)values + i * size;
        cpu_convert(t, &stored, carrier, at, m);
        cpu_convert(carrier, at, t, &stored, m);
    }
}

const void *cpu_tile_load(const k_view *v, int64_t first, int64_t n, ir_dtype carrier, void *scratch)
{
    const void *at = cpu_at(v, first);
    if (v->dtype == carrier) return at;
    cpu_convert(carrier, scratch, v->dtype, at, n);
    return scratch;
}

void *cpu_tile_target(const k_view *v, int64_t first, ir_dtype carrier, void *scratch)
{
    return v->dtype == carrier ? cpu_at(v, first) : scratch;
}

void cpu_tile_store(const k_view *v, int64_t first, int64_t n, ir_dtype carrier, const void *values)
{
    cpu_convert(v->dtype, cpu_at(v, first), carrier, values, n);
}

double cpu_number(const k_view *v, int64_t i) { return ir_load_f64(v->dtype, cpu_at(v, i)); }

void cpu_store_number(const k_view *v, int64_t i, double value)
{
    if (cpu_is_used(v)) cpu_tile_store(v, i, 1, IR_f64, &value);
}

double cpu_scalar(const k_view *v, double absent) { return k_present(v) ? cpu_number(v, 0) : absent; }

double cpu_inverse(const k_view *scale)
{
    double s = cpu_scalar(scale, 1);
    return scale->dtype == IR_f64 ? 1 / s : (double)(1 / (float)s);
}

ampc_status cpu_fail(const k_context *ctx, ampc_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (ctx && ctx->error && ctx->error_size) vsnprintf(ctx->error, ctx->error_size, format, list);
    va_end(list);
    return status;
}

/* ---- cast ---- */

static ampc_status cast_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    enum { GRAIN = 4096 };
    int64_t n = k_count(y), grains = cpu_ceil_div(n, GRAIN);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t g = 0; g < grains; g++) {
        int64_t first = g * GRAIN, m = k_min(GRAIN, n - first);
        cpu_convert(y->dtype, cpu_at(y, first), x->dtype, cpu_at(x, first), m);
    }
    return AMPC_OK;
}

const k_kernel cpu_cast = {.run = cast_run};
