/* test_ops_update.c - the fused update kernels (kernels/update.h) must produce the same bits as separate ops
 * on the same device.
 *
 * Compares an update from a raw gradient with a low copy with unscale (or cast), update and cast; a check
 * alone with a check that has results; a chain of checks with a single one; the norm of raw gradients with
 * that of unscaled ones, and with the norm from the sums of squares that checks compute, which may be added
 * in another order. */
#include "ir/base/philox.h"
#include "kernels/update.h"
#include "tests/ops/ops.h"
#include "tests/rows.h"
#include "tests/tier.h"

#include <math.h>

enum { STATES = 4, UNTOUCHED = 0x5a, GRADIENTS = 3, PAIRS = 400 };

/* Near the vector, tile and unit sizes of both devices, and multiples of them. */
static const int64_t sizes[] = {0, 1, 31, 33, 511, 512, 513, 2047, 2048, 2049, 40003};
enum { SIZES = sizeof sizes / sizeof *sizes, SLOW = 10000 /* on a device; below the full tier, fewer forms have it */ };

static uint64_t draws;

static double draw(double low, double high)
{
    return low + (high - low) * (double)philox_word(11, 3, draws++) * 0x1p-32;
}

/* ---- views ---- */

static k_view vector(ir_dtype t, int64_t n)
{
    k_view v = {.dtype = t, .rank = 1, .dims = {n}};
    void *data = NULL;
    assert_int_equal(posix_memalign(&data, 64, k_bytes(&v) + 1), 0);
    memset(data, UNTOUCHED, k_bytes(&v) + 1);
    v.data = data;
    return v;
}

static void set(k_view *v, int64_t i, double value)
{
    ir_store_f64(v->dtype, (char *)v->data + i * (int64_t)ir_dtype_size(v->dtype), value);
}

static k_view drawn(ir_dtype t, int64_t n, double low, double high)
{
    k_view v = vector(t, n);
    for (int64_t i = 0; i < n; i++) set(&v, i, draw(low, high));
    return v;
}

static k_view scalar(ir_dtype t, double value)
{
    k_view v = vector(t, 1);
    v.rank = 0;
    set(&v, 0, value);
    return v;
}

static k_view copy_of(const k_view *v)
{
    k_view copy = vector(v->dtype, k_count(v));
    memcpy(copy.data, v->data, k_bytes(v));
    return copy;
}

static void same(const char *what, const k_view *got, const k_view *expected)
{
    if (k_bytes(expected) && memcmp(got->data, expected->data, k_bytes(expected)) != 0)
        fail_msg("%s [%lld] %s: different bits", what, (long long)k_count(expected), ir_dtype_name(expected->dtype));
}

static void run(ir_op op, int listed, k_view *in, int n_in, k_view *out, int n_out, const ir_attr *attr)
{
    char error[256] = "";
    const k_context context = {.threads = CASE_THREADS, .error = error, .error_size = sizeof error};
    k_args args = {
        .op = op, .in = in, .out = out, .n_in = n_in, .n_out = n_out, .attr = attr, .ctx = &context, .listed = listed};
    if (ops_run(&args, false, 1) != AMPC_OK) fail_msg("%s: %s", ir_op_get(op)->name, error);
}

static void cast(const k_view *from, k_view *to)
{
    k_view in = *from;
    run(IR_OP_cast, 0, &in, 1, to, 1, &(ir_attr){.dtype = to->dtype});
}

static bool check(const k_view *gradients, int n, const k_view *scale, k_view *outs, const bool *before, bool over)
{
    k_view in[GRADIENTS + 2], out[GRADIENTS + 1], found = scalar(IR_bool, 0), old = scalar(IR_bool, before && *before);
    for (int i = 0; i < n; i++) {
        in[i] = gradients[i];
        out[i] = outs ? outs[i] : (k_view){.dtype = IR_NO_DTYPE};
    }
    *(uint8_t *)found.data = UNTOUCHED;
    in[n] = *scale;
    in[n + 1] = old;
    out[n] = over ? old : found;
    run(IR_OP_check_finite_and_unscale, n, in, n + (before ? 2 : 1), out, n + 1, NULL);
    uint8_t made = *(uint8_t *)out[n].data;
    assert_true(made <= 1);
    free(found.data);
    free(old.data);
    return made;
}

/* ---- updates ---- */

typedef struct problem {
    ir_op op;
    ir_dtype master, grad, low; /* low: IR_NO_DTYPE: no copy */
    bool scaled, in_place;
    int skip; /* -1: absent */
    int64_t n;
    int states;
    k_view old[STATES], gradient, step, ratio, lr, flag, scale;
    ir_attr attr[8];
} problem;

static void make_attributes(problem *p, bool variant)
{
    const ir_op_info *info = ir_op_get(p->op);
    for (int i = 0; i < info->n_attr; i++) p->attr[i] = info->attr[i].initial;
    for (int i = 0; i < info->n_attr; i++) {
        if (info->attr[i].kind == IR_SLOT_BOOL) p->attr[i].i = variant;
        else if (strcmp(info->attr[i].name, "weight_decay") == 0) p->attr[i].f = 0.1;
    }
}

static void make(problem *p)
{
    static const double bad[] = {INFINITY, -INFINITY, NAN, 65504, 0};
    p->states = ir_op_get(p->op)->n_out;
    for (int i = 0; i < p->states; i++) p->old[i] = drawn(p->master, p->n, i > 0 ? 0 : -1, 1);
    p->gradient = drawn(p->grad, p->n, -1000, 1000);
    for (int64_t i = 0; p->skip >= 0 && i < 5 && i < p->n - 1; i++)
        set(&p->gradient, p->n - 1 - i * (p->n / 7), bad[i]);
    p->step = scalar(IR_i64, 2);
    p->ratio = drawn(p->master, 1, 0.5, 1);
    p->lr = scalar(p->master, 0.05);
    p->flag = p->skip < 0 ? (k_view){.dtype = IR_NO_DTYPE} : scalar(IR_bool, p->skip);
    p->scale = scalar(p->master, 1000);
    make_attributes(p, draws % 2);
}

static void forget(problem *p)
{
    for (int i = 0; i < p->states; i++) free(p->old[i].data);
    free(p->gradient.data);
    free(p->step.data);
    free(p->ratio.data);
    free(p->lr.data);
    free(p->flag.data);
    free(p->scale.data);
}

/* Builds the operands: states, gradient, the scalars of the op. */
static int operands(const problem *p, k_view *in, const k_view *states, const k_view *gradient)
{
    int n = 0;
    while (n < p->states) in[n] = states[n], n++;
    in[n++] = *gradient;
    if (k_update_slots_of(p->op)->step >= 0) in[n++] = p->step;
    if (k_update_slots_of(p->op)->ratio >= 0) in[n++] = p->ratio;
    if (k_update_slots_of(p->op)->lr >= 0) in[n++] = p->lr;
    in[n++] = p->flag;
    assert_int_equal(n, ir_op_get(p->op)->n_in);
    return n;
}

/* Runs the ops separately; `expected`: the new states, then the low copy. */
static void run_apart(const problem *p, k_view *expected)
{
    k_view in[CASE_MAX], gradient = vector(p->master, p->n);
    if (p->scaled) check(&p->gradient, 1, &p->scale, &gradient, NULL, false);
    else cast(&p->gradient, &gradient);
    int n = operands(p, in, p->old, &gradient);
    run(p->op, 0, in, n, expected, p->states, p->attr);
    if (k_present(&expected[p->states]) && !(p->skip > 0 && p->in_place)) cast(&expected[0], &expected[p->states]);
    free(gradient.data);
}

static void run_together(const problem *p, k_view *got)
{
    k_view in[CASE_MAX];
    int n = operands(p, in, p->in_place ? got : p->old, &p->gradient);
    if (p->scaled) in[n++] = p->scale;
    run(p->op, 0, in, n, got, p->states + (p->low != IR_NO_DTYPE), p->attr);
}

static void compare_problem(problem *p)
{
    k_view expected[STATES + 1], got[STATES + 1];
    char text[96];
    make(p);
    for (int i = 0; i < p->states; i++) {
        expected[i] = vector(p->master, p->n);
        got[i] = p->in_place ? copy_of(&p->old[i]) : vector(p->master, p->n);
    }
    bool low = p->low != IR_NO_DTYPE;
    expected[p->states] = low ? vector(p->low, p->n) : (k_view){.dtype = IR_NO_DTYPE};
    got[p->states] = low ? vector(p->low, p->n) : (k_view){.dtype = IR_NO_DTYPE};
    run_apart(p, expected);
    run_together(p, got);
    snprintf(text, sizeof text, "%s of %s%s, skip %d%s: result", ir_op_get(p->op)->name, p->scaled ? "scaled " : "",
             ir_dtype_name(p->grad), p->skip, p->in_place ? ", in place" : "");
    for (int i = 0; i < p->states + low; i++) {
        same(text, &got[i], &expected[i]);
        free(got[i].data);
        free(expected[i].data);
    }
    forget(p);
}

static void update_types(ir_op op, ir_dtype master, ir_dtype grad, ir_dtype low)
{
    for (int s = 0; s < SIZES; s++)
        for (int form = 0; form < 12; form++) {
            if (ops_on->device_ops && !tier_is_due((size_t)(s + form) + low, sizes[s] > SLOW ? 6 : 3)) continue;
            problem p = {.op = op, .master = master, .grad = grad, .low = low, .n = sizes[s]};
            p.scaled = form & 1;
            p.in_place = form & 2;
            p.skip = form / 4 - 1;
            compare_problem(&p);
        }
}

static void update(ir_op op)
{
    for (ir_dtype grad = IR_NO_DTYPE + 1; grad < IR_DTYPE_COUNT; grad++) {
        if (!ir_dtype_is_float(grad) || !ops_takes(grad)) continue;
        ir_dtype master = grad == IR_f64 ? IR_f64 : IR_f32;
        update_types(op, master, grad, IR_NO_DTYPE);
        update_types(op, master, grad, IR_f16);
        update_types(op, master, grad, IR_bf16);
    }
}

#define UPDATE(op, ...) \
    static void op(void **state) { (void)state, update(IR_OP_##op); }
#include "ir/ops/updates.def"

/* ---- the check alone ---- */

static bool found_with_results(const k_view *gradient, const k_view *scale)
{
    k_view out = vector(scale->dtype, k_count(gradient));
    bool found = check(gradient, 1, scale, &out, NULL, false);
    free(out.data);
    return found;
}

static void compare_check(const k_view *gradient, double by)
{
    k_view scale = scalar(gradient->dtype == IR_f64 ? IR_f64 : IR_f32, by);
    bool expected = found_with_results(gradient, &scale);
    if (check(gradient, 1, &scale, NULL, NULL, false) != expected)
        fail_msg("%s[%lld] / %g: the check alone %s", ir_dtype_name(gradient->dtype), (long long)k_count(gradient), by,
                 expected ? "finds nothing" : "finds something");
    free(scale.data);
}

static void check_places(ir_dtype t)
{
    static const double values[] = {INFINITY, -INFINITY, NAN};
    for (int s = 0; s < SIZES; s++)
        for (int place = 0; place < 4; place++) {
            int64_t n = sizes[s], at[] = {-1, 0, n / 2, n - 1};
            k_view gradient = drawn(t, n, -60000, 60000);
            if (n && place) set(&gradient, at[place], values[(s + place) % 3]);
            compare_check(&gradient, 65536);
            k_view scale = scalar(t == IR_f64 ? t : IR_f32, 65536);
            assert_int_equal(found_with_results(&gradient, &scale), n && place);
            free(scale.data);
            free(gradient.data);
        }
}

/* Numbers near the largest one that stays finite when unscaled. */
static void check_limits(ir_dtype t)
{
    static const double scales[] = {0, -1, INFINITY, NAN, 1, 0x1p-149};
    double largest = t == IR_f16 ? 65504 : 0x1.fep127;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        k_view gradient = drawn(t, 1, -1, 1);
        compare_check(&gradient, scales[i]);
        set(&gradient, 0, 0);
        compare_check(&gradient, scales[i]);
        set(&gradient, 0, -largest);
        compare_check(&gradient, scales[i]);
        free(gradient.data);
    }
    for (int i = 0; i < PAIRS; i++) {
        double value = ldexp(draw(1, 2), (int)draw(-24, t == IR_f16 ? 15.9 : 126.9)) * (i % 2 ? -1 : 1);
        k_view gradient = drawn(t, 1, value, value);
        compare_check(&gradient, fabs(value) / 0x1.fffffep127 * draw(0.99, 1.01));
        free(gradient.data);
    }
}

static void checks(void **state)
{
    (void)state;
    for (ir_dtype t = IR_NO_DTYPE + 1; t < IR_DTYPE_COUNT; t++) {
        if (!ir_dtype_is_float(t) || !ops_takes(t)) continue;
        check_places(t);
        check_limits(t);
    }
}

/* Checks each gradient in a separate call, with and without results, passing found_inf on in place or not. */
static void chain(int form, int bad)
{
    k_view scale = scalar(IR_f32, 8), gradients[GRADIENTS], outs[GRADIENTS];
    bool found = false;
    for (int i = 0; i < GRADIENTS; i++) {
        gradients[i] = drawn(IR_f16, 100 + 5000 * i, -9, 9);
        outs[i] = vector(IR_f32, 100 + 5000 * i);
        if (bad & 1 << i) set(&gradients[i], 99, INFINITY);
        found = check(&gradients[i], 1, &scale, form & 1 ? &outs[i] : NULL, i ? &found : NULL, form & 2 && i);
    }
    assert_int_equal(found, bad != 0);
    assert_int_equal(check(gradients, GRADIENTS, &scale, form & 1 ? outs : NULL, NULL, false), bad != 0);
    for (int i = 0; i < GRADIENTS; i++) {
        free(gradients[i].data);
        free(outs[i].data);
    }
    free(scale.data);
}

static void chains(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++)
        for (int bad = 0; bad < 1 << GRADIENTS; bad++) chain(form, bad);
}

/* ---- the norm ---- */

/* Gradients of three types, or of f64; one is empty. */
static void norm(ir_dtype master)
{
    static const ir_dtype low[] = {IR_f16, IR_bf16, IR_f32};
    k_view scale = scalar(master, 1000), in[GRADIENTS + 1], outs[GRADIENTS];
    k_view expected = scalar(master, 0), got = scalar(master, 1);
    for (int s = 0; s < SIZES; s++) {
        for (int i = 0; i < GRADIENTS; i++) {
            in[i] = drawn(master == IR_f64 ? master : low[i], sizes[(s + 3 * i) % SIZES], -60000, 60000);
            outs[i] = vector(master, k_count(&in[i]));
            check(&in[i], 1, &scale, &outs[i], NULL, false);
        }
        in[GRADIENTS + K_SLOT(norm, scale)] = scale;
        run(IR_OP_global_norm, GRADIENTS, outs, GRADIENTS, &expected, 1, NULL);
        run(IR_OP_global_norm, GRADIENTS, in, GRADIENTS + 1, &got, 1, NULL);
        assert_true(ir_load_f64(expected.dtype, expected.data) > 1);
        same("norm of raw gradients", &got, &expected);
        for (int i = 0; i < GRADIENTS; i++) {
            free(in[i].data);
            free(outs[i].data);
        }
    }
    free(scale.data);
    free(expected.data);
    free(got.data);
}

/* The raw gradients are checked by one call each or by a single call; the last call returns the sums of squares. */
static double joined_norm(const k_view *gradients, const int64_t *first, int calls, const k_view *scale, int64_t sums,
                          bool over, bool *found)
{
    k_view squares = vector(IR_f64, sums), last = vector(IR_f64, sums), flag = scalar(IR_bool, 0);
    for (int c = 0; c < calls; c++) {
        k_view in[GRADIENTS + 3], out[GRADIENTS + 2];
        int n = 0;
        for (int64_t i = first[c]; i < first[c + 1]; i++, n++) {
            in[n] = gradients[i];
            out[n] = (k_view){.dtype = IR_NO_DTYPE};
        }
        in[n] = *scale;
        in[n + 1] = flag;
        in[n + 2] = last;
        out[n] = flag;
        out[n + 1] = over ? last : squares;
        run(IR_OP_check_finite_and_unscale, n, in, n + (c ? 3 : 1), out, n + 2, NULL);
        memcpy(last.data, out[n + 1].data, k_bytes(&last));
    }
    k_view norm = scalar(scale->dtype, 0), in[] = {{.dtype = IR_NO_DTYPE}, last};
    run(IR_OP_global_norm, 0, in, K_SLOT(norm, n_in), &norm, 1, NULL);
    double value = ir_load_f64(norm.dtype, norm.data);
    *found = *(const uint8_t *)flag.data;
    free(squares.data);
    free(last.data);
    free(flag.data);
    free(norm.data);
    return value;
}

/* `bad`: the index of a non-finite element, elsewhere in each call. form: see joined_norm. */
static void joined(ir_dtype t, int64_t n, int form, int bad)
{
    static const int64_t one_call[] = {0, GRADIENTS}, calls[] = {0, 1, 2, 3};
    static const double values[] = {0, INFINITY, NAN};
    k_view scale = scalar(t == IR_f64 ? t : IR_f32, 1000), expected = scalar(scale.dtype, 0);
    k_view in[GRADIENTS + 1];
    bool found;
    for (int i = 0; i < GRADIENTS; i++) in[i] = drawn(t, i == 1 ? n + 8191 : n, -60000, 60000);
    if (bad && n) set(&in[form % GRADIENTS], (n - 1) * (form % 5) / 4, values[bad]);
    in[GRADIENTS + K_SLOT(norm, scale)] = scale;
    run(IR_OP_global_norm, GRADIENTS, in, GRADIENTS + 1, &expected, 1, NULL);
    const int64_t sums = form & 2 ? 300 : 1;
    double norm = ir_load_f64(expected.dtype, expected.data);
    double got = form & 1 ? joined_norm(in, calls, 3, &scale, sums, form & 4, &found)
                          : joined_norm(in, one_call, 1, &scale, sums, form & 4, &found);
    assert_int_equal(found, bad && n);
    if (bad && n ? isfinite(got) : !(fabs(got - norm) <= 4e-7 * norm))
        fail_msg("norm of %s[%lld], form %d, bad %d: %.9g, not %.9g", ir_dtype_name(t), (long long)n, form, bad, got,
                 norm);
    for (int i = 0; i < GRADIENTS; i++) free(in[i].data);
    free(scale.data);
    free(expected.data);
}

static void joined_norms(void **state)
{
    (void)state;
    for (ir_dtype t = IR_NO_DTYPE + 1; t < IR_DTYPE_COUNT; t++)
        for (int s = 0; s < SIZES && ir_dtype_is_float(t) && ops_takes(t); s++)
            for (int form = 0; form < 8; form++) joined(t, sizes[s], form, (s + form) % 3);
}

/* An overflow of the sums of squares does not mean that a gradient is infinite. */
static void finite_gradients_may_have_no_norm(void **state)
{
    static const int64_t call[] = {0, 1};
    (void)state;
    k_view gradient = drawn(IR_f32, 5000, 0x1p100, 0x1p101), scale = scalar(IR_f32, 1);
    bool found;
    const double norm = joined_norm(&gradient, call, 1, &scale, 8, false, &found);
    assert_true(isinf(norm));
    assert_false(found);
    free(gradient.data);
    free(scale.data);
}

static void norms(void **state)
{
    (void)state;
    norm(IR_f32);
    if (ops_takes(IR_f64)) norm(IR_f64);
}

static int tests(void)
{
    const struct CMUnitTest all[] = {
#define UPDATE(op, ...) cmocka_unit_test(op),
#include "ir/ops/updates.def"
        cmocka_unit_test(checks),
        cmocka_unit_test(chains),
        cmocka_unit_test(norms),
        cmocka_unit_test(joined_norms),
        cmocka_unit_test(finite_gradients_may_have_no_norm),
    };
    if (ops_on->device_ops) tier_print_part("forms of updates", 6);
    return rows_run(ops_on->name, all, sizeof all / sizeof *all);
}

int main(int argc, char **argv) { return ops_main(argc, argv, tests); }
