/* custom_fixture.h - models with custom operators, and what their tests do with them.
 *
 * The network is y = f(x w) with x [N,3] and w [3,4], where f is an operator of com.example with these attributes. */
#ifndef TESTS_CUSTOM_FIXTURE_H
#define TESTS_CUSTOM_FIXTURE_H

#include "tests/custom_ops.h"
#include "tests/unit/api_calls.h"
#include "tests/unit/model_writer.h"

enum { ONNX_f32 = 1, ONNX_i64 = 7, ONNX_f16 = 10, ONNX_f64 = 11, ONNX_bf16 = 16 };

typedef struct handles {
    ampc_context *c;
    ampc_module *m;
    ampc_session *s;
    custom_log log;
} handles;

static inline node custom_node(const char *op, const char *inputs, const char *outputs)
{
    node n = node_new(op, inputs, outputs);
    wire_text(&n, 3, "f");
    wire_text(&n, 7, "com.example");
    return n;
}

/* Writes the model with version `domain_version` of com.example and returns its path. */
static inline const char *write_model(scratch *t, model *m, int domain_version)
{
    wire file = model_finish(m);
    model_opset(&file, "com.example", domain_version);
    const char *path = scratch_path(t, "model.onnx");
    scratch_write(t, "model.onnx", file.bytes, file.size);
    wire_free(&file);
    return path;
}

static inline wire weights(int type)
{
    double w[12];
    float w32[12];
    for (int i = 0; i < 12; i++) w32[i] = (float)(w[i] = (i * 7 % 12) / 8.0 - 0.6);
    if (type == ONNX_f64) return tensor_new("w", type, "3,4", w, sizeof w);
    if (type == ONNX_f32) return tensor_new("w", type, "3,4", w32, sizeof w32);
    uint16_t low[12];
    for (int i = 0; i < 12; i++) ir_store_f64(type == ONNX_f16 ? IR_f16 : IR_bf16, &low[i], w[i]);
    return tensor_new("w", type, "3,4", low, sizeof low);
}

/* The network with one node of the operator, which is freed. */
static inline const char *write_network(scratch *t, int type, node *n)
{
    model m = model_new(17);
    model_input(&m, "x", type, "N,3");
    model_tensor(&m, weights(type));
    model_node(&m, "MatMul", "x,w", "s");
    model_add(&m, n);
    model_output(&m, "y", type, NULL);
    return write_model(t, &m, 1);
}

static inline const char *write_tanh(scratch *t, int type)
{
    node n = custom_node("ScaledTanh", "s", "y");
    node_float(&n, "alpha", 1.5f);
    return write_network(t, type, &n);
}

static inline void open_context(handles *h)
{
    *h = (handles){0};
    assert_int_equal(ampc_context_create(NULL, &h->c), AMPC_OK);
}

static inline void close_all(handles *h)
{
    ampc_session_free(h->s);
    ampc_module_free(h->m);
    ampc_context_free(h->c);
}

/* A context with both operators, and the model, compiled. */
static inline void compile_model(handles *h, const char *path, const ampc_compile_options *o)
{
    open_context(h);
    const ampc_operator operators[] = {scaled_tanh(&h->log), squared_difference(&h->log)};
    for (int i = 0; i < 2; i++) OK(h->c, ampc_operator_register(h->c, &operators[i]));
    OK(h->c, ampc_module_import(h->c, path, NULL, 0, &h->m));
    OK(h->c, ampc_module_compile(h->m, o));
}

static inline void open_model(handles *h, const char *path, const ampc_compile_options *o)
{
    compile_model(h, path, o);
    OK(h->c, ampc_session_open(h->m, &one_thread, &h->s));
}

/* The model with this operator in an open context. */
static inline void open_with(handles *h, const ampc_operator *op, const char *path, const ampc_compile_options *o)
{
    OK(h->c, ampc_operator_register(h->c, op));
    OK(h->c, ampc_module_import(h->c, path, NULL, 0, &h->m));
    OK(h->c, ampc_module_compile(h->m, o));
    OK(h->c, ampc_session_open(h->m, &one_thread, &h->s));
}

static inline double x_at(int64_t i) { return (double)(i * 5 % 7) / 4 - 0.8; }

static inline ampc_tensor *make_input(const handles *h, const char *name, int64_t rows, int64_t columns)
{
    const int64_t dims[] = {rows, columns};
    double x[64];
    ampc_tensor *t = NULL;
    for (int64_t i = 0; i < rows * columns; i++) x[i] = x_at(i);
    OK(h->c, ampc_tensor_create(h->c, name, AMPC_F64, 2, dims, x, &t));
    return t;
}

static inline double tensor_at(ampc_tensor *t, size_t i)
{
    const ir_dtype type = (ir_dtype)ampc_tensor_dtype(t);
    return ir_load_f64(type, (const char *)ampc_tensor_data(t) + i * ir_dtype_size(type));
}

static inline ampc_status run_rows(handles *h, const char *graph, int64_t rows)
{
    ampc_tensor *x = make_input(h, "x", rows, 3);
    ampc_status status = ampc_session_run(h->s, graph, &x, 1);
    ampc_tensor_free(x);
    return status;
}

#endif
