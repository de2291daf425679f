/* test_loss_relations.c - relations that each built-in loss has whatever its values: scores may be shifted, samples
 * exchanged and regrouped, labels inverted, and the loss scaled. In f32, with gradients compared element by element:
 * small ones count like large ones.
 *
 * The network is x + w with w = 0, so the gradient of w is that of x. All scores are multiples of 2^-8, so that a shift
 * by 2^14 is exact. */
#include "ir/ir.h"
#include "runtime/session/session.h"
#include "tests/compile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS = 8, CLASSES = 6, CELLS = ITEMS * CLASSES };

typedef struct batch {
    const char *loss;
    int items;
    bool classes; /* whether labels are indices of classes, else one number per score */
    double x[CELLS], label[CELLS];
} batch;

typedef struct outcome {
    double loss, gradient[CELLS];
} outcome;

/* ---- running ----------------------------------------------------------------------------------- */

static ir_module *network(const int64_t *dims, ir_dtype dtype)
{
    ir_module *m = ir_module_new();
    ir_graph *g = ir_graph_new(m, ir_graph_words[IR_GRAPH_forward]);
    ir_graph_set_role(g, IR_GRAPH_forward);
    const ir_type type = ir_type_make(dtype, 2, dims);
    diag *d = diag_new(NULL, NULL);
    ir_storage *w = ir_storage_new(m, IR_PARAM, "w", &type);
    ir_builder b = ir_builder_at_end(g, d);
    ir_output(&b, "s", ir_binary(&b, IR_OP_add, ir_graph_input(g, "x", &type), ir_graph_storage(g, w)));
    diag_free(d);
    return m;
}

static rt_tensor tensor_of(const char *name, const double *values, int rank, const int64_t *dims, ir_dtype dtype)
{
    const size_t n = (size_t)(rank > 1 ? dims[0] * dims[1] : dims[0]), size = ir_dtype_size(dtype);
    rt_tensor t = {.name = name, .dtype = dtype, .rank = rank, .data = calloc(n + 1, size)};
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    for (size_t i = 0; i < n; i++) {
        if (dtype == IR_i64) ((int64_t *)t.data)[i] = (int64_t)values[i];
        else ir_store_f64(dtype, (char *)t.data + i * size, values[i]);
    }
    return t;
}

static double element(const rt_tensor *t, int i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * ir_dtype_size(t->dtype));
}

static outcome evaluate_in(const batch *p, ir_dtype dtype)
{
    const int64_t dims[] = {p->items, CLASSES};
    ir_module *m = network(dims, dtype);
    diag *d = diag_new(NULL, NULL);
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    rt_session *s = NULL;
    o.level = PASS_O0;
    o.loss = p->loss;
    rt_tensor inputs[] = {tensor_of("x", p->x, 2, dims, dtype),
                          tensor_of("label", p->label, p->classes ? 1 : 2, dims, p->classes ? IR_i64 : dtype)};
    if (test_compile(m, &o, d) != AMPC_OK || rt_session_open(m, &device, d, &s) != AMPC_OK ||
        rt_session_run(s, "grad", inputs, 2, d) != AMPC_OK)
        fail_msg("%s: %s", p->loss, diag_first_error(d));
    outcome r = {.loss = element(rt_session_output(s, "loss"), 0)};
    for (int i = 0; i < p->items * CLASSES; i++) r.gradient[i] = element(rt_session_output(s, "grad/w"), i);
    rt_session_close(s);
    for (int i = 0; i < 2; i++) free(inputs[i].data);
    diag_free(d);
    ir_module_free(m);
    return r;
}

static outcome evaluate(const batch *p) { return evaluate_in(p, IR_f32); }

/* ---- batches ----------------------------------------------------------------------------------- */

enum { SCORES, PROBABILITIES };

static const struct loss {
    const char *name;
    bool classes, shifts; /* shifts: the same number may be added to all scores of a sample */
    int values;           /* of x */
    bool odd;             /* inverting x and labels inverts the gradient */
    double cancels;       /* relative error of gradients that the definition itself loses; 0: none */
} losses[] = {
    {"ce", true, true, SCORES, false, 0},
    {"ce,label_smoothing=0.1", true, true, SCORES, false, 1e-4},
    {"ce,class_weights=1/2/3/1/2/0.5", true, true, SCORES, false, 0},
    {"ce,ignore_index=2", true, true, SCORES, false, 0},
    {"soft_ce", false, true, SCORES, false, 1e-1}, /* y - p */
    {"bce_logits", false, false, SCORES, true, 0},
    {"focal,alpha=0.5", false, false, SCORES, true, 0},
    {"focal,alpha=-1,gamma=0", false, false, SCORES, true, 0},
    {"bce", false, false, PROBABILITIES, true, 0},
    {"mse", false, false, SCORES, false, 0},
    {"l1", false, false, SCORES, false, 0},
    {"huber", false, false, SCORES, false, 0},
    {"smooth_l1", false, false, SCORES, false, 0},
    {"cosine,axis=1", false, false, SCORES, false, 1e-2},
};
enum { LOSSES = sizeof losses / sizeof *losses };

/* Scores from -16 to 16, or probabilities, with hard labels. */
static batch batch_of(const struct loss *l)
{
    batch p = {.loss = l->name, .items = ITEMS, .classes = l->classes};
    uint32_t seed = 12345;
    for (int i = 0; i < CELLS; i++) {
        seed = seed * 1664525 + 1013904223;
        p.x[i] = (double)(seed >> 19) / 256 - 16;
        if (l->values == PROBABILITIES) p.x[i] = ((double)(seed >> 19) + 0.5) / 8192;
        if (l->classes && i < ITEMS) p.label[i] = (double)((seed >> 8) % CLASSES);
        if (!l->classes) p.label[i] = (double)(seed >> 8 & 1);
    }
    if (strncmp(l->name, "soft_ce", 7) == 0)
        for (int i = 0; i < CELLS; i++) p.label[i] = i % CLASSES == i / CLASSES % CLASSES;
    return p;
}

static void expect_near(const char *loss, const char *relation, int i, double got, double expected, double bound)
{
    if (!(fabs(got - expected) <= bound * fabs(expected) + 1e-37))
        fail_msg("%s, %s: %s %d is %.9g, not %.9g", loss, relation, i < 0 ? "the loss" : "gradient", i, got, expected);
}

static void expect_same(const struct loss *l, const char *relation, const outcome *got, const outcome *expected, int n,
                        double bound)
{
    expect_near(l->name, relation, -1, got->loss, expected->loss, bound);
    for (int i = 0; i < n; i++)
        expect_near(l->name, relation, i, got->gradient[i], expected->gradient[i], bound + 1e-4 * l->cancels);
}

/* ---- relations --------------------------------------------------------------------------------- */

static void f32_has_the_gradients_of_f64(void **state)
{
    (void)state;
    for (int k = 0; k < LOSSES; k++) {
        const batch p = batch_of(&losses[k]);
        const outcome got = evaluate(&p), expected = evaluate_in(&p, IR_f64);
        expect_near(p.loss, "f64", -1, got.loss, expected.loss, 1e-5);
        for (int i = 0; i < CELLS; i++)
            expect_near(p.loss, "f64", i, got.gradient[i], expected.gradient[i],
                        losses[k].cancels > 0 ? losses[k].cancels : 1e-5);
    }
}

static void scores_may_be_shifted(void **state)
{
    (void)state;
    for (int k = 0; k < LOSSES; k++) {
        batch p = batch_of(&losses[k]), shifted = p;
        for (int i = 0; i < CELLS; i++) shifted.x[i] += i / CLASSES % 2 ? 0x1p14 : -0x1p14;
        if (!losses[k].shifts) continue;
        const outcome expected = evaluate(&p), got = evaluate(&shifted);
        const bool smooth = losses[k].cancels == 1e-4; /* its loss is a difference with the mean of the scores */
        expect_near(p.loss, "shift", -1, got.loss, expected.loss, smooth ? 1e-3 : 1e-6);
        for (int i = 0; i < CELLS; i++)
            expect_near(p.loss, "shift", i, got.gradient[i], expected.gradient[i], 1e-5 + losses[k].cancels);
    }
}

static void samples_may_be_exchanged(void **state)
{
    (void)state;
    for (int k = 0; k < LOSSES; k++) {
        const batch p = batch_of(&losses[k]);
        batch turned = p;
        for (int i = 0; i < CELLS; i++) {
            const int from = (ITEMS - 1 - i / CLASSES) * CLASSES + i % CLASSES;
            turned.x[i] = p.x[from];
            if (!p.classes) turned.label[i] = p.label[from];
            if (p.classes && i < ITEMS) turned.label[i] = p.label[ITEMS - 1 - i];
        }
        const outcome expected = evaluate(&p), got = evaluate(&turned);
        outcome back = got;
        for (int i = 0; i < CELLS; i++)
            back.gradient[(ITEMS - 1 - i / CLASSES) * CLASSES + i % CLASSES] = got.gradient[i];
        expect_same(&losses[k], "exchanged samples", &back, &expected, CELLS, 1e-6);
    }
}

/* The mean over a batch is that of its halves, unless the numbers of labels or their weights differ. */
static void batches_may_be_regrouped(void **state)
{
    (void)state;
    for (int k = 0; k < LOSSES; k++) {
        const batch p = batch_of(&losses[k]);
        if (strstr(p.loss, "weights") || strstr(p.loss, "ignore")) continue;
        outcome sum = {0};
        for (int half = 0; half < 2; half++) {
            batch q = p;
            q.items = ITEMS / 2;
            memcpy(q.x, p.x + half * CELLS / 2, sizeof p.x / 2);
            memcpy(q.label, p.label + (p.classes ? half * ITEMS / 2 : half * CELLS / 2), sizeof p.label / 2);
            const outcome part = evaluate(&q);
            sum.loss += part.loss / 2;
            for (int i = 0; i < CELLS / 2; i++) sum.gradient[half * CELLS / 2 + i] = part.gradient[i] / 2;
        }
        const outcome expected = evaluate(&p);
        expect_same(&losses[k], "regrouped", &sum, &expected, CELLS, 1e-6);
    }
}

/* A power of two as the weight of the loss changes exponents only. */
static void losses_may_be_scaled(void **state)
{
    (void)state;
    for (int k = 0; k < LOSSES; k++) {
        char text[128];
        const batch p = batch_of(&losses[k]);
        batch scaled = p;
        snprintf(text, sizeof text, "%s,weight=0.0009765625", p.loss);
        scaled.loss = text;
        outcome expected = evaluate(&p), got = evaluate(&scaled);
        got.loss *= 1024;
        for (int i = 0; i < CELLS; i++) got.gradient[i] *= 1024;
        expect_same(&(struct loss){.name = p.loss}, "scaled", &got, &expected, CELLS, 0);
    }
}

static void binary_labels_may_be_inverted(void **state)
{
    (void)state;
    for (int k = 0; k < LOSSES; k++) {
        const batch p = batch_of(&losses[k]);
        batch inverse = p;
        if (!losses[k].odd) continue;
        for (int i = 0; i < CELLS; i++) {
            inverse.x[i] = losses[k].values == PROBABILITIES ? 1 - p.x[i] : -p.x[i];
            inverse.label[i] = 1 - p.label[i];
        }
        const outcome expected = evaluate(&p);
        outcome got = evaluate(&inverse);
        for (int i = 0; i < CELLS; i++) got.gradient[i] = -got.gradient[i];
        expect_same(&losses[k], "inverted labels", &got, &expected, CELLS, 2e-7);
    }
}

/* As in PyTorch: the loss is bounded, and the gradient is not zero where it is needed most. */
static void impossible_labels_have_a_gradient(void **state)
{
    (void)state;
    batch p = {.loss = "bce", .items = 1, .x = {0, 1, 0, 1, 0.5, 0x1p-60}, .label = {1, 0, 0, 1, 1, 1}};
    const double expected[] = {-1e12, 1e12, 1, -1, -2, -1e12};
    const outcome r = evaluate(&p);
    expect_near("bce", "certainty", -1, r.loss, (200 + log(2) + 60 * log(2)) / CLASSES, 1e-6);
    for (int i = 0; i < CLASSES; i++) expect_near("bce", "certainty", i, r.gradient[i] * CLASSES, expected[i], 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_has_the_gradients_of_f64),
        cmocka_unit_test(scores_may_be_shifted),
        cmocka_unit_test(samples_may_be_exchanged),
        cmocka_unit_test(batches_may_be_regrouped),
        cmocka_unit_test(losses_may_be_scaled),
        cmocka_unit_test(binary_labels_may_be_inverted),
        cmocka_unit_test(impossible_labels_have_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
