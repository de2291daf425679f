/* loss_net.h - a loss and its gradient with respect to the output x of a network, for tests of losses.
 *
 * The network is x + w with w = 0, or an operator of that sum, so the gradient of w is that of x. */
#ifndef TESTS_LOSS_NET_H
#define TESTS_LOSS_NET_H

#include "ir/graph/ir.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/test.h"

typedef struct loss_tensor {
    ir_dtype dtype; /* f64 also for floats of another type */
    int rank;
    const int64_t *dims;
    const double *values;
} loss_tensor;

static inline size_t loss_count(const loss_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
    return n;
}

/* The tensor with floats of that type; the caller frees its data. */
static inline rt_tensor loss_tensor_of(const loss_tensor *t, const char *name, ir_dtype floats)
{
    const ir_dtype dtype = t->dtype == IR_f64 ? floats : t->dtype;
    const size_t n = loss_count(t), size = ir_dtype_size(dtype);
    rt_tensor out = {.name = name, .dtype = dtype, .rank = t->rank, .data = calloc(n + 1, size)};
    memcpy(out.dims, t->dims, (size_t)t->rank * sizeof *t->dims);
    for (size_t i = 0; i < n; i++) {
        if (dtype == IR_i64) ((int64_t *)out.data)[i] = (int64_t)t->values[i];
        else ir_store_f64(dtype, (char *)out.data + i * size, t->values[i]);
    }
    return out;
}

/* `op`: of the sum, along its last axis; IR_OP_add for the sum itself. */
static inline ir_module *loss_network(const loss_tensor *x, ir_op op, ir_dtype dtype)
{
    ir_module *m = ir_module_new();
    ir_graph *g = ir_graph_new(m, ir_graph_words[IR_GRAPH_forward]);
    ir_graph_set_role(g, IR_GRAPH_forward);
    const ir_type type = ir_type_make(dtype, x->rank, x->dims);
    diag *d = diag_new(NULL, NULL);
    ir_storage *w = ir_storage_new(m, IR_PARAM, "w", &type);
    ir_builder b = ir_builder_at_end(g, d);
    ir_value *sum = ir_binary(&b, IR_OP_add, ir_graph_input(g, "x", &type), ir_graph_storage(g, w));
    ir_output(&b, "s", op == IR_OP_add ? sum : ir_unary(&b, op, sum));
    diag_free(d);
    return m;
}

static inline double loss_element(const rt_tensor *t, size_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + i * ir_dtype_size(t->dtype));
}

/* Returns the loss; gradient[i] is that of x[i]. `op`: of the network, IR_OP_add for none. */
static inline double loss_run(const char *loss, ir_op op, const loss_tensor *x, const loss_tensor *label,
                              ir_dtype floats, double *gradient)
{
    ir_module *m = loss_network(x, op, floats);
    diag *d = diag_new(NULL, NULL);
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    rt_session *s = NULL;
    o.level = PASS_O0;
    o.loss = loss;
    rt_tensor inputs[] = {loss_tensor_of(x, "x", floats), loss_tensor_of(label, "label", floats)};
    if (test_compile(m, &o, d) != AMPC_OK || rt_session_open(m, &device, d, &s) != AMPC_OK ||
        rt_session_run(s, "grad", inputs, 2, d) != AMPC_OK)
        fail_msg("%s: %s", loss, diag_first_error(d));
    const double value = loss_element(rt_session_output(s, "loss"), 0);
    const rt_tensor *dw = rt_session_output(s, "grad/w");
    assert_non_null(dw);
    for (size_t i = 0; i < loss_count(x); i++) gradient[i] = loss_element(dw, i);
    rt_session_close(s);
    for (int i = 0; i < 2; i++) free(inputs[i].data);
    diag_free(d);
    ir_module_free(m);
    return value;
}

#endif
