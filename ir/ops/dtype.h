/* dtype.h - element types and exact conversions between them.
 *
 * Rules, the same for constants, kernels and checkpoints: float -> narrower float rounds once to nearest even, keeps
 * subnormals and NaN, and overflows to infinity; float -> integer truncates and saturates (NaN -> 0); integer ->
 * narrower integer wraps; anything -> bool is (x != 0). */
#ifndef AMPC_DTYPE_H
#define AMPC_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Leaf loops are compiled for several instruction sets, one of which is chosen at load time. All clones compute the
 * same bits: they have no reductions that the compiler may reorder and no contraction. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define IR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define IR_CLONES
#endif

/*        name  bytes kind (F float, I integer, B bool) */
#define IR_DTYPE_MAP(X) \
    X(f64, 8, F) \
    X(f32, 4, F) \
    X(f16, 2, F) \
    X(bf16, 2, F) \
    X(i64, 8, I) \
    X(i32, 4, I) \
    X(i16, 2, I) \
    X(i8, 1, I) \
    X(u8, 1, I) \
    X(bool, 1, B) \
    X(u16, 2, I) \
    X(u32, 4, I) \
    X(u64, 8, I)

typedef enum ir_dtype {
    IR_NO_DTYPE, /* absent; as a DTYPE attribute: the type of the input (SAME) */
#define IR_DTYPE_ENUM(name, bytes, kind) IR_##name,
    IR_DTYPE_MAP(IR_DTYPE_ENUM)
#undef IR_DTYPE_ENUM
        IR_DTYPE_COUNT
} ir_dtype;

const char *ir_dtype_name(ir_dtype t);     /* "f32"; IR_NO_DTYPE: "same" */
ir_dtype ir_dtype_parse(const char *name); /* IR_NO_DTYPE if unknown */
size_t ir_dtype_size(ir_dtype t);          /* bytes of one element */
bool ir_dtype_is_float(ir_dtype t);
bool ir_dtype_is_low(ir_dtype t);    /* f16 or bf16 */
bool ir_dtype_is_int(ir_dtype t);    /* false for bool */
double ir_dtype_largest(ir_dtype t); /* largest finite number of a float type */

/* Converts n elements by the rules above; src and dst must not overlap. Except for f32 to f16 and bf16 this is slow
 * reference code; kernels have fast versions with the same results. */
void ir_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, size_t n);
/* Fast conversion of n elements to, and from, f16 or bf16 (narrow.c). */
void ir_narrow(ir_dtype to, uint16_t *dst, const float *src, size_t n);
void ir_widen(ir_dtype from, float *dst, const uint16_t *src, size_t n);
double ir_load_f64(ir_dtype t, const void *p); /* one element as double; i64 and u64 may round */
/* One element as integer; floats are truncated, u64 wraps (2^64 - 1 is -1). */
int64_t ir_load_i64(ir_dtype t, const void *p);
void ir_store_f64(ir_dtype t, void *p, double v);
void ir_store_i64(ir_dtype t, void *p, int64_t v);

/* Scalar conversions are inline because every portable kernel loop uses them. */
static inline float ir_f32_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t ir_bits_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float ir_bf16_to_f32(uint16_t h) { return ir_f32_bits((uint32_t)h << 16); }

static inline uint16_t ir_f32_to_bf16(float f)
{
    uint32_t u = ir_bits_f32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u); /* quiet NaN */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float ir_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u)
        return ir_f32_bits(sign | 0x7f800000u | ((rest & 0x3ffu) << 13) | ((rest & 0x3ffu) ? 0x400000u : 0u));
    if (rest >= 0x0400u) return ir_f32_bits(sign | ((rest << 13) + 0x38000000u));
    return ir_f32_bits(sign | ir_bits_f32((float)rest * 0x1p-24f)); /* subnormal: exact product */
}

static inline uint16_t ir_f32_to_f16(float f)
{
    uint32_t u = ir_bits_f32(f), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((mag >> 13) & 0x1ffu));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (mag < 0x38800000u) {                                   /* below 2^-14: round at 2^-24 */
        float scaled = ir_f32_bits(mag) + 0.5f;                /* the ulp of [0.5, 1) is 2^-24 */
        return (uint16_t)(sign | (ir_bits_f32(scaled) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13));
}

#endif
