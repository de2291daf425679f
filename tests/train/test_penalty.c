/* test_penalty.c - the gradient of a penalized loss against central differences, in f64.
 *
 * Three networks (perceptron, convolutional, transformer) with several losses and penalties. Every element of every
 * parameter and float input is compared: |a-n| <= 1e-8 + 1e-5 max(|a|,|n|), with steps of 6e-6 max(1,|x|). The output
 * `penalty` is compared with the norm of the gradient that the network without a penalty has. */
#include "passes/pass.h"
#include "tests/compile.h"
#include "tests/train/penalty_nets.h"

#include <math.h>

enum { MAX_INPUTS = 2 };

typedef struct probe {
    scratch *t;
    const subject *subject;
    ir_module *m;
    rt_session *s;
    rt_tensor in[MAX_INPUTS];
    int inputs;
} probe;

static void compile_subject(probe *p, const char *penalty)
{
    static const char *const passes[] = {"mode", "loss", "penalty", "autodiff"};
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.loss = p->subject->loss;
    o.grad_penalty = penalty;
    must(p->t, ir_parse(p->subject->text, strlen(p->subject->text), "net.ir", p->t->d, &p->m));
    for (int i = 0; i < 4; i++) must(p->t, test_pass(p->m, passes[i], &o, p->t->d));
}

static probe open_probe(scratch *t, const subject *of, const char *penalty)
{
    const rt_session_options options = {.device = "cpu", .threads = 1};
    probe p = {.t = t, .subject = of};
    compile_subject(&p, penalty);
    must(t, rt_session_open(p.m, &options, t->d, &p.s));
    for (int i = 0; i < rt_session_storage_count(p.s); i++) {
        rt_tensor v;
        ir_storage_kind kind;
        rt_session_storage_at(p.s, i, &v, &kind);
        must(t, rt_session_read(p.s, i, t->d, &v));
        if (kind == IR_PARAM) fill(&v, 100 + (uint64_t)v.name[0] * 256 + (uint64_t)v.name[1]);
    }
    const ir_graph *g = ir_graph_by_role(p.m, IR_GRAPH_train);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        rt_tensor *x = &p.in[p.inputs++];
        *x = (rt_tensor){.name = v->name, .dtype = v->type.dtype, .rank = v->type.rank};
        for (int k = 0; k < x->rank; k++) x->dims[k] = v->type.dims[k];
        x->data = calloc(count(x), 8);
        fill(x, i);
    }
    return p;
}

static void close_probe(probe *p)
{
    for (int i = 0; i < p->inputs; i++) free(p->in[i].data);
    rt_session_close(p->s);
    ir_module_free(p->m);
}

static double run(const probe *p, const char *output)
{
    must(p->t, rt_session_run(p->s, "train", p->in, p->inputs, p->t->d));
    return *(const double *)rt_session_output(p->s, output)->data;
}

/* The loss with x[i] = value; `storage` is the number of the parameter, -1 for an input. */
static double loss_at(const probe *p, double *x, double value, int storage)
{
    rt_tensor v;
    *x = value;
    if (storage >= 0) {
        must(p->t, rt_session_read(p->s, storage, p->t->d, &v));
        must(p->t, rt_session_write(p->s, storage, v.data, p->t->d));
    }
    return run(p, "loss");
}

static double difference_quotient(const probe *p, double *x, int storage)
{
    const double old = *x, h = 6e-6 * fmax(1, fabs(old));
    const double up = loss_at(p, x, old + h, storage), down = loss_at(p, x, old - h, storage);
    loss_at(p, x, old, storage);
    return (up - down) / (2 * h);
}

/* Compares the gradient in output `prefix`NAME of one tensor. */
static void compare(const probe *p, const char *prefix, const rt_tensor *v, int storage)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, v->name);
    run(p, "loss");
    const rt_tensor *d = rt_session_output(p->s, name);
    assert_non_null(d);
    double *analytic = calloc(count(v), sizeof *analytic);
    memcpy(analytic, d->data, count(v) * sizeof *analytic);
    for (size_t i = 0; i < count(v); i++) {
        const double a = analytic[i], n = difference_quotient(p, (double *)v->data + i, storage);
        if (!(fabs(a - n) <= 1e-8 + 1e-5 * fmax(fabs(a), fabs(n))))
            fail_msg("%s, %s[%zu]: %.9g, numeric %.9g", p->subject->name, name, i, a, n);
    }
    free(analytic);
}

TEST_SCRATCH(test_differences)
{
    for (size_t k = 0; k < sizeof subjects / sizeof *subjects; k++) {
        probe p = open_probe(t, &subjects[k], subjects[k].penalty);
        for (int i = 0; i < rt_session_storage_count(p.s); i++) {
            rt_tensor v;
            ir_storage_kind kind;
            rt_session_storage_at(p.s, i, &v, &kind);
            if (kind != IR_PARAM) continue;
            must(p.t, rt_session_read(p.s, i, p.t->d, &v));
            compare(&p, "grad/", &v, i);
        }
        if (p.in[0].dtype == IR_f64) compare(&p, "gradin/", &p.in[0], -1);
        close_probe(&p);
    }
}

/* The sum of the squares of the gradients that the penalty is about. */
static double squares_of(const probe *p)
{
    const ir_graph *g = ir_graph_by_role(p->m, IR_GRAPH_train);
    const char *glob = strstr(p->subject->penalty, "params=");
    const bool params = strstr(p->subject->penalty, "params") != NULL;
    double squares = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != (params ? IR_OUTPUT_gradient : IR_OUTPUT_input_gradient)) continue;
        if (params && glob && strncmp(n->of->name, glob + 7, strcspn(glob + 7, ",*")) != 0) continue;
        const rt_tensor *d = rt_session_output(p->s, ir_output_name(n));
        for (size_t i = 0; i < count(d); i++) squares += ((double *)d->data)[i] * ((double *)d->data)[i];
    }
    return squares;
}

TEST_SCRATCH(test_value)
{
    for (size_t k = 0; k < sizeof subjects / sizeof *subjects; k++) {
        const subject *s = &subjects[k];
        probe plain = open_probe(t, s, NULL), penalized = open_probe(t, s, s->penalty);
        const double loss = run(&plain, "loss"), norm = sqrt(squares_of(&plain));
        const double expected = s->weight * (s->target < 0 ? norm : (norm - s->target) * (norm - s->target));
        if (!(norm > 1e-3)) fail_msg("%s: the norm is %g", s->name, norm);
        assert_true(fabs(run(&penalized, "penalty") - expected) <= 1e-12 * (1 + expected));
        assert_true(fabs(run(&penalized, "loss") - (loss + expected)) <= 1e-12 * (1 + loss + expected));
        close_probe(&plain);
        close_probe(&penalized);
    }
}
