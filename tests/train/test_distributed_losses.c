/* test_distributed_losses.c - the built-in losses of ranks, which are threads, that have different numbers of samples: the
 * mean of the losses, by samples, and the gradients are those that PyTorch has for all samples (losses.def). */
#include "passes/train/distribute.h"
#include "tests/ranks_threads.h"
#include "tests/train/loss_cases.h"

#include <math.h>

enum { RANKS = 3, LARGEST = 512 };

/* The samples of a tensor that a rank has: `rows` along the axis, from `first` on. */
typedef struct part {
    loss_tensor t;
    int64_t dims[IR_MAX_RANK];
    double values[LARGEST];
    size_t at[LARGEST]; /* where each value is in the tensor */
} part;

static void take(part *p, const loss_tensor *t, int axis, int64_t first, int64_t rows)
{
    size_t run = 1, outer = 1, n = 0;
    p->t = (loss_tensor){t->dtype, t->rank, p->dims, p->values};
    for (int i = 0; i < t->rank; i++) {
        p->dims[i] = i == axis ? rows : t->dims[i];
        if (i < axis) outer *= (size_t)t->dims[i];
        if (i > axis) run *= (size_t)t->dims[i];
    }
    assert_true(outer * (size_t)rows * run <= LARGEST);
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < (size_t)rows * run; i++, n++) {
            p->at[n] = (o * (size_t)t->dims[axis] + (size_t)first) * run + i;
            p->values[n] = t->values[p->at[n]];
        }
}

typedef struct rank {
    part x, label;
    ir_module *m;
    diag *d;
    ir_dtype type;
    double loss, gradient[LARGEST];
    bool done;
} rank;

static void open_rank(rank *r, const struct loss_case *c, ir_dtype type)
{
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.loss = c->loss;
    r->type = type;
    r->d = diag_new(NULL, NULL);
    r->m = loss_network(&r->x.t, IR_OP_add, type);
    if (test_compile(r->m, &o, r->d) != AMPC_OK ||
        distribute_weights(ir_graph_by_role(r->m, IR_GRAPH_grad), r->d) != AMPC_OK || ir_verify(r->m, r->d) != AMPC_OK)
        fail_msg("%s: %s", c->name, diag_first_error(r->d));
}

static void run_rank(k_ranks *ranks, void *user)
{
    rank *r = (rank *)user + ranks->index;
    const rt_session_options device = {.device = "cpu", .threads = 1, .ranks = ranks};
    rt_tensor inputs[] = {loss_tensor_of(&r->x.t, "x", r->type), loss_tensor_of(&r->label.t, "label", r->type)};
    rt_session *s = NULL;
    if (rt_session_open(r->m, &device, r->d, &s) == AMPC_OK && rt_session_run(s, "grad", inputs, 2, r->d) == AMPC_OK) {
        const rt_tensor *dw = rt_session_output(s, "grad/w");
        r->loss = loss_element(rt_session_output(s, "loss"), 0);
        for (size_t i = 0; i < loss_count(&r->x.t); i++) r->gradient[i] = loss_element(dw, i);
        r->done = true;
    }
    rt_session_close(s);
    for (int i = 0; i < 2; i++) free(inputs[i].data);
}

static void expect_near(const struct loss_case *c, const char *what, double got, double expected, double bound)
{
    if (!(fabs(got - expected) <= bound * fmax(1, fabs(expected))))
        fail_msg("%s (%s): %s is %.12g, PyTorch has %.12g", c->name, c->loss, what, got, expected);
}

static void compare(const struct loss_case *c, const int64_t *rows, int count, ir_dtype type, double bound)
{
    rank *ranks = calloc(RANKS, sizeof *ranks);
    const int axis = strstr(c->loss, "batch_axis=1") != NULL;
    double shares[RANKS] = {0}, loss = 0;
    int64_t first = 0;
    for (int i = 0; i < count; first += rows[i++]) {
        take(&ranks[i].x, &c->x, axis, first, rows[i]);
        take(&ranks[i].label, &c->label, 0, first, rows[i]);
        open_rank(&ranks[i], c, type);
        shares[i] = (double)rows[i] / (double)c->x.dims[axis];
    }
    ranks_threads *threads = ranks_threads_new(count, shares);
    ranks_threads_run(threads, run_rank, ranks);
    ranks_threads_free(threads);
    for (int i = 0; i < count; i++) {
        const rank *r = &ranks[i];
        if (!r->done) fail_msg("%s: %s", c->name, diag_first_error(r->d));
        loss += r->loss * shares[i];
        for (size_t k = 0; k < loss_count(&r->x.t); k++)
            expect_near(c, "a gradient", r->gradient[k] * shares[i], c->gradient[r->x.at[k]], bound);
        diag_free(r->d);
        ir_module_free(r->m);
    }
    expect_near(c, "the loss", loss, c->expected, bound);
    free(ranks);
}

static void compare_all(ir_dtype type, double bound)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct loss_case *c = &cases[i];
        const int64_t n = c->x.dims[strstr(c->loss, "batch_axis=1") != NULL];
        if (strncmp(c->loss, "contrastive", strlen("contrastive")) == 0) continue; /* has a warning */
        if (n > 1) compare(c, (int64_t[]){1, n - 1}, 2, type, bound);
        if (n > 3) compare(c, (int64_t[]){n - 2, 1, 1}, 3, type, bound);
    }
}

/* The share of a rank is an f32 number. */
TEST(losses_match_in_f64) { compare_all(IR_f64, 1e-7); }

TEST(losses_match_in_f32) { compare_all(IR_f32, 1e-5); }

TEST(losses_that_compare_samples_have_a_warning)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool compares = strncmp(cases[i].loss, "contrastive", strlen("contrastive")) == 0;
        ir_module *m = loss_network(&cases[i].x, IR_OP_add, IR_f32);
        diag *d = diag_new(NULL, NULL);
        compile_options o = compile_options_default();
        o.loss = cases[i].loss;
        o.level = PASS_O0;
        if (test_compile(m, &o, d) != AMPC_OK || compile_distribute(m, &o, d) != AMPC_OK)
            fail_msg("%s: %s", cases[i].name, diag_first_error(d));
        assert_int_equal(diag_count(d, DIAG_WARNING), compares);
        diag_free(d);
        ir_module_free(m);
    }
}
