/* test_calibration.c - statistics of tensors, and the file that holds them. */
#include "runtime/inspect/calibration.h"
#include "tests/unit/scratch.h"

#include <float.h>
#include <math.h>

/* ---- counting ------------------------------------------------------------------------------------ */

static ir_exponents count_f32(const float *x, int64_t n)
{
    ir_exponents e = {.count = 0};
    ir_exponents_add(&e, IR_f32, x, n, 1);
    return e;
}

/* What the definitions say, one element at a time. */
static void assert_counts(const ir_exponents *e, const float *x, int64_t n)
{
    int64_t zero = 0, nan = 0, inf = 0, large = 0, bins[IR_EXPONENTS] = {0};
    double min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        nan += isnan(x[i]) != 0;
        inf += isinf(x[i]) != 0;
        if (!isfinite(x[i])) continue;
        zero += fpclassify(x[i]) == FP_ZERO;
        large += fabsf(x[i]) > 65504;
        min = fmin(min, x[i]);
        max = fmax(max, x[i]);
        if (fpclassify(x[i]) != FP_ZERO) bins[ilogbf(x[i]) - IR_EXPONENT_LEAST]++;
    }
    assert_true(e->count == n && e->zero == zero && e->nan == nan && e->inf == inf && e->large == large);
    if (ir_exponents_finite(e)) assert_true(e->min == min && e->max == max);
    assert_memory_equal(e->bins, bins, sizeof bins);
}

TEST(test_counts_of_f32)
{
    enum { N = 5003 };
    float x[N];
    for (int special = 0; special < 3; special++) {
        for (int i = 0; i < N; i++) x[i] = ldexpf((float)(i % 37 - 18), i * 7 % 90 - 60);
        if (special == 1) x[17] = NAN, x[1800] = INFINITY, x[4000] = -INFINITY;
        if (special == 2) x[3] = 0x1p-140F, x[2500] = -0x1.8p-130F, x[N - 1] = FLT_MAX;
        const ir_exponents e = count_f32(x, N);
        assert_counts(&e, x, N);
    }
    const ir_exponents none = count_f32(x, 0);
    assert_true(none.count == 0 && ir_exponents_largest(&none) == 0);
}

TEST(test_counts_of_parts)
{
    float x[300];
    ir_exponents sum = {.count = 0};
    for (int i = 0; i < 300; i++) x[i] = ldexpf(1.5F, i - 150) * (i & 1 ? -1.0F : 1.0F);
    for (int i = 0; i < 3; i++) {
        const ir_exponents part = count_f32(x + 100 * i, 100);
        ir_exponents_merge(&sum, &part);
    }
    const ir_exponents all = count_f32(x, 300);
    assert_memory_equal(sum.bins, all.bins, sizeof all.bins);
    assert_true(sum.min == all.min && sum.max == all.max && sum.large == all.large);
}

TEST(test_shares)
{
    const float x[] = {0, 1, 65504, 65505, 0x1p-14F, 0x1p-15F, 0x1p-24F, 0x1.8p-25F, 0x1p-26F, 0x1p-130F, 0x1p-134F};
    const ir_exponents e = count_f32(x, sizeof x / sizeof *x);
    const ir_exponent_shares f16 = ir_exponents_in(&e, IR_f16, 0), bf16 = ir_exponents_in(&e, IR_bf16, 0);
    assert_true(fabs(f16.above - 0.1) < 1e-12 && fabs(f16.below_normal - 0.6) < 1e-12);
    assert_true(fabs(f16.below_subnormal - 0.4) < 1e-12 && fabs(f16.flushed - 0.3) < 1e-12);
    assert_true(bf16.above == 0 && fabs(bf16.below_normal - 0.2) < 1e-12 && fabs(bf16.below_subnormal - 0.1) < 1e-12);
    assert_true(fabs(ir_exponents_in(&e, IR_f16, 1).above - 0.2) < 1e-12);
}

/* ---- the file ------------------------------------------------------------------------------------ */

TEST_SCRATCH(test_file)
{
    const float x[] = {-3, 0.25F, 0, NAN, 1e6F};
    arena *a = arena_new(0);
    rt_calibrated conv = {"y", "Conv_0", "Conv", RT_CALIBRATED_ACTIVATION, count_f32(x, 5), NULL};
    rt_calibrated nothing = {"d \"y\"", "Conv_0", "Conv", RT_CALIBRATED_GRADIENT, {.count = 0}, NULL};
    rt_calibration written = {.model = "m.onnx", .samples = 7, .scale = 1024}, read;
    vec_push(a, &written.tensors, &conv);
    vec_push(a, &written.tensors, &nothing);
    const char *path = scratch_path(t, "c.json");
    assert_int_equal(rt_calibration_write(&written, path, t->d), AMPC_OK);
    assert_int_equal(rt_calibration_read(path, a, t->d, &read), AMPC_OK);
    assert_string_equal(read.model, "m.onnx");
    assert_true(read.samples == 7 && read.scale == 1024 && read.tensors.count == 2);
    const rt_calibrated *r = read.tensors.items[0];
    assert_string_equal(r->name, "y");
    assert_string_equal(r->node, "Conv_0");
    assert_string_equal(r->op, "Conv");
    assert_true(r->kind == RT_CALIBRATED_ACTIVATION && r->numbers.large == 1 && r->numbers.nan == 1);
    assert_true(r->numbers.min == -3 && r->numbers.max == 1e6 && r->numbers.count == 5 && r->numbers.zero == 1);
    assert_memory_equal(r->numbers.bins, conv.numbers.bins, sizeof conv.numbers.bins);
    assert_string_equal(read.tensors.items[1]->name, "d \"y\"");
    assert_int_equal(read.tensors.items[1]->numbers.count, 0);
    arena_free(a);
}

static void assert_refused(scratch *t, const char *text, const char *why)
{
    arena *a = arena_new(0);
    rt_calibration read;
    const char *path = scratch_path(t, "bad.json");
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    assert_int_equal(rt_calibration_read(path, a, t->d, &read), AMPC_REJECTED);
    scratch_expect(t, why);
    arena_free(a);
}

TEST_SCRATCH(test_refused_files)
{
    assert_refused(t, "{\"tensors\": [", "no statistics of a calibration: ");
    assert_refused(t, "{\"model\": \"m\", \"samples\": 1}", "'tensors' is missing");
    assert_refused(t, "{\"model\": \"m\", \"samples\": 1, \"tensors\": [{\"kind\": \"leg\"}]}", "'kind' of tensor 0");
    static const char *const tensors[][2] = {
        {"\"count\": 1, \"nan\": 0, \"inf\": 0, \"zero\": 0, \"exponents\": {\"from\": 128, \"counts\": [1, 0]}",
         "exponents"},
        {"\"count\": 1, \"nan\": 0, \"inf\": 0, \"zero\": 0, \"exponents\": {\"from\": 0, \"counts\": [2]}",
         "exponents"},
        {"\"count\": 1, \"nan\": 0, \"inf\": 0, \"zero\": 0, \"exponents\": {\"from\": 0, \"counts\": []}",
         "exponents"},
        {"\"count\": 1, \"nan\": 0, \"inf\": 0, \"zero\": 1, \"exponents\": "
         "{\"from\": 9223372036854775807, \"counts\": []}",
         "exponents"},
        {"\"count\": 1, \"nan\": 0, \"inf\": 0, \"zero\": 1, \"exponents\": "
         "{\"from\": -9223372036854775808, \"counts\": []}",
         "exponents"},
        {"\"count\": 9223372036854775807, \"nan\": 0", "count"},
        {"\"count\": 1, \"nan\": 2, \"inf\": 0, \"zero\": 0", "nan"},
        {"\"count\": 1, \"nan\": 1, \"inf\": 1, \"zero\": 0", "inf"},
        {"\"count\": 2, \"nan\": 1, \"inf\": 1, \"zero\": 1", "zero"},
        {"\"count\": 0, \"nan\": 0, \"inf\": 0, \"zero\": 0, \"exponents\": {\"from\": 0, \"counts\": []}, "
         "\"fp16\": {\"above\": 1e300}",
         "fp16"},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char text[500], why[40];
        snprintf(text, sizeof text,
                 "{\"model\": \"m\", \"samples\": 1, \"tensors\": [{\"kind\": \"input\", \"name\": \"x\", \"node\": "
                 "\"\", \"op\": \"\", \"min\": 1, \"max\": 1, %s}]}",
                 tensors[i][0]);
        snprintf(why, sizeof why, "'%s' of tensor 0", tensors[i][1]);
        assert_refused(t, text, why);
    }
}
