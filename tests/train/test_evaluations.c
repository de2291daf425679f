/* test_evaluations.c - losses of evaluations against those that PyTorch computes from the whole data set
 * (evaluations.def), in batches of any size, which for a mean of means would be another loss for each size.
 *
 * make_evaluations.py makes the same samples. */
#include "ir/ir.h"
#include "runtime/data/npy.h"
#include "runtime/train/evaluate.h"
#include "tests/compile.h"
#include "tests/train/noise.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ROWS = 97, TERMS = 3, MAX_ELEMENTS = 24, WHOLE = ROWS };

typedef struct loss_case {
    const char *loss, *nodes;
    double values[1 + TERMS]; /* the loss and its terms in their order; 0: there are no more */
    bool is_accuracy;
} loss_case;

#define BUILT_IN(text, ...) {.loss = text, .values = {__VA_ARGS__}},
#define OF_MODEL(text, value) {.nodes = text, .values = {value}},
#define ACCURACY(text, value) {.loss = text, .values = {value}, .is_accuracy = true},
static const loss_case cases[] = {
#include "tests/train/evaluations.def"
};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- data ---- */

static double between(int64_t i, uint64_t salt, double low, double high) { return low + (high - low) * noise(i, salt); }
static int64_t class_of(int64_t i, uint64_t salt, int count) { return (int64_t)(noise(i, salt) * count); }

/* Element i of each field. */
static double a(int64_t i) { return between(i, 1, -3, 3); }
static double b(int64_t i) { return between(i, 2, -3, 3); }
static double tokens(int64_t i) { return between(i, 3, -2, 2); }
static double label(int64_t i) { return (double)class_of(i, 4, 5); }
static double rare(int64_t i) { return i % 13 < 9 || i > 88 ? -1 : (double)class_of(i, 5, 5); }
static double marks(int64_t i) { return i % 6 >= class_of(i / 6, 6, 7) ? -100 : (double)class_of(i, 7, 4); }
static double words(int64_t i) { return 1 + (double)class_of(i, 8, 3); }
static double goal(int64_t i) { return noise(i, 9); }
static double mask(int64_t i) { return noise(i, 10) < 0.4; }

static const struct field {
    const char *name;
    double (*of)(int64_t i);
    ir_dtype dtype;
    int rank;
    int64_t dims[2];
} fields[] = {
    {"a", a, IR_f32, 1, {5}},         {"b", b, IR_f32, 1, {5}},       {"tokens", tokens, IR_f32, 2, {6, 4}},
    {"label", label, IR_i64, 0, {0}}, {"rare", rare, IR_i64, 0, {0}}, {"marks", marks, IR_i64, 1, {6}},
    {"words", words, IR_i64, 1, {2}}, {"goal", goal, IR_f32, 1, {5}}, {"mask", mask, IR_f32, 1, {5}},
};

static void write_field(scratch *t, const struct field *f)
{
    static char bytes[ROWS * MAX_ELEMENTS * 8];
    char file[32];
    rt_array array = {.dtype = f->dtype, .rank = 1 + f->rank, .dims = {ROWS}, .data = bytes};
    for (int i = 0; i < f->rank; i++) array.dims[1 + i] = f->dims[i];
    assert_true(rt_array_bytes(array.dtype, array.rank, array.dims, &array.bytes));
    for (size_t i = 0; i < array.bytes / ir_dtype_size(f->dtype); i++)
        ir_store_f64(f->dtype, bytes + i * ir_dtype_size(f->dtype), f->of((int64_t)i));
    snprintf(file, sizeof file, "%s.npy", f->name);
    assert_int_equal(rt_npy_write(scratch_path(t, file), &array, t->d), AMPC_OK);
}

static rt_dataset *open_data(scratch *t)
{
    char spec[2048] = "npy:";
    rt_dataset *data = NULL;
    for (size_t i = 0, at = 4; i < sizeof fields / sizeof *fields; i++) {
        char file[32];
        write_field(t, &fields[i]);
        snprintf(file, sizeof file, "%s.npy", fields[i].name);
        at += (size_t)snprintf(spec + at, sizeof spec - at, "%s%s=%s", i ? "," : "", fields[i].name,
                               scratch_path(t, file));
    }
    if (rt_dataset_open(spec, &(rt_dataset_options){.n_fields = 0}, t->d, &data) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return data;
}

/* ---- modules ---- */

static const char head[] =
    "ampc-ir 2\nparam @ws : f32[5] = zero\nconst @half : f32[] = 0.5\nconst @one : f32[] = 1\n"
    "const @w : f32[5] = [1.5, 0.25, 0, 3, 1]\n"
    "graph @forward(@a : f32[N,5], @b : f32[N,5], @tokens : f32[N,6,4], @label : i64[N], @rare : i64[N], "
    "@marks : i64[N,6], @goal : f32[N,5], @mask : f32[N,5], @words : i64[N,2]) as forward {\n"
    "  %xa = add @a, @ws : f32[N,5]\n  %xb = add @b, @ws : f32[N,5]\n  %share = softmax %xb {axis=1} : f32[N,5]\n"
    "  %log = log_softmax %xa {axis=1} : f32[N,5]\n"
    "  %h1 = sub %xa, @goal : f32[N,5]\n  %h2 = mul %h1, %h1 : f32[N,5]\n  %h3 = mul %h2, @mask : f32[N,5]\n"
    "  %h4 = reduce_sum %h3 {axes=[0,1], keepdims=false} : f32[]\n"
    "  %h5 = reduce_sum @mask {axes=[0,1], keepdims=false} : f32[]\n  %weighted = div %h4, %h5 : f32[]\n"
    "  output \"a\" = %xa\n  output \"b\" = %xb\n  output \"tokens\" = @tokens\n  output \"share\" = %share\n"
    "  output \"log_a\" = %log\n  output \"weighted\" = %weighted\n";

static ir_module *make_module(scratch *t, const loss_case *c)
{
    char *text;
    ir_module *m = NULL;
    compile_options o = compile_options_default();
    assert_true(
        asprintf(&text, "%s%s%s}\n", head, c->nodes ? c->nodes : "", c->nodes ? "  output \"own\" = %own\n" : "") > 0);
    o.level = PASS_O0;
    o.loss = c->loss;
    o.loss_output = c->nodes ? "own" : NULL;
    if (ir_parse(text, strlen(text), "evaluations.ir", t->d, &m) != AMPC_OK || test_compile(m, &o, t->d) != AMPC_OK)
        fail_msg("%s: %s", c->loss ? c->loss : c->nodes, diag_first_error(t->d));
    free(text);
    return m;
}

/* ---- evaluation ---- */

static void expect(const loss_case *c, const char *what, double got, double wanted, int64_t batch, bool fixed)
{
    if (!(fabs(got - wanted) <= 1e-6 * fmax(1, fabs(wanted))))
        fail_msg("%s: %s is %.9g in %s batches of %d, not %.9g", c->loss ? c->loss : c->nodes, what, got,
                 fixed ? "padded" : "partial", (int)batch, wanted);
}

/* Terms follow the loss in their order. */
static void compare(const loss_case *c, const rt_eval *got, int64_t batch, bool fixed)
{
    if (c->is_accuracy) {
        expect(c, "accuracy", rt_eval_number(got, "accuracy"), c->values[0], batch, fixed);
        return;
    }
    for (int i = 0; i <= TERMS && (!i || c->values[i] != 0); i++)
        expect(c, got->value[i].name, got->value[i].value, c->values[i], batch, fixed);
}

static void evaluate(scratch *t, const loss_case *c, const ir_module *m, rt_dataset *data, int64_t batch, bool fixed)
{
    int64_t sizes[] = {fixed ? batch : -1, -1, -1};
    const rt_session_options o = {.device = "cpu", .threads = 1, .symbol_sizes = sizes};
    rt_session *s = NULL;
    rt_eval got;
    assert_int_equal(rt_session_open(m, &o, t->d, &s), AMPC_OK);
    if (rt_evaluate(s, m, data, &(rt_eval_options){.batch = batch}, t->d, &got) != AMPC_OK)
        fail_msg("%s: %s", c->loss ? c->loss : c->nodes, diag_first_error(t->d));
    compare(c, &got, batch, fixed);
    rt_eval_clear(&got);
    rt_session_close(s);
}

static void test_any_batch(void **state)
{
    static const int64_t batches[] = {1, 2, 7, 64, WHOLE}, padded[] = {7, 64, 2 * WHOLE};
    scratch *t = *state;
    rt_dataset *data = open_data(t);
    for (int i = 0; i < CASES; i++) {
        ir_module *m = make_module(t, &cases[i]);
        for (size_t k = 0; k < sizeof batches / sizeof *batches; k++)
            evaluate(t, &cases[i], m, data, batches[k], false);
        for (size_t k = 0; k < sizeof padded / sizeof *padded; k++) evaluate(t, &cases[i], m, data, padded[k], true);
        ir_module_free(m);
    }
    rt_dataset_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCRATCH_TEST(test_any_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
