/* numeric_gradients.h - derivatives of an ONNX model with inputs in f64 against differences.
 *
 * The loss is the sum of all outputs, each element weighted differently. */
#ifndef AMPC_TESTS_NUMERIC_GRADIENTS_H
#define AMPC_TESTS_NUMERIC_GRADIENTS_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "tests/compile.h"
#include "tests/session.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { MAX_INPUTS = 4, MAX_ELEMENTS = 128 };

typedef struct problem {
    scratch *t;
    ir_module *module;
    rt_session *session;
    rt_tensor in[MAX_INPUTS];
    double data[MAX_INPUTS][MAX_ELEMENTS];
    int n;
    int64_t symbol; /* the size of all symbols */
} problem;

/* (1, 2, ...) / 8 */
static inline ir_value *weights_like(ir_builder *b, const ir_value *y)
{
    const ir_dim count = ir_type_count(b->graph->module->dims, &y->type);
    ir_node *ramp = ir_new(b, IR_OP_iota, 0);
    ir_set_list(ramp, IR_ATTR(iota, size), &count, 1);
    ir_set_dtype(ramp, IR_ATTR(iota, type), IR_i64);
    ir_value *v = ir_cast(b, ir_done(b, ramp), IR_f64);
    v = ir_binary(b, IR_OP_add, v, ir_scalar(b, IR_f64, 1));
    return ir_reshape_like(b, ir_binary(b, IR_OP_mul, v, ir_scalar(b, IR_f64, 1 / 8.0)), &y->type);
}

/* Adds sum(y * (1, 2, ...) / 8) for each output as the loss. */
static inline void add_loss(problem *p)
{
    ir_graph *g = ir_graph_find(p->module, "forward");
    ir_builder b = ir_builder_at_end(g, p->t->d);
    ir_value *loss = NULL;
    for (ir_node *n = g->last; n; n = n->prev) {
        if (n->op != IR_OP_output) continue;
        ir_value *y = ir_in(n, 0);
        int64_t axes[IR_MAX_RANK];
        for (int k = 0; k < y->type.rank; k++) axes[k] = k;
        ir_value *r = weights_like(&b, y);
        ir_value *sum = ir_reduce_sum(&b, ir_binary(&b, IR_OP_mul, y, r), axes, y->type.rank, false);
        loss = loss ? ir_binary(&b, IR_OP_add, loss, sum) : sum;
    }
    ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    g->role = IR_GRAPH_train;
}

static inline void open_problem_with(problem *p, wire file, const onnx_import_options *options)
{
    const compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    if (onnx_import_memory(file.bytes, file.size, "m.onnx", options, p->t->d, &p->module) != AMPC_OK)
        fail_msg("%s", diag_first_error(p->t->d));
    wire_free(&file);
    add_loss(p);
    if (test_pass(p->module, "autodiff", &o, p->t->d) != AMPC_OK) fail_msg("%s", diag_first_error(p->t->d));
    const ir_graph *g = ir_graph_find(p->module, "forward");
    for (p->n = 0; p->n < (int)g->inputs.count; p->n++) {
        const ir_value *v = g->inputs.items[p->n];
        rt_tensor *in = &p->in[p->n];
        *in = (rt_tensor){.name = v->name, .dtype = IR_f64, .rank = v->type.rank, .data = p->data[p->n]};
        for (int k = 0; k < in->rank; k++)
            in->dims[k] = ir_dim_is_symbolic(v->type.dims[k]) ? p->symbol : v->type.dims[k];
        for (int i = 0; i < MAX_ELEMENTS; i++) p->data[p->n][i] = 0.9 * sin(1.0 + p->n + 0.7 * i);
    }
    assert_int_equal(rt_session_open(p->module, &device, p->t->d, &p->session), AMPC_OK);
}

static inline void open_problem(problem *p, wire file) { open_problem_with(p, file, NULL); }

static inline double loss_of(problem *p)
{
    assert_int_equal(rt_session_run(p->session, "forward", p->in, p->n, p->t->d), AMPC_OK);
    return *(const double *)rt_session_output(p->session, "loss")->data;
}

static inline void check_input(problem *p, int input, bool reached)
{
    char name[32];
    double got[MAX_ELEMENTS], largest = 0;
    snprintf(name, sizeof name, "gradin/%s", p->in[input].name);
    loss_of(p);
    const rt_tensor *d = rt_session_output(p->session, name);
    int64_t count = 1;
    for (int i = 0; i < p->in[input].rank; i++) count *= p->in[input].dims[i];
    if (!d && !reached) return;
    assert_non_null(d);
    memcpy(got, d->data, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        double *x = &p->data[input][i];
        const double at = *x, h = 6e-6;
        *x = at + h;
        const double up = loss_of(p);
        *x = at - h;
        const double want = (up - loss_of(p)) / (2 * h);
        *x = at;
        largest = fmax(largest, fabs(want));
        if (!(fabs(got[i] - want) <= 1e-6 * fmax(1, fabs(want))))
            fail_msg("%s[%d]: %.9g, not %.9g", name, (int)i, got[i], want);
    }
    if (reached && !(largest > 1e-3)) fail_msg("%s: the case tests nothing", name);
}

static inline void close_problem(problem *p)
{
    rt_session_close(p->session);
    ir_module_free(p->module);
}

/* `reached`: whether the loss depends on the input; the derivative of another one may be absent or 0. */
static inline void check_problem(problem *p, bool (*reached)(const char *input))
{
    for (int i = 0; i < p->n; i++) check_input(p, i, reached(p->in[i].name));
}

static inline void check_gradients(scratch *t, wire file, bool (*reached)(const char *input))
{
    problem p = {.t = t};
    open_problem(&p, file);
    check_problem(&p, reached);
    close_problem(&p);
}

#endif
