/* test_forms.c - every operator that can be imported has a generator, which draws nodes that the importer accepts, and
 * its gradients are those of central differences.
 *
 * The gradients of the probe (probe.h) in f64 are compared with (loss(x+h) - loss(x-h)) / 2h, h = step max(1,|x|). They
 * agree if |a-n| <= 1e-7 + 1e-6 max(|a|,|n|) + 16 epsilon |loss| / h for one of the steps: smaller ones are for an x near
 * the kink of a function, larger ones for a loss that rounds much; at a kink or jump itself, a quotient of one side counts.
 * FORMS_SHOW in the environment prints the nodes that the importer refuses.
 * Below the full tier, the seeds of the drawings depend on AMPC_SEED (tests/tier.h). */
#include "tests/forms/probe.h"
#include "tests/gradients.h"
#include "tests/tier.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { COMBINATIONS = 20, ATTEMPTS = 200, MAX_ELEMENTS = 24 };

static const char *const operators[] = {
#define ROW(op, since, min_in, max_in, max_out, handler, arg) #op,
#include "frontend/lower/onnx_ops.def"
};

#define FAIL(p, format, ...) fail_msg("%s, seed %d: " format, (p)->form->op, (int)(p)->seed, __VA_ARGS__)

/* ---- one drawing --------------------------------------------------------------------------------------------- */

static double loss_of(probe *p, rt_session *s)
{
    return probe_run(p, s) ? *(const double *)rt_session_output(s, "loss")->data : NAN;
}

/* The quotient of the losses at x + sides[1] h and x + sides[0] h. Sets `rounding` to the error that the rounding of the loss
 * may cause. */
static double difference_quotient(probe *p, rt_session *s, double *x, double step, const int sides[2], double *rounding)
{
    const double at = *x, h = step * fmax(1, fabs(at));
    *x = at + sides[0] * h;
    const double below = loss_of(p, s);
    *x = at + sides[1] * h;
    const double above = loss_of(p, s);
    *x = at;
    *rounding = 16 * DBL_EPSILON * fmax(fabs(above), fabs(below)) / h;
    return (above - below) / ((sides[1] - sides[0]) * h);
}

/* Returns the difference quotient that agrees with `gradient`; if none does, the first one, and false in `agrees`. */
static double closest_quotient(probe *p, rt_session *s, double *x, double gradient, bool *agrees)
{
    static const struct {
        double step;
        int sides[2];
    } quotients[] = {{6e-6, {-1, 1}}, {6e-7, {-1, 1}}, {6e-5, {-1, 1}},
                     {6e-8, {-1, 1}}, {6e-8, {0, 1}},  {6e-8, {-1, 0}}};
    double first = 0;
    for (size_t i = 0; i < sizeof quotients / sizeof *quotients; i++) {
        double rounding;
        const double quotient = difference_quotient(p, s, x, quotients[i].step, quotients[i].sides, &rounding);
        *agrees = fabs(gradient - quotient) <= 1e-7 + 1e-6 * fmax(fabs(gradient), fabs(quotient)) + rounding;
        if (*agrees) return quotient;
        if (i == 0) first = quotient;
    }
    return first;
}

/* Compares some elements of one operand's gradient. Returns whether any of them is not zero. */
static bool compare_operand(probe *p, rt_session *s, const form_input *in)
{
    char name[24];
    bool differs = false;
    snprintf(name, sizeof name, "gradin/%s", in->t.name);
    loss_of(p, s);
    const rt_tensor *d = rt_session_output(s, name);
    const int64_t count = count_of(&in->t), step = count > MAX_ELEMENTS ? count / MAX_ELEMENTS : 1;
    if (!d) FAIL(p, "operand %s has no gradient", in->t.name);
    double *got = malloc((size_t)(count + 1) * sizeof *got);
    memcpy(got, d->data, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i += step) {
        bool agrees;
        const double want = closest_quotient(p, s, (double *)in->data + i, got[i], &agrees);
        differs |= fabs(want) > 1e-6;
        if (!agrees) FAIL(p, "operand %s, element %d: %.9g, numeric %.9g", in->t.name, (int)i, got[i], want);
    }
    free(got);
    return differs;
}

/* What the drawings of a form have compared. */
typedef struct comparison {
    int compared, differing; /* drawings; those with a gradient that is not zero */
    bool operands[FORM_OPERANDS];
    bool recorded; /* operands are known */
} comparison;

static void note_operands(const probe *p, comparison *c)
{
    for (int k = 0; k < p->w.n_operands; k++) {
        c->recorded = true;
        for (int i = 0; i < p->w.n_inputs; i++)
            if (probe_is_varied(p, &p->w.inputs[i]) && strcmp(p->w.inputs[i].t.name, p->w.operands[k]) == 0)
                c->operands[k] = true;
    }
}

/* The first operand that has a gradient by frontend/lower/gradients.def, but was in no drawing, or -1. Of any number of
 * operands, one is enough. */
static int find_missing(const form *f, const comparison *c)
{
    const bool any_number = gradient_mark(f->op, FORM_OPERANDS) != 0;
    for (int k = 0; k < FORM_OPERANDS && c->recorded && !f->no_gradient; k++) {
        const char mark = gradient_mark(f->op, k);
        if ((mark == ' ' || mark == '*') && !c->operands[k] && !(any_number && k > 0)) return k;
    }
    return -1;
}

/* The first operand whose gradient was compared, although it has none by the table, or -1. */
static int find_unexpected(const form *f, const comparison *c)
{
    for (int k = 0; k < FORM_OPERANDS; k++)
        if (c->operands[k] && !f->no_gradient && gradient_mark(f->op, k) != ' ' && gradient_mark(f->op, k) != '*')
            return k;
    return -1;
}

/* Sizes that do not fit are not compared. */
static void check(const form *f, uint64_t seed, comparison *c)
{
    probe p;
    bool differs = false;
    if (probe_open(&p, f, seed, ONNX_float64)) {
        rt_session *s = probe_session(&p, "cpu");
        if (s && !isnan(loss_of(&p, s))) {
            for (int i = 0; i < p.w.n_inputs; i++)
                if (probe_is_varied(&p, &p.w.inputs[i])) differs |= compare_operand(&p, s, &p.w.inputs[i]);
            c->compared++;
            note_operands(&p, c);
        }
        rt_session_close(s);
    } else if (!f->no_gradient && diag_count(p.d, DIAG_ERROR)) {
        FAIL(&p, "not differentiated: %s", diag_first_error(p.d));
    }
    if (getenv("FORMS_SHOW") && p.w.refusal[0]) print_message("%s, seed %d: %s\n", f->op, (int)seed, p.w.refusal);
    c->differing += differs;
    probe_close(&p);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void every_operator_has_a_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (!form_find(operators[i])) fail_msg("%s has no generator in tests/forms", operators[i]);
}

static bool agrees_with_the_table(const form *f, void *user)
{
    (void)user;
    const bool rounds = strstr(f->op, "uantizeLinear") != NULL; /* a difference quotient sees none */
    if (f->no_gradient && !rounds && gradient_of_any(f->op))
        print_error("%s has a reason to have no gradient, unlike frontend/lower/gradients.def\n", f->op);
    return !f->no_gradient || rounds || !gradient_of_any(f->op);
}

static void reasons_agree_with_the_table(void **state)
{
    (void)state;
    assert_true(form_each(agrees_with_the_table, NULL));
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

/* Operators with a reason are drawn as well, because the reason must be true. */
static bool has_gradients(const form *f, void *user)
{
    comparison c = {0};
    const uint64_t first = tier_first(ATTEMPTS);
    (void)user;
    for (uint64_t seed = first; seed < first + ATTEMPTS; seed++) {
        if (c.compared >= COMBINATIONS && find_missing(f, &c) < 0) break;
        check(f, seed, &c);
    }
    if (f->no_gradient && c.differing) fail_msg("%s has a gradient, but a reason to have none", f->op);
    if (!f->no_gradient && c.compared < COMBINATIONS)
        fail_msg("%s: only %d of %d drawings from seed %d on have a gradient", f->op, c.compared, ATTEMPTS, (int)first);
    const int missing = find_missing(f, &c), unexpected = find_unexpected(f, &c);
    if (missing >= 0) fail_msg("%s: no drawing varies operand %d, which has a gradient", f->op, missing);
    if (unexpected >= 0)
        fail_msg("%s: operand %d has a gradient, unlike frontend/lower/gradients.def", f->op, unexpected);
    return true;
}

static void gradients_are_difference_quotients(void **state)
{
    (void)state;
    if (tier_is_reduced()) print_message("seeds from %zu on\n", tier_first(ATTEMPTS));
    assert_true(form_each(has_gradients, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_form),
        cmocka_unit_test(every_form_is_of_an_operator),
        cmocka_unit_test(reasons_agree_with_the_table),
        cmocka_unit_test(gradients_are_difference_quotients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
