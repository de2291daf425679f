/* test_forms.c - every operator that can be imported has a generator, which draws nodes that the importer accepts, and
 * its gradients are those of central differences.
 *
 * The loss is sum(y * r) over all float results y, with random r. Autodiff computes d(loss)/dx for each operand x, in
 * f64; the reference is (loss(x+h) - loss(x-h)) / 2h with h = 6e-6 max(1,|x|). They agree if
 * |a-n| <= 1e-7 + 1e-6 max(|a|,|n|). */
#include "frontend/onnx.h"
#include "passes/pass.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/forms/form.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { COMBINATIONS = 20, ATTEMPTS = 200, MAX_PROBES = 24 };

static const struct {
    const char *op;
    int since;
} operators[] = {
#define ROW(op, since, min_in, max_in, max_out, handler, arg) {#op, since},
#include "frontend/lower/onnx_ops.def"
};

enum { OPERATORS = sizeof operators / sizeof *operators };

/* ---- one drawing --------------------------------------------------------------------------------------------- */

typedef struct probe {
    const form *form;
    uint64_t seed;
    choices c;
    drawing w;
    diag *d;
    ir_module *m;
    rt_session *s;
    rt_tensor in[FORM_INPUTS + FORM_POOL];
    double *factors[FORM_POOL];
    int n;
    bool differs; /* some derivative is not zero */
} probe;

#define FAIL(p, format, ...) fail_msg("%s, seed %d: " format, (p)->form->op, (int)(p)->seed, __VA_ARGS__)

/* Draws a node of the form, of the opset that the seed chooses among those with different rules. */
static bool draw(probe *p)
{
    int since[16], n = 0;
    for (int i = 0; i < OPERATORS && n < 16; i++)
        if (strcmp(operators[i].op, p->form->op) == 0) since[n++] = operators[i].since < 7 ? 7 : operators[i].since;
    const uint8_t bytes[] = {(uint8_t)p->seed,        (uint8_t)(p->seed >> 8), (uint8_t)p->form->op[0],
                             (uint8_t)p->form->op[1], (uint8_t)p->form->op[2], (uint8_t)strlen(p->form->op)};
    p->c = choices_start(bytes, sizeof bytes);
    p->c.at = sizeof bytes;
    const int row = choose(&p->c, n), last = row + 1 < n ? since[row + 1] - 1 : 23;
    const int opset = since[row] + choose(&p->c, (last < since[row] ? since[row] : last) - since[row] + 1);
    p->w = drawing_start(&p->c, opset);
    p->w.exact = true;
    p->w.special = false;
    return drawing_add(&p->w, p->form);
}

static bool is_varied(const form_input *in) { return in->varied && in->t.type == ONNX_float64; }

static rt_tensor runtime_tensor(const form_input *in)
{
    rt_tensor t = {.name = in->t.name, .dtype = onnx_type_dtype(in->t.type), .rank = in->t.rank, .data = in->data};
    memcpy(t.dims, in->t.dims, sizeof *t.dims * (size_t)t.rank);
    return t;
}

/* Adds sum(y * r) of a float result to the loss; r is an input of the graph. Returns the new loss. */
static ir_value *weigh(probe *p, ir_builder *b, const tensor *result, ir_value *y, ir_value *loss)
{
    char name[16];
    snprintf(name, sizeof name, "r_%s", result->name);
    ir_value *r = ir_graph_input(ir_graph_find(p->m, "forward"), name, &y->type);
    r->role = IR_INPUT_label;
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < y->type.rank; i++) axes[i] = i;
    const values range = {0.5, 2};
    form_input weights = {.t = *result};
    weights.t.type = ONNX_float64;
    const int64_t count = count_of(result);
    double *data = calloc((size_t)count + 1, sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = range.low + (range.high - range.low) * (choices_word(&p->c) * 0x1p-32);
    weights.data = p->factors[p->n - p->w.n_inputs] = data;
    p->in[p->n] = runtime_tensor(&weights);
    p->in[p->n++].name = r->name;
    ir_value *product = ir_binary(b, IR_OP_mul, y, r);
    ir_value *sum = y->type.rank ? ir_reduce_sum(b, product, axes, y->type.rank, false) : product;
    return loss ? ir_binary(b, IR_OP_add, loss, sum) : sum;
}

/* Turns @forward into a graph whose only output is the loss. Returns false if no result is a float. */
static bool add_loss(probe *p)
{
    ir_graph *g = ir_graph_find(p->m, "forward");
    ir_builder b = ir_builder_at_end(g, p->d);
    ir_value *loss = NULL;
    for (int i = 0; i < p->w.n_results; i++) {
        ir_node *output = ir_graph_find_output(g, p->w.results[i].name);
        if (!output || output->in[0].value->type.dtype != IR_f64 || p->w.results[i].rank < 0) continue;
        loss = weigh(p, &b, &p->w.results[i], output->in[0].value, loss);
    }
    if (loss) ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    g->role = IR_GRAPH_train;
    return loss != NULL;
}

static bool import(probe *p)
{
    int outputs[FORM_POOL], n;
    wire file = drawing_file(&p->w, outputs, &n, true);
    const ampc_status status = onnx_import_memory(file.bytes, file.size, "drawn.onnx", NULL, p->d, &p->m);
    wire_free(&file);
    for (int i = 0; i < p->w.n_inputs; i++) p->in[p->n++] = runtime_tensor(&p->w.inputs[i]);
    return status == AMPC_OK;
}

static bool differentiate(probe *p)
{
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    return test_pass(p->m, "autodiff", &o, p->d) == AMPC_OK && rt_session_open(p->m, &device, p->d, &p->s) == AMPC_OK;
}

static double loss_of(probe *p)
{
    if (rt_session_seed(p->s, 5, p->d) != AMPC_OK || rt_session_run(p->s, "forward", p->in, p->n, p->d) != AMPC_OK)
        return NAN;
    return *(const double *)rt_session_output(p->s, "loss")->data;
}

static double difference_quotient(probe *p, double *x)
{
    const double at = *x, h = 6e-6 * fmax(1, fabs(at));
    *x = at + h;
    const double up = loss_of(p);
    *x = at - h;
    const double down = loss_of(p);
    *x = at;
    return (up - down) / (2 * h);
}

/* Compares some elements of one operand's gradient. */
static void compare_operand(probe *p, const form_input *in)
{
    char name[24];
    snprintf(name, sizeof name, "gradin/%s", in->t.name);
    loss_of(p);
    const rt_tensor *d = rt_session_output(p->s, name);
    const int64_t count = count_of(&in->t), step = count > MAX_PROBES ? count / MAX_PROBES : 1;
    if (!d) FAIL(p, "operand %s has no gradient", in->t.name);
    double *got = malloc((size_t)(count + 1) * sizeof *got);
    memcpy(got, d->data, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i += step) {
        const double want = difference_quotient(p, (double *)in->data + i);
        p->differs |= fabs(want) > 1e-6;
        if (!(fabs(got[i] - want) <= 1e-7 + 1e-6 * fmax(fabs(got[i]), fabs(want))))
            FAIL(p, "operand %s, element %d: %.9g, numeric %.9g", in->t.name, (int)i, got[i], want);
    }
    free(got);
}

static void close_probe(probe *p)
{
    for (int i = 0; i < p->n - p->w.n_inputs; i++) free(p->factors[i]);
    rt_session_close(p->s);
    ir_module_free(p->m);
    drawing_free(&p->w);
    diag_free(p->d);
}

static bool has_varied_operand(const drawing *w)
{
    for (int i = 0; i < w->n_inputs; i++)
        if (is_varied(&w->inputs[i])) return true;
    return false;
}

/* Returns whether gradients were compared; a form that the importer refuses, or sizes that do not fit, are not. */
static bool check(probe *p)
{
    if (!draw(p) || !has_varied_operand(&p->w) || !import(p) || !add_loss(p)) return false;
    if (!differentiate(p)) FAIL(p, "not differentiated: %s", diag_first_error(p->d));
    if (isnan(loss_of(p))) return false;
    for (int i = 0; i < p->w.n_inputs; i++)
        if (is_varied(&p->w.inputs[i])) compare_operand(p, &p->w.inputs[i]);
    return true;
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void every_operator_has_a_form(void **state)
{
    (void)state;
    for (int i = 0; i < OPERATORS; i++)
        if (!form_find(operators[i].op)) fail_msg("%s has no generator in tests/forms", operators[i].op);
}

static bool is_importable(const form *f, void *user)
{
    (void)user;
    if (!form_since(f->op)) print_error("%s cannot be imported\n", f->op);
    return form_since(f->op);
}

static void every_form_is_of_an_operator(void **state)
{
    (void)state;
    assert_true(form_each(is_importable, NULL));
}

static void require_gradients(const form *f, int compared, int differing)
{
    if (f->no_gradient && differing) fail_msg("%s has a gradient, but a reason to have none", f->op);
    if (!f->no_gradient && compared < COMBINATIONS)
        fail_msg("%s: only %d of %d drawings have a gradient", f->op, compared, ATTEMPTS);
}

/* Operators with a reason are drawn as well, because the reason must be true. */
static bool has_gradients(const form *f, void *user)
{
    int compared = 0, differing = 0;
    for (uint64_t seed = 0; seed < ATTEMPTS && compared < COMBINATIONS; seed++) {
        probe p = {.form = f, .seed = seed, .d = diag_new(NULL, NULL)};
        compared += check(&p);
        differing += p.differs;
        if (getenv("FORMS_SHOW") && p.w.refusal[0]) print_message("%s, seed %d: %s\n", f->op, (int)seed, p.w.refusal);
        close_probe(&p);
    }
    require_gradients(f, compared, differing);
    (void)user;
    return true;
}

static void gradients_are_difference_quotients(void **state)
{
    (void)state;
    assert_true(form_each(has_gradients, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_form),
        cmocka_unit_test(every_form_is_of_an_operator),
        cmocka_unit_test(gradients_are_difference_quotients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
