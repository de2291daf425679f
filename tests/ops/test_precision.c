/* test_precision.c - properties that the table cannot express: all conversions bit for bit, elementary
 * functions in units in the last place, sums over a million terms, and the text of refusals. */
#include "tests/ops/ops.h"

#include "ir/base/philox.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/tiles.h"
#include "tests/test.h"
#include "tests/tier.h"

#include <float.h>

/* ---- conversions ---- */

static void expect_same(ir_dtype from, ir_dtype to, const void *src, int64_t n)
{
    size_t bytes = (size_t)n * ir_dtype_size(to);
    char *fast = malloc(bytes), *slow = malloc(bytes);
    assert_true(fast && slow);
    cpu_convert(to, fast, from, src, n);
    ir_convert(to, slow, from, src, (size_t)n);
    if (memcmp(fast, slow, bytes) != 0) fail_msg("%s to %s differs", ir_dtype_name(from), ir_dtype_name(to));
    free(fast);
    free(slow);
}

TEST(all_16_bit_patterns)
{
    static uint16_t patterns[65536];
    for (int i = 0; i < 65536; i++) patterns[i] = (uint16_t)i;
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) {
        expect_same(IR_f16, to, patterns, 65536);
        expect_same(IR_i16, to, patterns, 65536);
    }
    for (int i = 0; i < 65536; i++) /* a signalling NaN may stay signalling, so only quiet NaNs have a unique result */
        if ((i & 0x7fff) > 0x7f80) patterns[i] |= 0x40;
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_bf16, to, patterns, 65536);
}

/* Random bits, and the neighbours of every 16-bit value and of the midpoint to the next one. */
TEST(f32_patterns)
{
    enum { RANDOM = 1 << 20, NEAR = 65536 * 6 };
    uint32_t *bits = malloc((RANDOM + 2 * NEAR) * sizeof *bits), n = 0;
    assert_non_null(bits);
    for (uint32_t i = 0; i < RANDOM; i++) bits[n++] = philox_word(1, 2, i);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t half = ir_bits_f32(ir_f16_to_f32((uint16_t)i));
        for (uint32_t k = 0; k < 3; k++) {
            bits[n++] = half + k - 1;
            bits[n++] = half + 0xfff + k; /* half an ulp of a normal f16 */
            bits[n++] = (i << 16) + k - 1;
            bits[n++] = (i << 16) + 0x7fff + k;
        }
    }
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_f32, to, bits, n);
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_i32, to, bits, n);
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_i64, to, bits, n / 2);
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_f64, to, bits, n / 2);
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_u8, to, bits, n);
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++) expect_same(IR_i8, to, bits, n);
    free(bits);
}

/* Values of the carrier type that are stored in any type and loaded again. */
TEST(stored_in_place)
{
    enum { N = 1 << 17 };
    uint64_t *bits = malloc(3 * N * sizeof *bits), *stored = bits + N, *expected = bits + 2 * N;
    assert_non_null(bits);
    for (ir_dtype t = IR_NO_DTYPE + 1; t < IR_DTYPE_COUNT; t++) {
        ir_dtype carrier = cpu_carrier(t);
        size_t bytes = N * ir_dtype_size(carrier);
        for (uint64_t i = 0; i < N; i++) /* includes f32 values halfway between two f16 or bf16 values */
            bits[i] = philox_bits(3, 4, i) &
                      ((const uint64_t[]){UINT64_MAX, 0xfffff000fffff000, 0xffff8000ffff8000})[i % 3];
        ir_convert(t, stored, carrier, bits, N);
        ir_convert(carrier, expected, t, stored, N);
        cpu_as_stored(t, carrier, bits, N);
        if (t != carrier && memcmp(bits, expected, bytes) != 0) fail_msg("%s differs", ir_dtype_name(t));
    }
    free(bits);
}

TEST(short_and_unaligned)
{
    static float x[64];
    static uint16_t y[65];
    for (int i = 0; i < 64; i++) x[i] = (float)i * 0.37f - 9;
    for (int n = 0; n < 40; n++) {
        memset(y, 0xaa, sizeof y);
        cpu_convert(IR_f16, y + 1, IR_f32, x + n % 5, n);
        assert_int_equal(y[0], 0xaaaa);
        assert_int_equal(y[n + 1], 0xaaaa);
        for (int i = 0; i < n; i++) assert_int_equal(y[1 + i], ir_f32_to_f16(x[i + n % 5]));
    }
}

/* ---- elementary functions ---- */

static double log1p_unit(double x) { return log1p(x); }

/* Returns the largest error over [low, high] in units in the last place of the true value (at least `least`). */
static double worst(float (*f)(float), double (*exact)(double), double low, double high, double least)
{
    double most = 0;
    for (int i = 0; i <= 2000000; i++) {
        float x = (float)(low + (high - low) * i / 2000000);
        double expected = exact((double)x), size = fmax(fabs(expected), least);
        double ulp = ldexp(1, ilogb(size) - 23);
        most = fmax(most, fabs((double)f(x) - expected) / ulp);
    }
    return most;
}

#define EXPECT(name, exact, low, high, least, limit) \
    do { \
        double w = worst(name, exact, low, high, least); \
        if (!(w <= (limit))) fail_msg("%s: %.3f ulp on [%g, %g]", #name, w, (double)(low), (double)(high)); \
    } while (0)

static float f_exp(float x) { return m_exp_float(x); }
static float f_decay(float x) { return m_decay_float(x); }
static float f_log(float x) { return m_log_float(x); }
static float f_log1p(float x) { return m_log1p_float(x); }
static float f_tanh(float x) { return m_tanh_float(x); }
static float f_erf(float x) { return m_erf_float(x); }

TEST(elementary_functions)
{
    EXPECT(f_exp, exp, -103, 88.7, 0x1p-126, 1.5);
    EXPECT(f_exp, exp, -1, 1, 0x1p-126, 1.5);
    EXPECT(f_decay, exp, -103, 44, 0x1p-126, 1.5);
    EXPECT(f_decay, exp, -1, 1, 0x1p-126, 1.5);
    EXPECT(f_log, log, 1e-30, 1e-3, 0x1p-126, 1.5);
    EXPECT(f_log, log, 0.1, 3, 0x1p-126, 1.5);
    EXPECT(f_log, log, 1, 1e30, 0x1p-126, 1.5);
    EXPECT(f_log1p, log1p_unit, 0, 1, 0x1p-126, 2);
    EXPECT(f_tanh, tanh, -12, 12, 0x1p-126, 2.5);
    EXPECT(f_tanh, tanh, -0.7, 0.7, 0x1p-126, 2.5);
    EXPECT(f_erf, erf, -5, 5, 0x1p-126, 2);
    EXPECT(f_erf, erf, -1.1, 1.1, 0x1p-126, 2);
}

/* The gates and slopes of gelu: absolute errors, below -3 (where gates are multiplied by larger numbers) and elsewhere. */
TEST(gelu_functions)
{
    static const struct {
        const char *name;
        float (*f)(float);
        double (*exact)(double);
        double limit, limit_below;
    } functions[] = {
        {"gate", m_gelu_gate_float, m_gelu_gate_double, 1.0e-7, 4.0e-8},
        {"tanh gate", m_gelu_tanh_gate_float, m_gelu_tanh_gate_double, 1.0e-7, 4.0e-8},
        {"slope", m_gelu_slope_float, m_gelu_slope_double, 2.8e-7, 2.8e-7},
        {"tanh slope", m_gelu_tanh_slope_float, m_gelu_tanh_slope_double, 2.8e-7, 2.8e-7},
    };
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        float (*const f)(float) = functions[k].f;
        for (int i = -1000000; i <= 1000000; i++) {
            const float x = (float)i * 1e-5f, got = f(x);
            const double error = fabs((double)got - functions[k].exact((double)x));
            if (!(error <= (x < -3 ? functions[k].limit_below : functions[k].limit)))
                fail_msg("%s(%a) is off by %g", functions[k].name, (double)x, error);
        }
        assert_true(f(0) == 0.5f && f(-0.f) == 0.5f && isnan(f(NAN)));
        assert_true(f(-6.5f) == 0 && f(6.5f) == 1 && f(-FLT_MAX) == 0 && f(FLT_MAX) == 1);
        assert_true(f(-INFINITY) == 0 && f(INFINITY) == 1);
    }
}

#define WIDE_FUNCTIONS(X) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh)
#define DEFINE(name) \
    static float f_##name(float x) { return m_##name##_float(x); }
#define ROW(name) {#name, f_##name, name},
WIDE_FUNCTIONS(DEFINE)
static const struct {
    const char *name;
    float (*f)(float);
    double (*exact)(double);
} wide[] = {WIDE_FUNCTIONS(ROW)};

/* Not a NaN, not infinite and with the sign of zero of the true value, and within `limit` units in its last place. */
static bool is_within(float got, double exact, double limit)
{
    if (exact != exact) return got != got;
    if (got == 0 || isinf(got)) return got == (float)exact && !signbit(got) == !signbit(exact);
    return fabs((double)got - exact) <= limit * ldexp(1, ilogb(fmax(fabs(exact), 0x1p-126)) - 23);
}

/* Evenly spaced bit patterns, beginning with the special ones. */
TEST(wide_functions)
{
    const uint32_t step = tier_is_reduced() ? 40009 : 29;
    static const float special[] = {0,   -0.f,    1,        -1,        INFINITY, -INFINITY,
                                    NAN, FLT_MAX, -FLT_MAX, 0x1p-149f, 0.5f,     -0.5f};
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++)
        for (uint64_t i = 0; i < UINT32_MAX / step; i++) {
            const size_t n = sizeof special / sizeof *special;
            const float x = i < n ? special[i] : ir_f32_bits((uint32_t)i * step), got = wide[k].f(x);
            if (!is_within(got, wide[k].exact((double)x), 0.51))
                fail_msg("%s(%a) is %a instead of %a", wide[k].name, (double)x, (double)got, wide[k].exact((double)x));
        }
}

/* The loops of pow for one exponent. */
TEST(powers)
{
    static const double exponents[] = {2, 1, 3, -1, 0.5, -0.5, 4, -2, 1.5, 0, INFINITY};
    static float x[CPU_TILE], y[CPU_TILE], exponent[CPU_TILE];
    const cpu_numbers none = {0};
    for (uint32_t i = 0; i < 400 * sizeof exponents / sizeof *exponents; i++) {
        const double e = exponents[i / 400];
        for (uint32_t j = 0; j < CPU_TILE; j++) {
            x[j] = ir_f32_bits(philox_word(5, 6, i * CPU_TILE + j));
            x[j] = x[j] == x[j] ? x[j] : NAN; /* not a signalling one */
            exponent[j] = (float)e;
        }
        memcpy(x, (const float[]){0, -0.f, 1, -1, INFINITY, -INFINITY, NAN, FLT_MAX, 0x1p-149f}, 9 * sizeof *x);
        cpu_power_tile(e, IR_f32)(x, exponent, y, CPU_TILE, &none);
        for (int j = 0; j < CPU_TILE; j++)
            if (!is_within(y[j], pow((double)x[j], e), 1.5))
                fail_msg("%a to %g is %a instead of %a", (double)x[j], e, (double)y[j], pow((double)x[j], e));
    }
}

TEST(special_values)
{
    assert_true(isnan(m_exp_float(NAN)) && m_exp_float(INFINITY) == INFINITY && m_exp_float(-INFINITY) == 0);
    assert_true(m_exp_float(88.8f) == INFINITY && m_exp_float(-103.9f) == 0x1p-149f && m_exp_float(0) == 1);
    assert_true(isnan(m_decay_float(NAN)) && m_decay_float(-INFINITY) == 0 && m_decay_float(-133) == 0);
    assert_true(m_decay_float(-103.9f) == 0x1p-149f && m_decay_float(-104) == 0 && m_decay_float(0) == 1);
    assert_true(isnan(m_log_float(NAN)) && isnan(m_log_float(-1)) && m_log_float(INFINITY) == INFINITY);
    assert_true(m_log_float(0) == -INFINITY && m_log_float(-0.f) == -INFINITY && m_log_float(1) == 0);
    assert_true(fabs((double)m_log_float(0x1p-149f) - log(0x1p-149)) < 1e-5);
    assert_true(isnan(m_tanh_float(NAN)) && m_tanh_float(INFINITY) == 1 && m_tanh_float(-INFINITY) == -1);
    assert_true(isnan(m_erf_float(NAN)) && m_erf_float(INFINITY) == 1 && m_erf_float(-INFINITY) == -1);
    assert_true(m_tanh_float(0x1p-149f) == 0x1p-149f && m_erf_float(0) == 0);
}

/* The bits of min, max and clip for all combinations of special operands: NaN if an operand is one; of equal operands (the
 * zeros) the second one, or the bound. */
static double expected_bound(double a, double lo, double hi)
{
    const double above = a != a || lo != lo ? NAN : a > lo ? a : lo;
    return above != above || hi != hi ? NAN : above < hi ? above : hi;
}

static void expect_bits(ir_formula formula, ir_dtype t, double a, double b, cpu_numbers p, double expected)
{
    const ir_formula_info *info = ir_formula_get(formula);
    double as[67], bs[67], y[67];
    for (int i = 0; i < 67; i++) { /* all positions of a vector, and the rest after them */
        ir_store_f64(t, (char *)as + (size_t)i * ir_dtype_size(t), a);
        ir_store_f64(t, (char *)bs + (size_t)i * ir_dtype_size(t), b);
    }
    cpu_formula_tile(formula, t)(as, bs, y, 67, &p);
    for (int i = 0; i < 67; i++) {
        const double got = ir_load_f64(t, (char *)y + (size_t)i * ir_dtype_size(t));
        if (expected != expected ? got == got : !(got == expected && signbit(got) == signbit(expected)))
            fail_msg("%s %s of %g and %g in [%g,%g], element %d: %g instead of %g", info->name, ir_dtype_name(t), a, b,
                     p.lo_double, p.hi_double, i, got, expected);
    }
}

TEST(bounds_of_special_values)
{
    static const double x[] = {0,        -0.0,    1,        -1,       0x1p-149,  -0x1p-149,
                               0x1p-130, 0x1p127, -0x1p127, INFINITY, -INFINITY, NAN};
    enum { N = sizeof x / sizeof *x };
    static const ir_dtype types[] = {IR_f32, IR_f64};
    for (int i = 0; i < N * N * N * 2; i++) {
        const ir_dtype t = types[i / (N * N * N)];
        const double a = x[i % N], lo = x[i / N % N], hi = x[i / N / N % N];
        cpu_numbers p = {(float)lo, (float)hi, lo, hi, 0, 0, 0, 0};
        expect_bits(IR_FORMULA_clip, t, a, 0, p, expected_bound(a, lo, hi));
        expect_bits(IR_FORMULA_max, t, a, lo, p, expected_bound(a, lo, INFINITY));
        expect_bits(IR_FORMULA_min, t, a, hi, p, hi != hi || a != a ? NAN : a < hi ? a : hi);
    }
}

/* ---- long sums ---- */

static void expect_scalar(const ops_case *c, int result, int64_t at, double expected, double tolerance)
{
    const k_view *v = &c->out[result];
    double got = ir_load_f64(v->dtype, (char *)v->data + (size_t)at * ir_dtype_size(v->dtype));
    if (!(fabs(got - expected) <= tolerance * fabs(expected)))
        fail_msg("%s: %.9g instead of %.9g", ir_op_get(c->op)->name, got, expected);
}

TEST(sum_of_a_million)
{
    int64_t flat[] = {1 << 20}, tall[] = {1 << 20, 1}, one[] = {1, 1}, axes[] = {0};
    for (int kind = 0; kind < 2; kind++)
        for (int k = 0; k < 2; k++) {
            ops_case c = case_of(IR_OP_reduce_sum);
            double *x = case_in(&c, kind ? IR_f16 : IR_f32, k ? 2 : 1, k ? tall : flat, 0, 1);
            double sum = 0;
            for (int64_t i = 0; i < flat[0]; i++) {
                x[i] = kind ? 0.0999755859375 : (double)(float)(0.1 + 1e-3 * x[i]);
                sum += x[i];
            }
            case_list(&c, IR_ATTR(reduce_sum, axes), axes, 1);
            case_out(&c, IR_f32, k ? 2 : 1, one);
            assert_int_equal(case_run(&c), AMPC_OK);
            expect_scalar(&c, 0, 0, sum, 2e-7);
            case_end(&c);
        }
}

/* Mean 1000, deviation 1: E[x^2] - E[x]^2 in f32 would be only rounding noise. */
TEST(batch_norm_of_a_million)
{
    int64_t dims[] = {64, 1, 128, 128}, channel[] = {1};
    ops_case c = case_of(IR_OP_batch_norm);
    double *x = case_in(&c, IR_f32, 4, dims, 998.2679491924311, 1001.7320508075689), mean = 0, variance = 0;
    int64_t n = k_count(&c.in[0]);
    for (int64_t i = 0; i < n; i++) mean += (x[i] = (double)(float)x[i]) / (double)n;
    for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    case_in(&c, IR_f32, 1, channel, 1, 1);
    case_in(&c, IR_f32, 1, channel, 0, 0);
    case_in(&c, IR_f32, 1, channel, 0, 0);
    case_in(&c, IR_f32, 1, channel, 1, 1);
    c.attr[IR_ATTR(batch_norm, training)].i = 1;
    c.attr[IR_ATTR(batch_norm, eps)].f = 0;
    c.attr[IR_ATTR(batch_norm, momentum)].f = 0;
    case_out(&c, IR_f32, 4, dims);
    for (int i = 0; i < 4; i++) case_out(&c, IR_f32, 1, channel);
    assert_int_equal(case_run(&c), AMPC_OK);
    expect_scalar(&c, 1, 0, mean, 1e-7);
    expect_scalar(&c, 2, 0, variance, 1e-6);
    expect_scalar(&c, 4, 0, 1 / sqrt(variance), 1e-6);
    case_end(&c);
}

/* ---- refusals and edges ---- */

TEST(indices_out_of_range)
{
    int64_t dims[] = {5, 2}, two[] = {2}, y[] = {2, 2};
    ops_case c = case_of(IR_OP_gather);
    case_in(&c, IR_f32, 2, dims, 0, 1);
    case_in(&c, IR_i64, 1, two, 0, 0)[1] = -6;
    case_out(&c, IR_f32, 2, y);
    assert_int_equal(case_run(&c), AMPC_REJECTED);
    assert_string_equal(c.error, "index -6 at position 1 is outside of [-5,5)");
    case_end(&c);
}

TEST(labels_out_of_range)
{
    static const ir_op ops[] = {IR_OP_softmax_cross_entropy, IR_OP_nll_loss};
    int64_t dims[] = {4, 10}, four[] = {4};
    for (int i = 0; i < 2; i++) {
        ops_case c = case_of(ops[i]);
        case_in(&c, IR_f32, 2, dims, 0, 1);
        case_in(&c, IR_i64, 1, four, 0, 9)[2] = 10;
        case_absent(&c);
        case_out(&c, IR_f32, 0, NULL);
        assert_int_equal(case_run(&c), AMPC_REJECTED);
        assert_string_equal(c.error, "label 10 at position 2 is outside of [0,10)");
        case_end(&c);
    }
}

TEST(mean_of_nothing_is_nan)
{
    int64_t dims[] = {3, 4}, three[] = {3};
    ops_case c = case_of(IR_OP_softmax_cross_entropy);
    case_in(&c, IR_f32, 2, dims, 0, 1);
    case_in(&c, IR_i64, 1, three, -1, -1);
    case_absent(&c);
    c.attr[IR_ATTR(softmax_cross_entropy, ignore_index)].i = -1;
    case_out(&c, IR_f32, 0, NULL);
    assert_int_equal(case_run(&c), AMPC_OK);
    assert_true(isnan(*(float *)c.out[0].data));
    case_end(&c);
}
