/* test_gradient.c - checks every gradient rule against central differences, in f64.
 *
 * A row of rows_gradient.h builds y = op(x, ...). The loss is sum(y * r) with random r, which makes every element of y
 * significant. Autodiff computes d(loss)/dx; the reference is (loss(x+h) - loss(x-h)) / 2h with h = 6e-6 max(1,|x|).
 * They agree if |a-n| <= 1e-7 + 1e-6 max(|a|,|n|).
 *
 * Second derivatives: each row is tested again with a penalty of the loss's gradient, against differences of the
 * penalized loss, within 1e-7 + 1e-5 max(|a|,|n|). `exceptions` lists the ops that must be refused. The last tests fail
 * if an op has a gradient, but neither a row nor a part in the penalty of others, or if no row varies an operand that has
 * a gradient by ops.def. */
#include "passes/pass.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/ops/rows_gradient.h"
#include "tests/test.h"

#include <math.h>

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t random_state;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

typedef struct gradient_shape {
    int rank;
    int64_t dims[5];
} gradient_shape;

/* Reads the next set of the list; returns false at its end. */
static bool next_set(const char **list, int n, gradient_shape *shapes)
{
    if (!**list) return false;
    for (int i = 0; i < n; i++) {
        shapes[i].rank = 0;
        for (*list += strspn(*list, ", "); strcspn(*list, " ,"); *list += **list == 'x' || **list == '.') {
            if (**list == '.') continue;
            shapes[i].dims[shapes[i].rank++] = strtoll(*list, (char **)(uintptr_t)list, 10);
        }
    }
    *list += strcspn(*list, ","); /* rows with fewer operands share the lists of others */
    return true;
}

static size_t count_of(const gradient_shape *s)
{
    size_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= (size_t)s->dims[i];
    return n;
}

static void fill(void *data, gradient_draw how, size_t n, int64_t limit)
{
    double *x = data;
    for (size_t i = 0; i < n; i++) switch (how) {
        case ANY: x[i] = (uniform() < 0.5 ? -1 : 1) * (0.2 + 1.8 * uniform()); break;
        case POSITIVE: x[i] = 0.3 + 1.7 * uniform(); break;
        case FRACTION: x[i] = (uniform() < 0.5 ? -1 : 1) * (0.1 + 0.8 * uniform()); break;
        case ABOVE_ONE: x[i] = 1.2 + 1.8 * uniform(); break;
        case DISTINCT: x[i] = (double)((i * 7919 + 13) % (n + 1)) * 0.1 - 1; break;
        case INDEX: ((int64_t *)data)[i] = (int64_t)(uniform() * (double)limit); break;
        case TRUTH: ((unsigned char *)data)[i] = uniform() < 0.5; break;
        }
}

static ir_dtype dtype_of(gradient_draw how) { return how == INDEX ? IR_i64 : how == TRUTH ? IR_bool : IR_f64; }

/* ---- one set of shapes ----------------------------------------------------------------------- */

typedef struct probe {
    const gradient_row *row;
    int set;
    gradient_shape shapes[GRADIENT_MAX_IN];
    bool penalized;
    diag *diag;
    ir_module *module;
    rt_session *session;
    rt_tensor inputs[GRADIENT_MAX_IN + 1];
    int n;
    char error[512];
} probe;

static void record_error(void *user, diag_level level, const char *message)
{
    if (level == DIAG_ERROR) snprintf(((probe *)user)->error, 512, "%s", message);
}

static bool build_graph(probe *p)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    ir_graph *g = ir_graph_new(p->module, "train");
    g->role = IR_GRAPH_train;
    ir_value *in[GRADIENT_MAX_IN];
    for (int i = 0; i < p->row->n_in; i++) {
        const gradient_shape *s = &p->shapes[i];
        ir_type t = ir_type_make(dtype_of(p->row->draws[i]), s->rank, s->dims);
        in[i] = ir_graph_input(g, names[i], &t);
        p->inputs[i] = (rt_tensor){.name = names[i], .dtype = t.dtype, .rank = s->rank};
        memcpy(p->inputs[i].dims, s->dims, sizeof s->dims);
        p->inputs[i].data = calloc(count_of(s) + 1, 8);
        fill(p->inputs[i].data, p->row->draws[i], count_of(s), p->row->limit);
    }
    ir_builder b = ir_builder_at_end(g, p->diag);
    ir_value *y = p->row->build(&b, p->row, in, p->set);
    if (!y) return false;
    ir_type weights = y->type;
    ir_value *r = ir_graph_input(g, "r", &weights);
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < y->type.rank; i++) axes[i] = i;
    ir_value *loss = ir_reduce_sum(&b, ir_binary(&b, IR_OP_mul, y, r), axes, y->type.rank, false);
    ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    r->role = IR_INPUT_label;
    p->n = p->row->n_in + 1;
    rt_tensor *w = &p->inputs[p->n - 1];
    *w = (rt_tensor){.name = "r", .dtype = IR_f64, .rank = weights.rank};
    size_t count = 1;
    for (int i = 0; i < weights.rank; i++) count *= (size_t)(w->dims[i] = weights.dims[i]);
    w->data = calloc(count + 1, 8);
    fill(w->data, ANY, count, 0);
    return loss != NULL;
}

static double loss_of(probe *p)
{
    assert_int_equal(rt_session_run(p->session, "train", p->inputs, p->n, p->diag), AMPC_OK);
    return *(const double *)rt_session_output(p->session, "loss")->data;
}

static double difference_quotient(probe *p, double *x)
{
    double old = *x, h = 6e-6 * fmax(1, fabs(old));
    *x = old + h;
    double up = loss_of(p);
    *x = old - h;
    double down = loss_of(p);
    *x = old;
    return (up - down) / (2 * h);
}

static void compare_operand(probe *p, int i)
{
    char name[16];
    snprintf(name, sizeof name, "gradin/%s", p->inputs[i].name);
    loss_of(p);
    const rt_tensor *d = rt_session_output(p->session, name);
    assert_non_null(d);
    size_t n = count_of(&p->shapes[i]);
    double *analytic = malloc((n + 1) * sizeof *analytic);
    memcpy(analytic, d->data, n * sizeof *analytic);
    for (size_t k = 0; k < n; k++) {
        double numeric = difference_quotient(p, (double *)p->inputs[i].data + k);
        double bound = 1e-7 + (p->penalized ? 1e-5 : 1e-6) * fmax(fabs(analytic[k]), fabs(numeric));
        if (!(fabs(analytic[k] - numeric) <= bound))
            fail_msg("%s%s, shapes %d, operand %d, element %zu: %.9g, numeric %.9g", p->row->name,
                     p->penalized ? ", penalized" : "", p->set, i, k, analytic[k], numeric);
    }
    free(analytic);
}

/* ---- second derivatives ------------------------------------------------------------------------ */

static const struct exception {
    ir_op op;
    const char *error;
} exceptions[] = {
    {IR_OP_recurrent, "the gradient, which is penalized, has no derivative (op recurrent_grad)"},
    {IR_OP_attention, "the gradient, which is penalized, has no derivative (op attention_grad)"},
    {IR_OP_grid_sample, "the gradient, which is penalized, has no derivative (op grid_sample_grad)"},
    {IR_OP_roi_align, "the gradient, which is penalized, has no derivative (op roi_align_grad)"},
    {IR_OP_det, "the gradient, which is penalized, has no derivative (op det_grad)"},
    {IR_OP_if, "the gradient, which is penalized, has no derivative (op if)"},
    {IR_OP_loop, "the gradient, which is penalized, has no derivative (op loop)"},
    {IR_OP_sign, "the gradient of the loss with respect to 'a' is 0"},
    {IR_OP_floor, "the gradient of the loss with respect to 'a' is 0"},
    {IR_OP_ceil, "the gradient of the loss with respect to 'a' is 0"},
    {IR_OP_round, "the gradient of the loss with respect to 'a' is 0"},
    {0},
};

/* The error that a penalty of this row must report, or NULL. */
static const char *expected_error(const probe *p)
{
    for (const struct exception *e = exceptions; p->penalized && e->error; e++)
        if (e->op == p->row->op) return e->error;
    return NULL;
}

static int penalties_with[IR_OP_COUNT]; /* the number of sets in which the op was part of a penalty */

static void count_ops(const ir_module *m)
{
    for (const ir_node *n = ir_graph_by_role(m, IR_GRAPH_train)->first; n; n = n->next) penalties_with[n->op]++;
}

/* Operand slots of the op of a row that read an input, whose gradient is compared. */
static bool compared_slots[IR_OP_COUNT][8 * sizeof(int)];

static void mark_slots(const probe *p)
{
    for (const ir_node *n = ir_graph_find(p->module, "train")->first; n; n = n->next)
        for (int i = 0; i < n->n_in && n->op == p->row->op; i++) {
            const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
            if (ir_in(n, i) && ir_in(n, i)->kind == IR_VALUE_INPUT)
                compared_slots[n->op][slot - ir_op_get(n->op)->in] = true;
        }
}

static ampc_status differentiate(probe *p)
{
    compile_options o = compile_options_default();
    mark_slots(p);
    o.level = PASS_O0;
    o.grad_penalty = p->penalized ? "L2:input=*,0.5" : NULL;
    TRY(test_pass(p->module, "penalty", &o, p->diag));
    if (p->penalized) count_ops(p->module);
    return test_pass(p->module, "autodiff", &o, p->diag);
}

/* The sum of the squares of all input gradients, after a run without a penalty. */
static double squares_of(probe *p)
{
    double squares = 0;
    loss_of(p);
    const ir_graph *g = ir_graph_by_role(p->module, IR_GRAPH_train);
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_input_gradient) continue;
        const rt_tensor *d = rt_session_output(p->session, ir_output_name(n));
        for (size_t i = 0; i < (size_t)ir_type_count(p->module->dims, &n->of->type); i++)
            squares += ((const double *)d->data)[i] * ((const double *)d->data)[i];
    }
    return squares;
}

/* The penalty, which may use other rules, is that of the gradient. */
static void check_penalty(probe *p, double squares)
{
    loss_of(p);
    const double penalty = *(const double *)rt_session_output(p->session, "penalty")->data;
    if (!(fabs(penalty - 0.5 * sqrt(squares)) <= 1e-12 + 1e-10 * penalty))
        fail_msg("%s, shapes %d: the penalty is %.12g, not %.12g", p->row->name, p->set, penalty, 0.5 * sqrt(squares));
}

/* ---- sets -------------------------------------------------------------------------------------- */

static void compare_set(probe *p, double *squares)
{
    const gradient_row *r = p->row;
    const rt_session_options options = {.device = "cpu", .threads = 1};
    ampc_status status = rt_session_open(p->module, &options, p->diag, &p->session);
    if (status != AMPC_OK) print_error("%s, shapes %d: %s\n", r->name, p->set, p->error);
    assert_int_equal(status, AMPC_OK);
    for (int i = 0; i < r->n_in; i++)
        if (dtype_of(r->draws[i]) == IR_f64 && !ir_op_stops(r->op, i)) compare_operand(p, i);
    if (p->penalized) check_penalty(p, *squares);
    else *squares = squares_of(p);
}

static void test_set(const gradient_row *r, int set, const gradient_shape *shapes, bool penalized, double *squares)
{
    probe p = {.row = r, .set = set, .penalized = penalized};
    memcpy(p.shapes, shapes, sizeof p.shapes);
    p.diag = diag_new(record_error, &p);
    p.module = ir_module_new();
    random_state = (uint64_t)(set + 1) * 77777u;
    const char *refusal = expected_error(&p);
    ampc_status status = build_graph(&p) ? differentiate(&p) : AMPC_REJECTED;
    if (status != AMPC_OK && !(refusal && strstr(p.error, refusal)))
        fail_msg("%s%s, shapes %d: %s\n", r->name, penalized ? ", penalized" : "", set, p.error);
    if (refusal && status == AMPC_OK) fail_msg("%s has a second derivative: update the list of exceptions", r->name);
    if (status == AMPC_OK) compare_set(&p, squares);
    for (int i = 0; i < p.n; i++) free(p.inputs[i].data);
    rt_session_close(p.session);
    ir_module_free(p.module);
    diag_free(p.diag);
}

static void test_row(void **state)
{
    const gradient_row *r = *state;
    gradient_shape shapes[GRADIENT_MAX_IN] = {{0}};
    const char *sets = r->sets;
    for (int set = 0; next_set(&sets, r->n_in, shapes); set++) {
        double squares = 0;
        test_set(r, set, shapes, false, &squares);
        test_set(r, set, shapes, true, &squares);
    }
}

/* ---- all rows --------------------------------------------------------------------------------- */

static gradient_row *rows; /* terminated like gradient_rows */
static size_t n_rows;

static bool has_row(ir_op op)
{
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].op == op) return true;
    return false;
}

/* Also makes the rows that are not in the table. */
static bool collect_rows(void)
{
    while (gradient_rows[n_rows].build) n_rows++;
    rows = calloc(n_rows + IR_OP_COUNT + 1, sizeof *rows);
    if (!rows) return false;
    memcpy(rows, gradient_rows, n_rows * sizeof *rows);
    for (ir_op op = 0; op < IR_OP_COUNT; op++)
        if (pass_has_gradient(op) && ir_op_has(op, IR_ELEMENTWISE) && ir_op_get(op)->n_in == 1 && !has_row(op))
            rows[n_rows++] = gradient_default(op);
    return true;
}

/* ---- coverage -------------------------------------------------------------------------------- */

static int count_commas(const char *text)
{
    int n = 0;
    while ((text = strchr(text, ','))) n++, text++;
    return n;
}

static void test_coverage(void **state)
{
    (void)state;
    for (ir_op op = 0; op < IR_OP_COUNT; op++) {
        int sets = 0;
        for (const gradient_row *r = rows; r->build; r++)
            if (r->op == op) sets += 1 + count_commas(r->sets);
        if (op == IR_OP_custom) continue; /* tests/unit/test_custom.c */
        if (pass_has_gradient(op) && sets < 10 && penalties_with[op] < 10)
            fail_msg("op %s has a gradient but only %d sets of shapes", ir_op_get(op)->name, sets);
    }
}

static bool may_be_float(ir_group g) { return g != IR_GROUP_I && g != IR_GROUP_W && g != IR_GROUP_B; }

/* Of each op with a row: an operand that no row varies could lose its gradient. */
static void test_slots(void **state)
{
    (void)state;
    for (const gradient_row *r = rows; r->build; r++) {
        const ir_op_info *op = ir_op_get(r->op);
        for (int i = 0; i < op->n_in; i++)
            if (!compared_slots[r->op][i] && !ir_op_stops(r->op, i) && may_be_float(op->in[i].group))
                fail_msg("no row has a gradient of operand '%s' of op %s", op->in[i].name, op->name);
    }
}

int main(void)
{
    struct CMUnitTest *tests = collect_rows() ? calloc(n_rows + 2, sizeof *tests) : NULL;
    const size_t n = n_rows;
    if (!tests) return 1;
    for (size_t i = 0; i < n; i++) {
        const gradient_row *r = &rows[i];
        tests[i] = (struct CMUnitTest){r->name, test_row, NULL, NULL, (void *)(uintptr_t)r};
    }
    tests[n] = (struct CMUnitTest){.name = "every gradient has ten shapes", .test_func = test_coverage};
    tests[n + 1] = (struct CMUnitTest){.name = "every operand has a row", .test_func = test_slots};
    int failed = _cmocka_run_group_tests("gradient", tests, n + 2, NULL, NULL);
    free(tests);
    free(rows);
    return failed;
}
