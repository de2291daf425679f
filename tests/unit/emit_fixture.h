/* emit_fixture.h - compiles models, emits them and reads the result. */
#ifndef TESTS_EMIT_FIXTURE_H
#define TESTS_EMIT_FIXTURE_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/api/export.h"
#include "runtime/data/npz.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"
#include "tests/unit/written_parts.h"

#include <math.h>

#define GOLDENS AMPC_SOURCE_DIR "/tests/goldens"

/* ---- compiling and emitting ------------------------------------------------------------------ */

/* Returns NULL if an operator is not supported. */
static inline ir_module *compile_model(scratch *t, const char *path, bool opaque, pass_level level, ir_dtype low)
{
    ir_module *m;
    const onnx_import_options import = {.opaque = opaque,
                                        .emit_opset = !opaque          ? 0
                                                      : low == IR_bf16 ? ONNX_OPSET_BF16
                                                                       : ONNX_OPSET_EMIT};
    ampc_status status = onnx_import(path, &import, t->d, &m);
    if (status == AMPC_UNSUPPORTED) {
        diag_clear(t->d);
        return NULL;
    }
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    compile_options o = compile_options_default();
    o.level = level;
    o.low = low;
    o.plain_runtime = true;
    if (test_compile(m, &o, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

static inline void emit_to(scratch *t, const ir_module *m, const char *name)
{
    if (rt_emit_onnx(m, "infer", scratch_path(t, name), NULL, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static inline ir_module *read_back(scratch *t)
{
    ir_module *m;
    if (onnx_import(scratch_path(t, "new.onnx"), NULL, t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

/* ---- complete networks ----------------------------------------------------------------------- */

static inline int inputs_of(const ir_module *m, const char *graph, const rt_arrays *arrays, rt_tensor *out)
{
    const ir_graph *g = ir_graph_find(m, graph);
    int n = 0;
    for (size_t i = 0; i < g->inputs.count; i++) {
        char key[256];
        snprintf(key, sizeof key, "input/%s", g->inputs.items[i]->name);
        const rt_array *a = rt_arrays_find(arrays, key);
        assert_non_null(a);
        out[n] = (rt_tensor){.name = g->inputs.items[i]->name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
        memcpy(out[n].dims, a->dims, (size_t)a->rank * sizeof *a->dims);
        n++;
    }
    return n;
}

static inline rt_session *run(scratch *t, const ir_module *m, const char *graph, const rt_arrays *arrays)
{
    rt_session *s;
    rt_tensor inputs[8];
    const rt_session_options o = {.device = "cpu"};
    ampc_status status = rt_session_open(m, &o, t->d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, graph, inputs, inputs_of(m, graph, arrays, inputs), t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return s;
}

static inline double distance(const rt_tensor *a, const rt_tensor *b)
{
    double difference = 0, largest = 0;
    int64_t n = 1;
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    for (int i = 0; i < a->rank; i++) {
        assert_int_equal(a->dims[i], b->dims[i]);
        n *= a->dims[i];
    }
    for (size_t i = 0, size = ir_dtype_size(a->dtype); i < (size_t)n; i++) {
        double x = ir_load_f64(a->dtype, (char *)a->data + i * size),
               y = ir_load_f64(b->dtype, (char *)b->data + i * size);
        difference = fmax(difference, isnan(x - y) ? INFINITY : fabs(x - y));
        largest = fmax(largest, fabs(y));
    }
    return difference / fmax(largest, 1e-30);
}

#endif
