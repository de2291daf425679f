/* test_standardised.c - gradients through the weight standardisation of PyTorch's networks, as both exporters write it
 * (tests/models/make_standardised.py): mean and variance of a BatchNormalization are computed from the weight. */
#include "frontend/onnx.h"
#include "passes/passes.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/test.h"

#include <math.h>

#define FOLDER AMPC_SOURCE_DIR "/tests/models/standardised/"

enum { ROWS = 12, CELLS = 160 };

typedef struct row {
    char name[32];
    int count;
    double cells[CELLS];
} row;

static row rows[ROWS]; /* x, label, loss, gradients */
static int row_count;

static int read_rows(void **state)
{
    (void)state;
    FILE *f = fopen(FOLDER "gradients.txt", "r");
    assert_non_null(f);
    for (row *r = rows; row_count < ROWS && fscanf(f, "%31s %d", r->name, &r->count) == 2; r++, row_count++) {
        assert_true(r->count > 0 && r->count <= CELLS);
        for (int i = 0; i < r->count; i++) assert_int_equal(fscanf(f, "%lf", &r->cells[i]), 1);
    }
    fclose(f);
    return row_count > 3 ? 0 : 1;
}

static const struct variant {
    pass_level level;
    ir_dtype low;
    double bound; /* of the distance from PyTorch, relative to the norm of all gradients */
} variants[] = {
    {PASS_O0, IR_f16, 3e-6}, {PASS_O1, IR_f16, 3e-3},  {PASS_O2, IR_f16, 5e-3},
    {PASS_OD, IR_f16, 3e-3}, {PASS_O1, IR_bf16, 3e-2}, {PASS_O2, IR_bf16, 4e-2},
};

static double difference(const char *file, rt_session *s)
{
    double squares = 0, of = 0;
    for (const row *r = rows + 3; r < rows + row_count; r++) {
        char name[48];
        snprintf(name, sizeof name, "grad/%s", r->name);
        const rt_tensor *t = rt_session_output(s, name);
        if (!t) fail_msg("%s: %s has no gradient", file, r->name);
        for (int i = 0; i < r->count; i++) {
            const double got = ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * ir_dtype_size(t->dtype));
            squares += (got - r->cells[i]) * (got - r->cells[i]);
            of += r->cells[i] * r->cells[i];
        }
    }
    return sqrt(squares / of);
}

static void check_variant(const char *file, const struct variant *v)
{
    const rt_session_options device = {.device = "cpu", .threads = 1};
    compile_options o = compile_options_default();
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    rt_session *s = NULL;
    float x[CELLS];
    int64_t label[CELLS];
    for (int i = 0; i < rows[0].count; i++) x[i] = (float)rows[0].cells[i];
    for (int i = 0; i < rows[1].count; i++) label[i] = (int64_t)rows[1].cells[i];
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 4, .dims = {3, 2, 5, 5}, .data = x},
                            {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {3}, .data = label}};
    o.loss = "ce";
    o.level = v->level;
    o.low = v->low;
    o.scaling = PASS_SCALE_OFF;
    if (onnx_import(file, NULL, d, &m) != AMPC_OK || test_compile(m, &o, d) != AMPC_OK ||
        rt_session_open(m, &device, d, &s) != AMPC_OK || rt_session_run(s, "grad", in, 2, d) != AMPC_OK)
        fail_msg("%s: %s", file, diag_first_error(d));
    assert_int_equal(diag_count(d, DIAG_WARNING), 0);
    const double got = difference(file, s);
    if (!(got <= v->bound)) fail_msg("%s, variant %d: gradients differ by %g", file, (int)(v - variants), got);
    rt_session_close(s);
    ir_module_free(m);
    diag_free(d);
}

TEST(gradients_are_those_of_pytorch)
{
    static const char *const files[] = {FOLDER "script.onnx", FOLDER "dynamo.onnx"};
    for (size_t f = 0; f < 2; f++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) check_variant(files[f], &variants[v]);
}

TEST_GROUP(read_rows, NULL)
