/* test_fixed_batch.c - batches that an export fixed and an option makes symbolic: which operators follow, which node
 * forbids it, and that each sample has the results of the model as it was exported. */
#include "ir/graph/exported.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/unit/import_fixture.h"

#include <math.h>

/* ---- operators ----------------------------------------------------------------------------------- */

typedef struct step {
    const char *op, *inputs, *outputs, *attribute, *value;
} step;

/* A model with the input x and the output y; `last` is the shape of y, or the beginning of the error. The other operands are
 * one=[1,1,4] floats, and lists of integers, named by their values: "1_2_4". */
typedef struct row {
    const char *x;
    step steps[3];
    const char *last;
    bool refused;
} row;

#define NODE(o, i, y) \
    { \
        .op = o, .inputs = i, .outputs = y \
    }
#define WITH(o, i, y, a, v) \
    { \
        .op = o, .inputs = i, .outputs = y, .attribute = a, .value = v \
    }

static const row rows[] = {
    /* a Reshape of contiguous samples, with and without -1 */
    {.x = "1,2,4", .steps = {NODE("Reshape", "x,1_8", "y")}, "f32[batch,8]"},
    {.x = "1,2,4", .steps = {NODE("Reshape", "x,1_n_2", "y")}, .last = "f32[batch,4,2]"},
    {.x = "2,2,4", .steps = {NODE("Reshape", "x,4_4", "y")}, .last = "f32[2*batch,4]"},
    {.x = "2,2,4", .steps = {NODE("Reshape", "x,4_4", "a"), NODE("Reshape", "a,2_8", "y")}, .last = "f32[batch,8]"},
    {.x = "3,2,4", .steps = {NODE("Reshape", "x,n_8", "y")}, .last = "f32[batch,8]"},
    {.x = "3,2,4", .steps = {NODE("Reshape", "x,0_8", "y")}, .last = "f32[batch,8]"},
    /* the number is not the batch, or samples are not contiguous */
    {.x = "2,2,4",
     .steps = {WITH("Transpose", "x", "a", "perm", "1,0,2"), NODE("Reshape", "a,2_8", "y")},
     .last = "the result 'y'",
     .refused = true},
    {.x = "3,2,4",
     .steps = {NODE("Reshape", "x,2_12", "y")},
     .last = "the result 'y', f32[2,12], has no batch",
     .refused = true},
    /* specified sizes, and operands that are the same for every sample */
    {.x = "2,1,4", .steps = {NODE("Expand", "x,2_3_4", "y")}, .last = "f32[batch,3,4]"},
    {.x = "1,2,4", .steps = {WITH("Concat", "one,x", "y", "axis", "1")}, .last = "f32[batch,3,4]"},
    {.x = "1,2,4", .steps = {NODE("Add", "one,x", "y")}, .last = "f32[batch,2,4]"},
    /* nodes that lose the batch or compute along it */
    {.x = "2,2,4",
     .steps = {NODE("CumSum", "x,0", "y")},
     .last = "the result 'y', f32[batch,2,4], is computed along the batch",
     .refused = true},
    {.x = "2,2,4", .steps = {NODE("CumSum", "x,1", "y")}, .last = "f32[batch,2,4]"},
    {"2,2,4",
     {WITH("Softmax", "x", "y", "axis", "0")},
     "the result 'y', f32[batch,2,4], is computed along the batch",
     true},
    {.x = "2,2,4",
     .steps = {WITH("Gather", "x,0", "y", "axis", "0")},
     .last = "the result 'y', f32[1,2,4], has no batch",
     .refused = true},
    {.x = "2,2,4", .steps = {WITH("ReduceMean", "x", "a", "keepdims", "0")}, .last = "f32[]"},
    {.x = "2,1,4", .steps = {NODE("Squeeze", "x,1", "y")}, .last = "f32[batch,4]"},
    {"1,2,4", {NODE("Squeeze", "x,0", "y")}, .last = "", .refused = true},
};

/* "n" is -1. */
static void add_list(model *m, const char *name)
{
    int64_t values[8];
    char dims[8];
    int n = 0;
    for (const char *at = name; at; at = strchr(at, '_') ? strchr(at, '_') + 1 : NULL)
        values[n++] = *at == 'n' ? -1 : atoll(at);
    snprintf(dims, sizeof dims, "%d", n);
    model_tensor(m, tensor_new(name, ONNX_int64, dims, values, (size_t)n * sizeof *values));
}

static void add_operands(model *m, const char *inputs, const char **known)
{
    char text[64], *save = NULL;
    snprintf(text, sizeof text, "%s", inputs);
    for (const char *name = strtok_r(text, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        const bool list = strchr("0123456789n", *name) != NULL, one = strcmp(name, "one") == 0;
        if (list && (!*known || strcmp(*known, name) != 0)) add_list(m, name);
        if (one) model_tensor(m, TENSOR_FLOATS("one", "1,1,4", 1, 2, 3, 4));
    }
}

static wire file_of(const row *r)
{
    model m = model_new(17);
    const char *known = NULL, *last = NULL;
    model_input(&m, "x", ONNX_float32, r->x);
    for (const step *s = r->steps; s < r->steps + 3 && s->op; s++) {
        node n = node_new(s->op, s->inputs, s->outputs);
        wire_text(&n, 3, s->op);
        add_operands(&m, s->inputs, &known);
        if (s->attribute && strcmp(s->attribute, "perm") == 0) node_ints(&n, s->attribute, s->value);
        else if (s->attribute) node_int(&n, s->attribute, atoll(s->value));
        model_add(&m, &n);
        last = s->outputs;
    }
    model_output(&m, last, 0, NULL);
    return model_finish(&m);
}

static void test_operators(void **state)
{
    scratch *t = *state;
    const onnx_import_options o = {.batch = 64};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        ir_module *m = NULL;
        diag_clear(t->d);
        const ampc_status status = import_bytes(t, file_of(r), &o, &m);
        if ((status != AMPC_OK) != r->refused || (r->refused && !strstr(diag_first_error(t->d), r->last)))
            fail_msg("row %zu, %s: %s", i, r->steps[0].op, diag_first_error(t->d));
        if (!m) continue;
        const ir_value *y = ir_in(ir_first_output(m->graphs.items[0]), 0);
        const char *type = ir_type_print(m, &y->type, m->arena);
        if (strcmp(type, r->last) != 0) fail_msg("row %zu, %s: %s, not %s", i, r->steps[0].op, type, r->last);
        ir_module_free(m);
    }
}

/* A batch of the same size stays a number, which the module records. */
static void test_same_size(void **state)
{
    scratch *t = *state;
    static const int64_t batches[] = {0, 1};
    for (int i = 0; i < 2; i++) {
        const onnx_import_options o = {.batch = batches[i]};
        ir_module *m = NULL;
        assert_int_equal(import_bytes(t, file_of(&rows[0]), &o, &m), AMPC_OK);
        assert_int_equal(m->training.exported.batch, 1);
        assert_int_equal(m->graphs.items[0]->inputs.items[0]->type.dims[0], 1);
        ir_module_free(m);
    }
}

/* ---- exports ------------------------------------------------------------------------------------- */

enum { SAMPLES = 3, FEATURES = 6, CLASSES = 3 };

/* Runs @infer of an export with the first `n` samples at `x`. */
static void infer(const char *path, int64_t batch, const float *x, int n, float *y)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    rt_session *s = NULL;
    const onnx_import_options import = {.batch = batch};
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    o.level = PASS_O0;
    const rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 3, .dims = {n, 2, 3}, .data = (void *)(uintptr_t)x};
    if (onnx_import(path, &import, d, &m) != AMPC_OK || test_compile(m, &o, d) != AMPC_OK ||
        rt_session_open(m, &device, d, &s) != AMPC_OK || rt_session_run(s, "infer", &in, 1, d) != AMPC_OK)
        fail_msg("%s: %s", path, diag_first_error(d));
    const rt_tensor *out = rt_session_output(s, "y");
    assert_int_equal(out->dims[0], n);
    memcpy(y, out->data, sizeof *y * (size_t)n * CLASSES);
    rt_session_close(s);
    ir_module_free(m);
    diag_free(d);
}

static void test_samples(void **state)
{
    static const char *const files[] = {AMPC_SOURCE_DIR "/tests/models/exports/fixed-dynamo.onnx",
                                        AMPC_SOURCE_DIR "/tests/models/exports/fixed-script.onnx"};
    (void)state;
    float x[SAMPLES * FEATURES], together[SAMPLES * CLASSES], alone[CLASSES];
    for (int i = 0; i < SAMPLES * FEATURES; i++) x[i] = sinf((float)i);
    for (int f = 0; f < 2; f++) {
        infer(files[f], SAMPLES, x, SAMPLES, together);
        for (int i = 0; i < SAMPLES; i++) {
            infer(files[f], 0, x + i * FEATURES, 1, alone);
            for (int k = 0; k < CLASSES; k++) assert_true(fabsf(alone[k] - together[i * CLASSES + k]) < 1e-6f);
        }
    }
}

static void test_refused(void **state)
{
    scratch *t = *state;
    ir_module *m = NULL;
    const onnx_import_options o = {.batch = 8};
    assert_int_equal(onnx_import(AMPC_SOURCE_DIR "/tests/models/exports/fixed-table.onnx", &o, t->d, &m),
                     AMPC_UNSUPPORTED);
    scratch_expect(t, "node 'node_add' (Add)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_operators),
        SCRATCH_TEST(test_same_size),
        cmocka_unit_test(test_samples),
        SCRATCH_TEST(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
