/* test_fixed_batch.c - batches that an export fixed and an option makes symbolic: each sample has the results of the
 * model as it was exported. tests/expect/frontend/fixed_batch.rows has the operators. */
#include "ir/graph/exported.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/unit/import_fixture.h"

#include <math.h>

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

TEST(test_samples)
{
    static const char *const files[] = {AMPC_SOURCE_DIR "/tests/models/exports/fixed-dynamo.onnx",
                                        AMPC_SOURCE_DIR "/tests/models/exports/fixed-script.onnx"};
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

TEST_SCRATCH(test_refused)
{
    ir_module *m = NULL;
    const onnx_import_options o = {.batch = 8};
    assert_int_equal(onnx_import(AMPC_SOURCE_DIR "/tests/models/exports/fixed-table.onnx", &o, t->d, &m),
                     AMPC_UNSUPPORTED);
    scratch_expect(t, "node 'node_add' (Add)");
}
