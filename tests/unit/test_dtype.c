/* test_dtype.c - conversions between element types, compared with an independent reference.
 *
 * The reference is written only from the definition of 16-bit float types: it decodes patterns with ldexp and rounds
 * a double by searching for its neighbours among all patterns, so it shares nothing with the code under test. */
#include "ir/ops/dtype.h"
#include "tests/test.h"

#include <float.h>
#include <limits.h>
#include <math.h>

typedef struct format {
    ir_dtype type;
    int mantissa, bias, patterns; /* bits, bias, positive finite patterns */
} format;

static const format f16 = {IR_f16, 10, 15, 0x7c00}, bf16 = {IR_bf16, 7, 127, 0x7f80};

/* Returns the value of a positive pattern; that of infinity is the next power of two. */
static double decode(const format *t, int pattern)
{
    int exponent = pattern >> t->mantissa, m = pattern & ((1 << t->mantissa) - 1);
    if (!exponent) return ldexp(m, 1 - t->bias - t->mantissa);
    return ldexp(m + (1 << t->mantissa), exponent - t->bias - t->mantissa);
}

/* Returns the nearest pattern, ties to even, by bisection over all patterns. Exact: the midpoint of two neighbours
 * has one bit more than they have. */
static int encode(const format *t, double v)
{
    int sign = signbit(v) ? 0x8000 : 0, low = 0, high = t->patterns;
    v = fabs(v);
    if (v >= decode(t, high)) return sign | high;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (decode(t, middle) <= v) low = middle;
        else high = middle;
    }
    double half = (decode(t, low) + decode(t, high)) / 2;
    if (v > half || (v == half && (low & 1))) return sign | high;
    return sign | low;
}

static uint16_t from_f64(const format *t, double v)
{
    uint16_t got;
    ir_store_f64(t->type, &got, v);
    return got;
}

static uint16_t from_f32(const format *t, float v)
{
    uint16_t got, direct = t == &f16 ? ir_f32_to_f16(v) : ir_f32_to_bf16(v);
    ir_convert(t->type, &got, IR_f32, &v, 1);
    assert_int_equal(got, direct);
    return got;
}

static void check_patterns(const format *t)
{
    for (int p = 0; p < 0x10000; p++) {
        uint16_t pattern = (uint16_t)p;
        int magnitude = p & 0x7fff;
        float narrow = t == &f16 ? ir_f16_to_f32(pattern) : ir_bf16_to_f32(pattern);
        double wide = ir_load_f64(t->type, &pattern);
        if (magnitude > t->patterns) {
            assert_true(isnan(narrow) && isnan(wide));
            uint16_t back = from_f32(t, narrow), quiet = (uint16_t)(p | 1 << (t->mantissa - 1));
            assert_int_equal(back, quiet);
            assert_int_equal(from_f64(t, wide), quiet);
            continue;
        }
        double want = magnitude == t->patterns ? (double)INFINITY : decode(t, magnitude);
        if (p & 0x8000) want = -want;
        assert_true(wide == want && (double)narrow == want);
        assert_int_equal(!signbit(wide), !(p & 0x8000));
        assert_int_equal(!signbit(narrow), !(p & 0x8000));
        assert_int_equal(from_f32(t, narrow), p);
        assert_int_equal(from_f64(t, wide), p);
    }
}

TEST(test_all_patterns_of_f16) { check_patterns(&f16); }

TEST(test_all_patterns_of_bf16) { check_patterns(&bf16); }

/* Tests the midpoint after every pattern, and one ulp of f32 and of f64 on either side of it. */
static void check_ties(const format *t)
{
    for (int p = 0; p < t->patterns; p++) {
        double half = (decode(t, p) + decode(t, p + 1)) / 2;
        int even = p & 1 ? p + 1 : p;
        for (int sign = 0; sign < 2; sign++) {
            double s = sign ? -1 : 1;
            int bit = sign << 15;
            assert_int_equal(from_f64(t, s * half), bit | even);
            assert_int_equal(from_f64(t, s * nextafter(half, 0)), bit | p);
            assert_int_equal(from_f64(t, s * nextafter(half, DBL_MAX)), bit | (p + 1));
            if ((double)(float)half != half) continue; /* half a subnormal bf16 step is still an f32 */
            float single = (float)(s * half);
            assert_int_equal(from_f32(t, single), bit | even);
            assert_int_equal(from_f32(t, nextafterf(single, 0)), bit | p);
            assert_int_equal(from_f32(t, nextafterf(single, sign ? -FLT_MAX : FLT_MAX)), bit | (p + 1));
        }
    }
}

TEST(test_ties_of_f16) { check_ties(&f16); }

TEST(test_ties_of_bf16) { check_ties(&bf16); }

static uint64_t seed = 88172645463325252u;

static uint64_t random_bits(void) /* xorshift64 */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Random doubles over the whole range of each type and beyond both ends of it. */
TEST(test_random_values_round_once)
{
    for (int i = 0; i < 300000; i++) {
        uint64_t r = random_bits();
        const format *t = i & 1 ? &f16 : &bf16;
        int range = t->bias + t->mantissa + 6;
        double v = ldexp((double)(r >> 11), (int)(r % (unsigned)(2 * range)) - range - 53);
        if (r & 1024) v = -v;
        assert_int_equal(from_f64(t, v), encode(t, v));
        assert_int_equal(from_f32(t, (float)v), encode(t, (double)(float)v));
    }
}

/* Values that rounding via f32 would round differently. */
TEST(test_f64_does_not_pass_through_f32)
{
    static const struct {
        double v;
        int f16, bf16;
    } rows[] = {
        {1 + 0x1p-11 + 0x1p-40, 0x3c01, 0x3f80},
        {1 + 3 * 0x1p-11 - 0x1p-40, 0x3c01, 0x3f80},
        {1 + 0x1p-8 + 0x1p-40, 0x3c04, 0x3f81},
        {1 + 3 * 0x1p-8 - 0x1p-40, 0x3c0c, 0x3f81},
        {-(1 + 0x1p-8 + 0x1p-40), 0xbc04, 0xbf81},
        {0x1p-25 + 0x1p-70, 0x0001, 0x3300}, /* just above half of the smallest f16 */
        {0x1p-25, 0x0000, 0x3300},
        {0x1p-134 + 0x1p-180, 0x0000, 0x0001}, /* just above half of the smallest bf16 */
        {0x1p-134, 0x0000, 0x0000},
        {0x1p-1074, 0x0000, 0x0000},
        {-0x1p-1074, 0x8000, 0x8000},
        {65520, 0x7c00, 0x4780},
        {65520 - 0x1p-37, 0x7bff, 0x4780},
        {0x1.ffp127 - 0x1p75, 0x7c00, 0x7f7f}, /* below the tie between the largest bf16 and 2^128 */
        {0x1.ffp127, 0x7c00, 0x7f80},
        {DBL_MAX, 0x7c00, 0x7f80},
        {-DBL_MAX, 0xfc00, 0xff80},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(from_f64(&f16, rows[i].v), rows[i].f16);
        assert_int_equal(from_f64(&bf16, rows[i].v), rows[i].bf16);
    }
}

TEST(test_nan_stays_nan)
{
    static const uint32_t nans[] = {0x7f800001u, 0x7fc00000u, 0xff800001u, 0x7fffffffu, 0xffbfffffu};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float f = ir_f32_bits(nans[i]);
        assert_true(isnan(ir_f16_to_f32(ir_f32_to_f16(f))));
        assert_true(isnan(ir_bf16_to_f32(ir_f32_to_bf16(f))));
    }
    assert_true(isnan(ir_f16_to_f32(from_f64(&f16, (double)NAN))));
    assert_true(isnan(ir_bf16_to_f32(from_f64(&bf16, (double)NAN))));
}

/* Converts f64 to `to` and returns the result as an integer. */
static int64_t to_int(ir_dtype to, double v)
{
    int64_t store = 0;
    ir_convert(to, &store, IR_f64, &v, 1);
    return ir_load_i64(to, &store);
}

TEST(test_float_to_integer_truncates_and_saturates)
{
    static const struct {
        double v;
        int64_t i64, i32, i16, i8, u8, boolean, u16, u32, u64;
    } rows[] = {
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
        {-0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
        {0.999, 0, 0, 0, 0, 0, 1, 0, 0, 0},
        {-0.999, 0, 0, 0, 0, 0, 1, 0, 0, 0},
        {127.9, 127, 127, 127, 127, 127, 1, 127, 127, 127},
        {-128.9, -128, -128, -128, -128, 0, 1, 0, 0, 0},
        {300.5, 300, 300, 300, 127, 255, 1, 300, 300, 300},
        {-40000, -40000, -40000, INT16_MIN, -128, 0, 1, 0, 0, 0},
        {1e10, 10000000000, INT32_MAX, INT16_MAX, 127, 255, 1, UINT16_MAX, UINT32_MAX, 10000000000},
        {9.3e18, INT64_MAX, INT32_MAX, INT16_MAX, 127, 255, 1, UINT16_MAX, UINT32_MAX, INT64_MIN + 76627963145224192},
        {-9.3e18, INT64_MIN, INT32_MIN, INT16_MIN, -128, 0, 1, 0, 0, 0},
        {(double)INFINITY, INT64_MAX, INT32_MAX, INT16_MAX, 127, 255, 1, UINT16_MAX, UINT32_MAX, -1},
        {-(double)INFINITY, INT64_MIN, INT32_MIN, INT16_MIN, -128, 0, 1, 0, 0, 0},
        {(double)NAN, 0, 0, 0, 0, 0, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(to_int(IR_i64, rows[i].v), rows[i].i64);
        assert_int_equal(to_int(IR_i32, rows[i].v), rows[i].i32);
        assert_int_equal(to_int(IR_i16, rows[i].v), rows[i].i16);
        assert_int_equal(to_int(IR_i8, rows[i].v), rows[i].i8);
        assert_int_equal(to_int(IR_u8, rows[i].v), rows[i].u8);
        assert_int_equal(to_int(IR_bool, rows[i].v), rows[i].boolean);
        assert_int_equal(to_int(IR_u16, rows[i].v), rows[i].u16);
        assert_int_equal(to_int(IR_u32, rows[i].v), rows[i].u32);
        assert_int_equal(to_int(IR_u64, rows[i].v), rows[i].u64);
        assert_int_equal(ir_load_i64(IR_f64, &rows[i].v), rows[i].i64);
    }
}

TEST(test_integer_to_integer_wraps)
{
    static const struct {
        int64_t v, i32, i16, i8, u8, boolean;
    } rows[] = {
        {0, 0, 0, 0, 0, 0},
        {-1, -1, -1, -1, 255, 1},
        {256, 256, 256, 0, 0, 1},
        {200, 200, 200, -56, 200, 1},
        {0x123456789, 0x23456789, 0x6789, (int8_t)0x89, 0x89, 1},
        {INT64_MIN, 0, 0, 0, 0, 1},
        {INT64_MAX, -1, -1, -1, 255, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ir_dtype types[] = {IR_i32, IR_i16, IR_i8, IR_u8, IR_bool};
        const int64_t want[] = {rows[i].i32, rows[i].i16, rows[i].i8, rows[i].u8, rows[i].boolean};
        for (size_t k = 0; k < 5; k++) {
            int64_t converted = 0, stored = 0;
            ir_convert(types[k], &converted, IR_i64, &rows[i].v, 1);
            ir_store_i64(types[k], &stored, rows[i].v);
            assert_int_equal(ir_load_i64(types[k], &converted), want[k]);
            assert_int_equal(ir_load_i64(types[k], &stored), want[k]);
        }
    }
}

/* Reference for large integers: long double represents every int64_t exactly. */
TEST(test_integer_to_float_rounds_once)
{
    static const int64_t rows[] = {
        0,
        1,
        -1,
        2049,
        2051,
        65519,
        65520,
        257,
        259,
        16777217,
        16777219,
        -16777217,
        INT32_MIN,
        (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1, /* just above a tie of f32 */
        (INT64_C(1) << 60) + (INT64_C(1) << 36) - 1,
        (INT64_C(1) << 60) + (INT64_C(1) << 52) + 1,
        -(INT64_C(1) << 60) - (INT64_C(1) << 52) - 1,
        (INT64_C(3) << 60) - 1,
        INT64_MAX,
        INT64_MIN,
        INT64_MIN + 1,
        (INT64_C(1) << 53) + 1,
        -(INT64_C(1) << 53) - 1,
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows + 20000; i++) {
        int64_t v = i < sizeof rows / sizeof *rows ? rows[i] : (int64_t)random_bits() >> (random_bits() % 63);
        float single;
        double wide;
        uint16_t half, brain;
        ir_convert(IR_f32, &single, IR_i64, &v, 1);
        ir_convert(IR_f64, &wide, IR_i64, &v, 1);
        ir_store_i64(IR_f16, &half, v);
        ir_store_i64(IR_bf16, &brain, v);
        assert_true(single == (float)v);
        assert_true(wide == (double)v);
        double near = v > 70000 ? 70000 : v < -70000 ? -70000 : (double)v;
        assert_int_equal(half, encode(&f16, near));
        int low = brain & 0x7fff;
        long double error = fabsl((long double)v) - (long double)decode(&bf16, low);
        long double up = (long double)decode(&bf16, low + 1) - (long double)decode(&bf16, low);
        long double down = low ? (long double)decode(&bf16, low) - (long double)decode(&bf16, low - 1) : 0;
        assert_true(error <= up / 2 && -error <= down / 2);
        if (error == up / 2 || (low && -error == down / 2)) assert_int_equal(low & 1, 0);
        assert_int_equal(brain >> 15, v < 0);
    }
}

/* A long double represents every uint64_t exactly. */
TEST(test_unsigned_to_float_rounds_once)
{
    static const uint64_t rows[] = {0,
                                    UINT64_MAX,
                                    UINT64_C(1) << 63,
                                    (UINT64_C(1) << 63) + (UINT64_C(1) << 39) + 1,
                                    (UINT64_C(1) << 63) + 1024,
                                    (UINT64_C(1) << 63) + 1025,
                                    (UINT64_C(1) << 63) + (UINT64_C(1) << 55),
                                    (UINT64_C(1) << 53) + 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows + 20000; i++) {
        uint64_t v = i < sizeof rows / sizeof *rows ? rows[i] : (uint64_t)random_bits() >> (random_bits() % 63);
        float single;
        double wide;
        uint16_t brain;
        ir_convert(IR_f32, &single, IR_u64, &v, 1);
        ir_convert(IR_f64, &wide, IR_u64, &v, 1);
        ir_convert(IR_bf16, &brain, IR_u64, &v, 1);
        assert_true(single == (float)v);
        assert_true(wide == (double)v && ir_load_f64(IR_u64, &v) == wide);
        long double error = (long double)v - (long double)decode(&bf16, brain);
        long double up = (long double)decode(&bf16, brain + 1) - (long double)decode(&bf16, brain);
        long double down = brain ? (long double)decode(&bf16, brain) - (long double)decode(&bf16, brain - 1) : 0;
        assert_true(error <= up / 2 && -error <= down / 2);
        if (error == up / 2 || (brain && -error == down / 2)) assert_int_equal(brain & 1, 0);
    }
}

TEST(test_bool_is_normalised)
{
    const uint8_t raw[4] = {0, 1, 2, 255};
    uint8_t out[4];
    float f[4];
    ir_convert(IR_bool, out, IR_bool, raw, 4);
    ir_convert(IR_f32, f, IR_bool, raw, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out[i], i > 0);
        assert_true(f[i] == (i > 0 ? 1.0f : 0.0f));
    }
}

/* Array conversion equals elementwise conversion for every pair of types, with more elements than one block has. */
TEST(test_arrays_equal_elements)
{
    enum { N = 600 };
    unsigned char src[N * 8], whole[N * 8], one[8];
    for (ir_dtype from = IR_f64; from < IR_DTYPE_COUNT; from++)
        for (ir_dtype to = IR_f64; to < IR_DTYPE_COUNT; to++) {
            size_t in = ir_dtype_size(from), out = ir_dtype_size(to);
            for (int i = 0; i < N; i++) ir_store_f64(from, src + (size_t)i * in, (i - 300) * 0.37);
            memset(whole, 0xab, sizeof whole);
            ir_convert(to, whole, from, src, N);
            for (int i = 0; i < N; i++) {
                ir_convert(to, one, from, src + (size_t)i * in, 1);
                assert_memory_equal(one, whole + (size_t)i * out, out);
            }
            if (out < 8) assert_int_equal(whole[N * out], 0xab);
            ir_convert(to, NULL, from, NULL, 0);
        }
}

/* Arrays of f32 to 16 bits: vector code and array tails equal elementwise conversion for every exponent, both signs,
 * ties, infinities and NaNs. */
TEST(test_narrowing_arrays_equal_elements)
{
    enum { N = 16 * 64 + 13 };
    static const uint32_t lows[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0x18000};
    enum { LOWS = sizeof lows / sizeof *lows };
    float src[N];
    uint16_t half[N], brain[N];
    for (uint32_t exponent = 0; exponent < 256; exponent++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            for (uint32_t i = 0; i < N; i++) {
                uint32_t mantissa = (i / LOWS << 16 | lows[i % LOWS]) & 0x7fffff;
                src[i] = ir_f32_bits(sign << 31 | exponent << 23 | mantissa);
            }
            ir_convert(IR_f16, half, IR_f32, src, N);
            ir_convert(IR_bf16, brain, IR_f32, src, N);
            for (int i = 0; i < N; i++) {
                assert_int_equal(half[i], ir_f32_to_f16(src[i]));
                assert_int_equal(brain[i], ir_f32_to_bf16(src[i]));
            }
        }
}

TEST(test_names)
{
    for (ir_dtype t = IR_f64; t < IR_DTYPE_COUNT; t++) {
        assert_int_equal(ir_dtype_parse(ir_dtype_name(t)), t);
        assert_int_equal(ir_dtype_is_float(t) + ir_dtype_is_int(t) + (t == IR_bool), 1);
    }
    assert_string_equal(ir_dtype_name(IR_NO_DTYPE), "same");
    assert_string_equal(ir_dtype_name(IR_bool), "bool");
    assert_int_equal(ir_dtype_parse("same"), IR_NO_DTYPE);
    assert_int_equal(ir_dtype_parse("f8"), IR_NO_DTYPE);
    assert_int_equal(ir_dtype_size(IR_bf16), 2);
    assert_int_equal(ir_dtype_size(IR_NO_DTYPE), 0);
    assert_true(ir_dtype_is_low(IR_f16) && ir_dtype_is_low(IR_bf16) && !ir_dtype_is_low(IR_f32));
    assert_false(ir_dtype_is_float(IR_NO_DTYPE) || ir_dtype_is_int(IR_NO_DTYPE));
}
