/* peers_fixture.h - for tests of bugs that other mixed-precision converters have.
 *
 * check() converts a model and compares three results: the model in f32, our run in fp16, and the emitted model, read
 * back and run with the types that it has. */
#ifndef TESTS_PEERS_FIXTURE_H
#define TESTS_PEERS_FIXTURE_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/api/export.h"
#include "runtime/session/session.h"
#include "runtime/files/weights.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <time.h>

enum { MAX_COUNT = 1 << 12 };

typedef struct result {
    int count;
    double items[MAX_COUNT];
} result;

typedef struct input {
    int64_t rows, columns;
    float value; /* element i is value * (1 + i % 3) */
} input;

/* ---- compiling, running ---------------------------------------------------------------------- */

static inline compile_options options_at(pass_level level)
{
    compile_options o = compile_options_default();
    o.level = level;
    o.low = IR_f16;
    return o;
}

/* `text`: receives the compiler's explanations; NULL: none. */
static inline ampc_status run_passes(ir_module *m, const compile_options *o, FILE *text, diag *d)
{
    arena *a = arena_new(0);
    rt_weights *weights;
    compile *c;
    assert_int_equal(rt_weights_open(m, NULL, d, &weights), AMPC_OK);
    ampc_status status = compile_load(o, a, d, &c);
    if (status == AMPC_OK) {
        c->read = rt_weights_read_part;
        c->read_user = weights;
        c->report.text = text;
        status = compile_module(m, c);
    }
    rt_weights_close(weights);
    arena_free(a);
    return status;
}

static inline ir_module *compile_with_report(scratch *t, const char *name, compile_options o, bool opaque, FILE *text)
{
    ir_module *m;
    const int written = o.low == IR_bf16 ? ONNX_OPSET_BF16 : ONNX_OPSET_EMIT;
    const onnx_import_options import = {.opaque = opaque, .emit_opset = opaque ? written : 0};
    ampc_status status = onnx_import(scratch_path(t, name), &import, t->d, &m);
    if (status == AMPC_OK) status = run_passes(m, &o, text, t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

static inline ir_module *compile_file(scratch *t, const char *name, compile_options o, bool opaque)
{
    return compile_with_report(t, name, o, opaque, NULL);
}

/* Runs the graph and concatenates all outputs. */
static inline void run(scratch *t, const char *name, compile_options o, input in, result *out)
{
    ir_module *m = compile_file(t, name, o, false);
    float *x = calloc((size_t)(in.rows * in.columns), sizeof *x);
    for (int64_t i = 0; i < in.rows * in.columns; i++) x[i] = in.value * (float)(1 + i % 3);
    const rt_tensor tensor = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {in.rows, in.columns}, .data = x};
    const rt_session_options device = {.device = "cpu"};
    rt_session *s;
    ampc_status status = rt_session_open(m, &device, t->d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, "infer", &tensor, 1, t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    out->count = 0;
    for (int i = 0; i < rt_session_output_count(s); i++) {
        const rt_tensor *y = rt_session_output_at(s, i);
        int64_t n = 1;
        for (int k = 0; k < y->rank; k++) n *= y->dims[k];
        assert_int_equal(y->dtype, IR_f32);
        assert_true(out->count + n <= MAX_COUNT);
        for (int64_t k = 0; k < n; k++) out->items[out->count++] = ((const float *)y->data)[k];
    }
    rt_session_close(s);
    ir_module_free(m);
    free(x);
}

static inline void save(scratch *t, model *m)
{
    wire file = model_finish(m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
}

/* Converts m.onnx to new.onnx in fp16. The caller closes the result. */
static inline onnx_file *convert(scratch *t, bool opaque)
{
    onnx_file *f;
    compile_options o = options_at(PASS_O1);
    o.plain_runtime = true;
    ir_module *m = compile_file(t, "m.onnx", o, opaque);
    if (rt_emit_onnx(m, "infer", scratch_path(t, "new.onnx"), NULL, t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    ir_module_free(m);
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    return f;
}

static inline void compare(const char *what, const result *x, const result *y, double tolerance)
{
    double difference = 0, largest = 1e-30;
    assert_int_equal(x->count, y->count);
    for (int i = 0; i < x->count; i++) {
        bool same = x->items[i] == y->items[i];
        difference = fmax(difference, same                               ? 0
                                      : isnan(x->items[i] - y->items[i]) ? INFINITY
                                                                         : fabs(x->items[i] - y->items[i]));
        if (isfinite(y->items[i])) largest = fmax(largest, fabs(y->items[i]));
    }
    if (!(difference <= tolerance * largest)) fail_msg("%s differs by %g of %g", what, difference, largest);
}

static inline onnx_file *check(scratch *t, model *m, input in, double tolerance)
{
    static result f32, fp16, written;
    save(t, m);
    run(t, "m.onnx", options_at(PASS_O0), in, &f32);
    run(t, "m.onnx", options_at(PASS_O1), in, &fp16);
    compare("the run in fp16", &fp16, &f32, tolerance);
    onnx_file *f = convert(t, false);
    run(t, "new.onnx", options_at(PASS_O0), in, &written);
    compare("the model written", &written, &f32, tolerance);
    return f;
}

/* ---- inspecting the emitted model ------------------------------------------------------------ */

static inline int count_ops(const onnx_file *f, const char *op)
{
    int n = 0;
    for (size_t i = 0; i < f->model->graph->n_node; i++) n += strcmp(f->model->graph->node[i]->op_type, op) == 0;
    return n;
}

/* Returns 0 if there is no tensor of that name. */
static inline int type_of_tensor(const onnx_file *f, const char *name)
{
    for (size_t i = 0; i < f->model->graph->n_initializer; i++)
        if (strcmp(f->model->graph->initializer[i]->name, name) == 0) return f->model->graph->initializer[i]->data_type;
    return 0;
}

/* Returns a model with the input x[N,columns]. */
static inline model new_model(const char *columns)
{
    char dims[32];
    model m = model_new(17);
    snprintf(dims, sizeof dims, "N,%s", columns);
    model_input(&m, "x", ONNX_float32, dims);
    return m;
}

/* The same with h, a white matmul of x. */
static inline model new_product(void)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 0.5f, -0.25f, 2));
    model_node(&m, "MatMul", "x,w", "h");
    return m;
}

static const input small = {3, 2, 0.5f};

#endif
