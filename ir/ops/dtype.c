/* dtype.c - the reference conversions between element types.
 *
 * Every conversion goes through a carrier that represents its source exactly: double for floats, int64_t for integers
 * and bool (u64 wraps, and is read as double when it is converted to a float type). Each element is therefore rounded
 * once, when it is stored. A store to a float type narrower than f32 first rounds the carrier to f32 with
 * round-to-odd; because f32 has at least two bits more than the final type, the second rounding is still correct (Boldo
 * and Melquiond, "When double rounding is odd", 2005). Elements are converted in blocks to keep the switch on the type
 * out of the inner loops. */
#include "ir/ops/dtype.h"

#include <assert.h>
#include <math.h>

enum { BLOCK = 256 };
enum { KIND_NONE, KIND_F, KIND_I, KIND_B };

static const struct {
    const char *name;
    unsigned char size, kind;
} dtypes[IR_DTYPE_COUNT] = {[IR_NO_DTYPE] = {"same", 0, KIND_NONE},
#define ROW(name, bytes, kind) [IR_##name] = {#name, bytes, KIND_##kind},
                            IR_DTYPE_MAP(ROW)
#undef ROW
};

const char *ir_dtype_name(ir_dtype t) { return dtypes[t].name; }

ir_dtype ir_dtype_parse(const char *name)
{
    for (ir_dtype t = IR_NO_DTYPE + 1; t < IR_DTYPE_COUNT; t++)
        if (strcmp(dtypes[t].name, name) == 0) return t;
    return IR_NO_DTYPE;
}

size_t ir_dtype_size(ir_dtype t) { return dtypes[t].size; }

bool ir_dtype_is_float(ir_dtype t) { return dtypes[t].kind == KIND_F; }

bool ir_dtype_is_low(ir_dtype t) { return t == IR_f16 || t == IR_bf16; }

bool ir_dtype_is_int(ir_dtype t) { return dtypes[t].kind == KIND_I; }

double ir_dtype_largest(ir_dtype t)
{
    static const double largest[IR_DTYPE_COUNT] = {
        [IR_f16] = 65504, [IR_bf16] = 0x1.fep127, [IR_f32] = 0x1.fffffep127, [IR_f64] = 0x1.fffffffffffffp1023};
    return largest[t];
}

/* Rounds v to f32; if inexact, chooses the neighbour whose last bit is odd. */
static float f64_to_f32_odd(double v)
{
    float f = (float)v;
    uint32_t u = ir_bits_f32(f);
    if (isnan(v) || (double)f == v || (u & 1)) return f;
    return ir_f32_bits(fabs(v) > fabs((double)f) ? u + 1 : u - 1);
}

/* Rounds v to an integer that f64 represents exactly and that rounds like v to any type of at most 40 bits: beyond
 * 2^53, the last 10 bits are ORed into the bit above them. */
static double i64_to_f64_odd(int64_t v)
{
    const int64_t exact = INT64_C(1) << 53;
    if ((v > exact || v < -exact) && (v & 0x3ff)) v = (v & ~INT64_C(0x3ff)) | 0x400;
    return (double)v;
}

/* Likewise; the last 11 bits are ORed into the bit above them. */
static double u64_to_f64_odd(uint64_t v)
{
    if (v > UINT64_C(1) << 53 && (v & 0x7ff)) v = (v & ~UINT64_C(0x7ff)) | 0x800;
    return (double)v;
}

static int64_t f64_to_int(double v, int64_t low, int64_t high)
{
    if (isnan(v)) return 0;
    if (v <= (double)low) return low;
    if (v >= (double)high) return high; /* (double)INT64_MAX is 2^63, which saturates too */
    return (int64_t)v;
}

static uint64_t f64_to_u64(double v)
{
    if (isnan(v) || v <= 0) return 0;
    return v >= 0x1p64 ? UINT64_MAX : (uint64_t)v;
}

/* Store a carrier v as each type. Stores of integers to narrower integers wrap by the cast. */
static float put_f32(double v) { return (float)v; }
static uint16_t put_f16(double v) { return ir_f32_to_f16(f64_to_f32_odd(v)); }
static uint16_t put_bf16(double v) { return ir_f32_to_bf16(f64_to_f32_odd(v)); }

#define EACH(type, array, expr) \
    do { \
        type *each = (array); \
        for (size_t i = 0; i < n; i++) expr; \
    } while (0); \
    break

static void load_f64(double *out, ir_dtype t, const void *p, size_t n)
{
    switch (t) {
    case IR_f64: EACH(const double, p, out[i] = each[i]);
    case IR_f32: EACH(const float, p, out[i] = (double)each[i]);
    case IR_f16: EACH(const uint16_t, p, out[i] = (double)ir_f16_to_f32(each[i]));
    case IR_bf16: EACH(const uint16_t, p, out[i] = (double)ir_bf16_to_f32(each[i]));
    case IR_i64: EACH(const int64_t, p, out[i] = (double)each[i]);
    case IR_i32: EACH(const int32_t, p, out[i] = each[i]);
    case IR_i16: EACH(const int16_t, p, out[i] = each[i]);
    case IR_i8: EACH(const int8_t, p, out[i] = each[i]);
    case IR_u64: EACH(const uint64_t, p, out[i] = (double)each[i]);
    case IR_u32: EACH(const uint32_t, p, out[i] = each[i]);
    case IR_u16: EACH(const uint16_t, p, out[i] = each[i]);
    case IR_u8: EACH(const uint8_t, p, out[i] = each[i]);
    case IR_bool: EACH(const uint8_t, p, out[i] = each[i] != 0);
    default: assert(!"no such dtype"); /* every value has a dtype: infer rejects IR_NO_DTYPE */
    }
}

static void load_i64(int64_t *out, ir_dtype t, const void *p, size_t n)
{
    switch (t) {
    case IR_i64: EACH(const int64_t, p, out[i] = each[i]);
    case IR_i32: EACH(const int32_t, p, out[i] = each[i]);
    case IR_i16: EACH(const int16_t, p, out[i] = each[i]);
    case IR_i8: EACH(const int8_t, p, out[i] = each[i]);
    case IR_u64: EACH(const uint64_t, p, out[i] = (int64_t)each[i]);
    case IR_u32: EACH(const uint32_t, p, out[i] = each[i]);
    case IR_u16: EACH(const uint16_t, p, out[i] = each[i]);
    case IR_u8: EACH(const uint8_t, p, out[i] = each[i]);
    case IR_bool: EACH(const uint8_t, p, out[i] = each[i] != 0);
    default: assert(!"not an integer type"); /* callers check ir_dtype_is_int */
    }
}

static void store_f64(ir_dtype t, void *p, const double *v, size_t n)
{
    switch (t) {
    case IR_f64: EACH(double, p, each[i] = v[i]);
    case IR_f32: EACH(float, p, each[i] = put_f32(v[i]));
    case IR_f16: EACH(uint16_t, p, each[i] = put_f16(v[i]));
    case IR_bf16: EACH(uint16_t, p, each[i] = put_bf16(v[i]));
    case IR_i64: EACH(int64_t, p, each[i] = f64_to_int(v[i], INT64_MIN, INT64_MAX));
    case IR_i32: EACH(int32_t, p, each[i] = (int32_t)f64_to_int(v[i], INT32_MIN, INT32_MAX));
    case IR_i16: EACH(int16_t, p, each[i] = (int16_t)f64_to_int(v[i], INT16_MIN, INT16_MAX));
    case IR_i8: EACH(int8_t, p, each[i] = (int8_t)f64_to_int(v[i], INT8_MIN, INT8_MAX));
    case IR_u64: EACH(uint64_t, p, each[i] = f64_to_u64(v[i]));
    case IR_u32: EACH(uint32_t, p, each[i] = (uint32_t)f64_to_int(v[i], 0, UINT32_MAX));
    case IR_u16: EACH(uint16_t, p, each[i] = (uint16_t)f64_to_int(v[i], 0, UINT16_MAX));
    case IR_u8: EACH(uint8_t, p, each[i] = (uint8_t)f64_to_int(v[i], 0, UINT8_MAX));
    case IR_bool: EACH(uint8_t, p, each[i] = v[i] != 0);
    default: assert(!"no such dtype"); /* every value has a dtype: infer rejects IR_NO_DTYPE */
    }
}

static void store_i64(ir_dtype t, void *p, const int64_t *v, size_t n)
{
    switch (t) {
    case IR_f64: EACH(double, p, each[i] = (double)v[i]);
    case IR_f32: EACH(float, p, each[i] = put_f32(i64_to_f64_odd(v[i])));
    case IR_f16: EACH(uint16_t, p, each[i] = put_f16(i64_to_f64_odd(v[i])));
    case IR_bf16: EACH(uint16_t, p, each[i] = put_bf16(i64_to_f64_odd(v[i])));
    case IR_i64: EACH(int64_t, p, each[i] = v[i]);
    case IR_i32: EACH(int32_t, p, each[i] = (int32_t)v[i]);
    case IR_i16: EACH(int16_t, p, each[i] = (int16_t)v[i]);
    case IR_i8: EACH(int8_t, p, each[i] = (int8_t)v[i]);
    case IR_u64: EACH(uint64_t, p, each[i] = (uint64_t)v[i]);
    case IR_u32: EACH(uint32_t, p, each[i] = (uint32_t)v[i]);
    case IR_u16: EACH(uint16_t, p, each[i] = (uint16_t)v[i]);
    case IR_u8: EACH(uint8_t, p, each[i] = (uint8_t)v[i]);
    case IR_bool: EACH(uint8_t, p, each[i] = v[i] != 0);
    default: assert(!"no such dtype"); /* every value has a dtype: infer rejects IR_NO_DTYPE */
    }
}

/* Loads u64 for a store to a float type. */
static void load_u64(double *out, ir_dtype to, const void *p, size_t n)
{
    const uint64_t *each = p;
    for (size_t i = 0; i < n; i++) out[i] = to == IR_f64 ? (double)each[i] : u64_to_f64_odd(each[i]);
}

void ir_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, size_t n)
{
    if (to == from && to != IR_bool) {
        if (n) memcpy(dst, src, n * dtypes[to].size);
        return;
    }
    if (from == IR_f32 && ir_dtype_is_low(to)) {
        ir_narrow(to, dst, src, n);
        return;
    }
    union {
        double f[BLOCK];
        int64_t i[BLOCK];
    } carrier;
    unsigned char *out = dst;
    const unsigned char *in = src;
    for (size_t done = 0; done < n; done += BLOCK) {
        size_t count = n - done < BLOCK ? n - done : BLOCK;
        const unsigned char *at = in + done * dtypes[from].size;
        unsigned char *target = out + done * dtypes[to].size;
        if (ir_dtype_is_float(from)) {
            load_f64(carrier.f, from, at, count);
            store_f64(to, target, carrier.f, count);
        } else if (from == IR_u64 && ir_dtype_is_float(to)) {
            load_u64(carrier.f, to, at, count);
            store_f64(to, target, carrier.f, count);
        } else {
            load_i64(carrier.i, from, at, count);
            store_i64(to, target, carrier.i, count);
        }
    }
}

double ir_load_f64(ir_dtype t, const void *p)
{
    double v = 0;
    load_f64(&v, t, p, 1);
    return v;
}

int64_t ir_load_i64(ir_dtype t, const void *p)
{
    int64_t v = 0;
    if (ir_dtype_is_float(t)) v = f64_to_int(ir_load_f64(t, p), INT64_MIN, INT64_MAX);
    else load_i64(&v, t, p, 1);
    return v;
}

void ir_store_f64(ir_dtype t, void *p, double v) { store_f64(t, p, &v, 1); }

void ir_store_i64(ir_dtype t, void *p, int64_t v) { store_i64(t, p, &v, 1); }
