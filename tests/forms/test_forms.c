/* test_forms.c - every operator that can be imported has a generator, which draws nodes that the importer accepts, and
 * its gradients are those of central differences.
 *
 * The gradients of the probe (probe.h) in f64 are compared with (loss(x+h) - loss(x-h)) / 2h, h = step max(1,|x|). They
 * agree if |a-n| <= 1e-7 + 1e-6 max(|a|,|n|) + 16 epsilon |loss| / h for one of the steps: smaller ones are for an x near
 * the kink of a function, larger ones for a loss that rounds much; at a kink or jump itself, a quotient of one side counts.
 * Operators whose results are f32 have wider limits. Each operand is an input of the model, an initializer, which must be a
 * parameter then, and computed from one, for each form of an operator (row of frontend/onnx.def).
 * FORMS_SHOW in the environment prints the nodes that the importer refuses.
 * Below the full tier, the seeds of the drawings depend on AMPC_SEED (tests/tier.h). */
#include "frontend/onnx.h"
#include "tests/forms/probe.h"
#include "tests/gradients.h"
#include "tests/session.h"
#include "tests/test.h"
#include "tests/tier.h"

#include <float.h>
#include <math.h>

enum { COMBINATIONS = 16, ATTEMPTS = 200, MAX_ELEMENTS = 16, MAX_ROWS = 16, FIRST_OPSET = 7 };

static const char *const roles[] = {"given", "stored", "computed"};

static const struct {
    const char *op;
    int since, max;
} operators[] = {
#define FORM(op, since, min_in, max_in, max_out, handler, arg) {#op, since, max_in},
#include "frontend/onnx.def"
};
enum { ROWS = sizeof operators / sizeof *operators };

#define FAIL(p, format, ...) fail_msg("%s, seed %d: " format, (p)->form->op, (int)(p)->seed, __VA_ARGS__)

/* ---- one drawing --------------------------------------------------------------------------------------------- */

static double element(const rt_tensor *t, int64_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * ir_dtype_size(t->dtype));
}

static double loss_of(probe *p, rt_session *s)
{
    return probe_run(p, s) ? element(rt_session_output(s, "loss"), 0) : NAN;
}

static const char *name_of(const form_input *in, const char *before, char text[32])
{
    snprintf(text, 32, "%s%s%s", before, in->t.name, in->role == FORM_COMPUTED ? ".minus" : "");
    return text;
}

/* An element of an operand. */
typedef struct place {
    const form_input *in;
    int64_t i;
} place;

static ir_dtype type_of(place x) { return onnx_type_dtype(x.in->t.type); }

static double place_get(place x)
{
    return ir_load_f64(type_of(x), (const char *)x.in->data + (size_t)x.i * ir_dtype_size(type_of(x)));
}

static void place_set(probe *p, rt_session *s, place x, double value)
{
    char name[32];
    const size_t size = ir_dtype_size(type_of(x));
    const int64_t n = count_of(&x.in->t);
    ir_store_f64(type_of(x), (char *)x.in->data + (size_t)x.i * size, value);
    if (x.in->role == FORM_GIVEN) return;
    char *stored = malloc((size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        const double at = place_get((place){x.in, i});
        ir_store_f64(type_of(x), stored + (size_t)i * size, x.in->role == FORM_COMPUTED ? -at : at);
    }
    assert_int_equal(rt_session_write(s, test_storage_find(s, name_of(x.in, "", name)), stored, p->d), AMPC_OK);
    free(stored);
}

/* The quotient of the losses at x + sides[1] h and x + sides[0] h. Sets `rounding` to the error that the rounding of the loss
 * may cause. */
static double difference_quotient(probe *p, rt_session *s, place x, double step, const int sides[2], double *rounding)
{
    const double at = place_get(x), h = step * fmax(1, fabs(at));
    place_set(p, s, x, at + sides[0] * h);
    const double below = loss_of(p, s);
    place_set(p, s, x, at + sides[1] * h);
    const double above = loss_of(p, s);
    place_set(p, s, x, at);
    *rounding = 16 * DBL_EPSILON * fmax(fabs(above), fabs(below)) / h;
    return (above - below) / ((sides[1] - sides[0]) * h);
}

/* Returns the difference quotient that agrees with `gradient`; if none does, the first one, and false in `agrees`. */
static double closest_quotient(probe *p, rt_session *s, place x, double gradient, bool *agrees)
{
    static const struct {
        double step;
        int sides[2];
    } quotients[] = {{6e-6, {-1, 1}}, {6e-7, {-1, 1}}, {6e-5, {-1, 1}}, {6e-8, {-1, 1}},
                     {6e-8, {0, 1}},  {6e-8, {-1, 0}}, {4e-3, {-1, 1}}};
    enum { SINGLE = sizeof quotients / sizeof *quotients - 1 };
    const bool single = p->type == ONNX_float32;
    const double absolute = single ? 2e-3 : 1e-7, relative = single ? 1e-2 : 1e-6;
    double first = 0;
    for (int i = single ? SINGLE : 0; i < SINGLE + single; i++) {
        double rounding;
        const double quotient = difference_quotient(p, s, x, quotients[i].step, quotients[i].sides, &rounding);
        *agrees = fabs(gradient - quotient) <= absolute + relative * fmax(fabs(gradient), fabs(quotient)) + rounding;
        if (*agrees) return quotient;
        if (i == 0 || single) first = quotient;
    }
    return first;
}

/* Whether nothing reads the operand: its gradient is zero if it is an input. */
static bool is_unread(const probe *p, const form_input *in)
{
    probe given;
    char name[32];
    bool differs = !probe_open(&given, p->form, p->seed, p->type, FORM_GIVEN);
    rt_session *s = differs ? NULL : probe_session(&given, "cpu");
    differs |= !s || isnan(loss_of(&given, s));
    snprintf(name, sizeof name, "gradin/%s", in->t.name);
    const rt_tensor *d = differs ? NULL : rt_session_output(s, name);
    for (int64_t i = 0; d && i < count_of(&in->t); i++) differs |= ((const double *)d->data)[i] != 0;
    rt_session_close(s);
    probe_close(&given);
    return d && !differs;
}

/* Compares some elements of one operand's gradient. Returns whether any of them is not zero. */
static bool compare_operand(probe *p, rt_session *s, const form_input *in)
{
    char name[32];
    bool differs = false;
    loss_of(p, s);
    const rt_tensor *d = rt_session_output(s, name_of(in, in->role == FORM_GIVEN ? "gradin/" : "grad/", name));
    const int64_t count = count_of(&in->t), step = count > MAX_ELEMENTS ? count / MAX_ELEMENTS : 1;
    if (!d && in->role != FORM_GIVEN && is_unread(p, in)) return false;
    if (!d) FAIL(p, "%s operand %s has no gradient", roles[in->role], in->t.name);
    double *got = malloc((size_t)(count + 1) * sizeof *got);
    for (int64_t i = 0; i < count; i++) got[i] = element(d, i);
    for (int64_t i = 0; i < count; i += step) {
        bool agrees;
        if (in->role == FORM_COMPUTED) got[i] = -got[i];
        const double want = closest_quotient(p, s, (place){in, i}, got[i], &agrees);
        differs |= fabs(want) > 1e-6;
        if (!agrees)
            FAIL(p, "%s operand %s, element %d: %.9g, numeric %.9g", roles[in->role], in->t.name, (int)i, got[i], want);
    }
    free(got);
    return differs;
}

/* What the drawings of a form have compared. */
typedef struct comparison {
    int compared, differing;                   /* drawings; those with a gradient that is not zero */
    uint8_t operands[MAX_ROWS][FORM_OPERANDS]; /* by row of the operator and operand: 1 << role */
    bool recorded;                             /* operands are known */
} comparison;

static char mark_of(const probe *p, const form_input *in)
{
    for (int k = 0; k < p->w.n_operands; k++)
        if (strcmp(in->t.name, p->w.operands[k]) == 0) return gradient_mark(p->form->op, k);
    return ' ';
}

/* Whether a stored operand is constant: a setting, or one without a gradient. */
static bool is_held(const probe *p, const form_input *in)
{
    const char mark = mark_of(p, in);
    return in->role == FORM_STORED && (!in->varied || (mark && mark != ' '));
}

static void check_held(probe *p, const form_input *in)
{
    const ir_storage *s = ir_storage_find(p->m, in->t.name);
    if (s && s->kind == IR_PARAM && !s->frozen) FAIL(p, "operand %s is a parameter", in->t.name);
}

static int first_row(const char *op)
{
    int i = 0;
    while (i < ROWS && strcmp(operators[i].op, op) != 0) i++;
    return i;
}

static void note_operands(const probe *p, comparison *c)
{
    const int row = probe_row(p) - first_row(p->form->op);
    assert_in_range(row, 0, MAX_ROWS - 1);
    for (int k = 0; k < p->w.n_operands; k++) {
        c->recorded = true;
        for (int i = 0; i < p->w.n_inputs; i++) {
            const form_input *in = &p->w.inputs[i];
            if (probe_is_varied(p, in) && !is_held(p, in) && strcmp(in->t.name, p->w.operands[k]) == 0)
                c->operands[row][k] |= (uint8_t)(1 << in->role);
        }
    }
}

/* Finds an operand of a row that has a gradient by frontend/onnx.def, but was in no drawing in one of its
 * roles. A setting is stored without being trained. Of any number of operands, one is enough. */
static bool find_missing(const form *f, const comparison *c, int *row, int *operand, form_role *role)
{
    const int first = first_row(f->op);
    if (!c->recorded || f->no_gradient) return false;
    for (int i = first; i < ROWS && strcmp(operators[i].op, f->op) == 0; i++) {
        const bool is_last = i + 1 == ROWS || strcmp(operators[i + 1].op, f->op) != 0,
                   any = operators[i].max == ONNX_ANY;
        if (!is_last && operators[i + 1].since <= FIRST_OPSET) continue;
        for (int k = 0; k < FORM_OPERANDS && (any ? k < 1 : k < operators[i].max); k++) {
            const char mark = gradient_mark(f->op, k);
            uint8_t seen = 0;
            for (int other = k; other < (any ? FORM_OPERANDS : k + 1); other++) seen |= c->operands[i - first][other];
            *row = i, *operand = k;
            for (*role = FORM_STORED; *role < FORM_ROLES; ++*role) {
                const bool due = mark == ' ' || (mark == '*' && *role == FORM_COMPUTED);
                if (due && !(seen & 1 << *role)) return true;
            }
        }
    }
    return false;
}

/* The first operand whose gradient was compared, although it has none by the table, or -1. */
static int find_unexpected(const form *f, const comparison *c)
{
    for (int k = 0; k < FORM_OPERANDS; k++)
        for (int row = 0; row < MAX_ROWS; row++)
            if (c->operands[row][k] && !f->no_gradient && !strchr(" *", gradient_mark(f->op, k))) return k;
    return -1;
}

/* Sizes that do not fit are not compared. */
static void check(const form *f, uint64_t seed, unsigned as, comparison *c)
{
    probe p;
    bool differs = false;
    if (probe_open(&p, f, seed, *f->types == 'F' ? ONNX_float32 : ONNX_float64, as)) {
        rt_session *s = probe_session(&p, "cpu");
        if (s && !isnan(loss_of(&p, s))) {
            for (int i = 0; i < p.w.n_inputs; i++)
                if (is_held(&p, &p.w.inputs[i])) check_held(&p, &p.w.inputs[i]);
                else if (probe_is_varied(&p, &p.w.inputs[i])) differs |= compare_operand(&p, s, &p.w.inputs[i]);
            c->compared++;
            if (first_row(f->op) < ROWS) note_operands(&p, c);
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

TEST(every_operator_has_a_form)
{
    for (int i = 0; i < ROWS; i++)
        if (!form_find(operators[i].op)) fail_msg("%s has no generator in tests/forms", operators[i].op);
}

static bool agrees_with_the_table(const form *f, void *user)
{
    (void)user;
    const bool rounds = strstr(f->op, "uantizeLinear") != NULL; /* a difference quotient sees none */
    if (f->no_gradient && !rounds && gradient_of_any(f->op))
        print_error("%s has a reason to have no gradient, unlike frontend/onnx.def\n", f->op);
    return !f->no_gradient || rounds || !gradient_of_any(f->op);
}

TEST(reasons_agree_with_the_table) { assert_true(form_each(agrees_with_the_table, NULL)); }

static bool is_importable(const form *f, void *user)
{
    (void)user;
    if (!form_since(f->op)) print_error("%s cannot be imported\n", f->op);
    return form_since(f->op);
}

TEST(every_form_is_of_an_operator) { assert_true(form_each(is_importable, NULL)); }

/* Operators with a reason are drawn as well, because the reason must be true. */
static bool has_gradients(const form *f, void *user)
{
    comparison c = {0};
    int row, operand;
    form_role role;
    const uint64_t first = tier_first(ATTEMPTS);
    (void)user;
    for (uint64_t i = 0; i < 2 * ATTEMPTS; i++) { /* once more for what is missing */
        const uint64_t seed = first + i % ATTEMPTS;
        const bool is_missing = c.compared >= COMBINATIONS && find_missing(f, &c, &row, &operand, &role);
        if (c.compared >= COMBINATIONS ? !is_missing : i >= ATTEMPTS) break;
        check(f, seed, f->no_gradient ? FORM_GIVEN : is_missing ? role : (unsigned)(seed * 0x9e3779b9U >> 16) % 9, &c);
    }
    if (f->no_gradient && c.differing) fail_msg("%s has a gradient, but a reason to have none", f->op);
    if (!f->no_gradient && c.compared < COMBINATIONS)
        fail_msg("%s: only %d drawings from seed %d on have a gradient", f->op, c.compared, (int)first);
    const int unexpected = find_unexpected(f, &c);
    if (find_missing(f, &c, &row, &operand, &role))
        fail_msg("%s of opset %d: operand %d, which has a gradient, is %s in no drawing", f->op, operators[row].since,
                 operand, roles[role]);
    if (unexpected >= 0) fail_msg("%s: operand %d has a gradient, unlike frontend/onnx.def", f->op, unexpected);
    return true;
}

TEST(gradients_are_difference_quotients)
{
    if (tier_is_reduced()) print_message("seeds from %zu on\n", tier_first(ATTEMPTS));
    assert_true(form_each(has_gradients, NULL));
}

/* ---- other domains ---- */

static struct {
    const char *op, *letters;
    int operands; /* of the longest line; -1: none */
} others[] = {
#define OTHER(domain, op, letters, colour, handler, arg, limits) {domain ":" #op, letters, -1},
#include "frontend/lower/other_ops.def"
};
enum { OTHERS = sizeof others / sizeof *others };

static void check_other(const form *f, int operands)
{
    int i = 0;
    while (i < OTHERS && strcmp(others[i].op, f->op) != 0) i++;
    if (i == OTHERS) fail_msg("other.txt: there is no operator %s", f->op);
    if (operands > others[i].operands) others[i].operands = operands;
    if (f->no_gradient) others[i].operands = FORM_OPERANDS;
    for (unsigned as = FORM_STORED; as < FORM_STORED + 4 && !f->no_gradient; as++) {
        comparison c = {0};
        check(f, 0, as, &c);
        if (!c.differing) fail_msg("%s: %s", f->op, c.compared ? "all gradients are zero" : "nothing is compared");
    }
}

TEST(operators_of_other_domains)
{
    forms_other_each(check_other);
    for (int i = 0; i < OTHERS; i++) {
        int n = 0;
        for (const char *at = others[i].letters; *at != '>'; at++) n += *at >= 'a' && *at <= 'z';
        if (others[i].operands < n) fail_msg("%s: no line of other.txt has its %d operands", others[i].op, n);
    }
}
