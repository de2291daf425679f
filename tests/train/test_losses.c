/* test_losses.c - the built-in losses and their gradients against PyTorch, in f64 (1e-9) and f32 (1e-5).
 *
 * Each row of losses.def has an output x, its labels, and what torch_losses.py computes for them. The network is x + w
 * with w = 0, so the gradient of w is that of x. */
#include "ir/ir.h"
#include "runtime/session/session.h"
#include "tests/compile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct stored {
    ir_dtype dtype;
    int rank;
    const int64_t *dims;
    const double *values;
} stored;

static const struct loss_case {
    const char *name, *loss;
    stored x, label;
    double expected;
    const double *gradient;
} cases[] = {
#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define VALUES(...) \
    (const double[]) { __VA_ARGS__ }
#define TENSOR(...) \
    { \
        __VA_ARGS__ \
    }
#define LOSS(...) {__VA_ARGS__},
#include "tests/train/losses.def"
};

static size_t count_of(const stored *t)
{
    size_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
    return n;
}

/* The tensor with floats of that type; the caller frees its data. */
static rt_tensor tensor_of(const stored *t, const char *name, ir_dtype floats)
{
    const ir_dtype dtype = t->dtype == IR_f64 ? floats : t->dtype;
    const size_t n = count_of(t), size = ir_dtype_size(dtype);
    rt_tensor out = {.name = name, .dtype = dtype, .rank = t->rank, .data = calloc(n + 1, size)};
    memcpy(out.dims, t->dims, (size_t)t->rank * sizeof *t->dims);
    for (size_t i = 0; i < n; i++) {
        if (dtype == IR_i64) ((int64_t *)out.data)[i] = (int64_t)t->values[i];
        else ir_store_f64(dtype, (char *)out.data + i * size, t->values[i]);
    }
    return out;
}

static ir_module *network(const struct loss_case *c, ir_dtype dtype)
{
    ir_module *m = ir_module_new();
    ir_graph *g = ir_graph_new(m, ir_graph_words[IR_GRAPH_forward]);
    ir_graph_set_role(g, IR_GRAPH_forward);
    const ir_type type = ir_type_make(dtype, c->x.rank, c->x.dims);
    diag *d = diag_new(NULL, NULL);
    ir_storage *w = ir_storage_new(m, IR_PARAM, "w", &type);
    ir_builder b = ir_builder_at_end(g, d);
    ir_output(&b, "s", ir_binary(&b, IR_OP_add, ir_graph_input(g, "x", &type), ir_graph_storage(g, w)));
    diag_free(d);
    return m;
}

static void expect_near(const struct loss_case *c, const char *what, double got, double expected, double scale,
                        double bound)
{
    if (!(fabs(got - expected) <= bound * fmax(1, scale)))
        fail_msg("%s (%s): %s is %.12g, PyTorch has %.12g", c->name, c->loss, what, got, expected);
}

static double element(const rt_tensor *t, size_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + i * ir_dtype_size(t->dtype));
}

static void compare(const struct loss_case *c, rt_session *s, double bound)
{
    const rt_tensor *loss = rt_session_output(s, "loss"), *gradient = rt_session_output(s, "grad/w");
    assert_non_null(loss);
    assert_non_null(gradient);
    double largest = 0;
    for (size_t i = 0; i < count_of(&c->x); i++) largest = fmax(largest, fabs(c->gradient[i]));
    expect_near(c, "the loss", element(loss, 0), c->expected, fabs(c->expected), bound);
    for (size_t i = 0; i < count_of(&c->x); i++)
        expect_near(c, "a gradient", element(gradient, i), c->gradient[i], largest, bound);
}

static void run_case(const struct loss_case *c, ir_dtype dtype, double bound)
{
    ir_module *m = network(c, dtype);
    diag *d = diag_new(NULL, NULL);
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    rt_session *s = NULL;
    o.level = PASS_O0;
    o.loss = c->loss;
    rt_tensor inputs[] = {tensor_of(&c->x, "x", dtype), tensor_of(&c->label, "label", dtype)};
    if (test_compile(m, &o, d) != AMPC_OK || rt_session_open(m, &device, d, &s) != AMPC_OK ||
        rt_session_run(s, "grad", inputs, 2, d) != AMPC_OK)
        fail_msg("%s (%s): %s", c->name, c->loss, diag_first_error(d));
    compare(c, s, bound);
    rt_session_close(s);
    for (int i = 0; i < 2; i++) free(inputs[i].data);
    diag_free(d);
    ir_module_free(m);
}

static void losses_match_in_f64(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], IR_f64, 1e-9);
}

static void losses_match_in_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], IR_f32, 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_match_in_f64),
        cmocka_unit_test(losses_match_in_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
