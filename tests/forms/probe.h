/* probe.h - the gradients of a drawn node.
 *
 * The loss is sum(y * r) over all results y of the probe's type, with random r. Autodiff computes d(loss)/dx for each
 * operand x that varies. */
#ifndef TESTS_FORMS_PROBE_H
#define TESTS_FORMS_PROBE_H

#include "runtime/session/session.h"
#include "tests/forms/form.h"

typedef struct probe {
    const form *form;
    uint64_t seed;
    onnx_type type; /* of floats */
    choices c;
    drawing w;
    diag *d;
    ir_module *m;
    rt_tensor in[FORM_INPUTS + FORM_POOL]; /* the n_given inputs of the model, then the factors r */
    int n, n_given;
} probe;

/* Draws a node of the form, of an opset that the seed chooses among those with different rules, and differentiates it;
 * `roles` as in a drawing. Returns whether there is a gradient to compare: the importer accepts the node, and a varied
 * operand and a result have the type. p->d has the error if differentiation failed. */
bool probe_open(probe *p, const form *f, uint64_t seed, onnx_type type, unsigned roles);
void probe_close(probe *p);
/* Opens a session on a device; NULL if it refuses the module. Ops are fused only on the processor. */
rt_session *probe_session(probe *p, const char *device);
/* Runs the graph. Returns false if the sizes do not fit. */
bool probe_run(probe *p, rt_session *s);
bool probe_is_varied(const probe *p, const form_input *in);
/* The row of onnx_ops.def that the operator has in the drawing's opset. */
int probe_row(const probe *p);

#endif
