/* compared.h - trains a small network on a device, and compares what two trainings have done. */
#ifndef TESTS_CUDA_COMPARED_H
#define TESTS_CUDA_COMPARED_H

#include "tests/train/numbers.h"

#include <math.h>

enum { STEPS = 3, MAX_PARAMS = 16, MAX_INPUTS = 3, MAX_ELEMENTS = 1024 };

/* The losses, and how far training moves each parameter. */
typedef struct outcome {
    double losses[STEPS];
    const char *name[MAX_PARAMS];
    double values[MAX_PARAMS][MAX_ELEMENTS];
    size_t count[MAX_PARAMS];
    int n;
} outcome;

/* Adds `sign` times the parameters. */
static inline void add_parameters(scratch *t, rt_session *s, double sign, outcome *o)
{
    o->n = 0;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        ir_storage_kind kind;
        rt_session_storage_at(s, i, &v, &kind);
        if (kind != IR_PARAM) continue;
        must(t, rt_session_read(s, i, t->d, &v));
        assert_true(o->n < MAX_PARAMS && count(&v) <= MAX_ELEMENTS);
        o->name[o->n] = v.name;
        o->count[o->n] = count(&v);
        for (size_t k = 0; k < count(&v); k++) o->values[o->n][k] += sign * ((const float *)v.data)[k];
        o->n++;
    }
}

static inline void train(scratch *t, const char *device, bool no_fuse, const ir_module *m, outcome *o)
{
    const rt_session_options options = {.device = device, .threads = 1, .no_tune = true, .no_fuse = no_fuse};
    rt_tensor in[MAX_INPUTS];
    rt_session *s;
    const int inputs = make_inputs(ir_graph_by_role(m, IR_GRAPH_train_step), in);
    *o = (outcome){.n = 0};
    must(t, rt_session_open(m, &options, t->d, &s));
    set_parameters(t, s);
    add_parameters(t, s, -1, o);
    for (int i = 0; i < STEPS; i++) {
        must(t, rt_session_run(s, "train_step", in, inputs, t->d));
        o->losses[i] = *(const float *)rt_session_output(s, "loss")->data;
    }
    add_parameters(t, s, 1, o);
    rt_session_close(s);
    for (int i = 0; i < inputs; i++) free(in[i].data);
}

/* Within `bound` of the length of the vector, or of 0.5: the gradient of a bias of keys is zero but for rounding. */
static inline void compare(const char *net, const char *what, const outcome *a, const outcome *b, double bound)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->losses[i] - b->losses[i]) <= bound * fabs(a->losses[i])))
            fail_msg("%s, %s: loss %d is %.6g, not %.6g", net, what, i, b->losses[i], a->losses[i]);
    for (int k = 0; k < a->n; k++) {
        double difference = 0, norm = 0;
        for (size_t i = 0; i < a->count[k]; i++) {
            difference += pow(a->values[k][i] - b->values[k][i], 2);
            norm += pow(a->values[k][i], 2);
        }
        if (!(sqrt(difference) <= bound * fmax(sqrt(norm), 0.5)))
            fail_msg("%s, @%s, %s: distance %.3g of %.3g", net, a->name[k], what, sqrt(difference), sqrt(norm));
    }
}

#endif
