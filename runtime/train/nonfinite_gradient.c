/* nonfinite_gradient.c - finds and names the first non-finite gradient.
 *
 * The backward proceeds from the loss to the inputs, so of the parameters with a non-finite gradient, the one that
 * the forward uses last is the origin. */
#include "runtime/train/nonfinite_gradient.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t count_elements(const rt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

static int64_t count_not_finite(const rt_tensor *t)
{
    int64_t bad = 0, n = count_elements(t);
    size_t size = ir_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++) bad += !isfinite(ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * size));
    return bad;
}

static const rt_tensor *gradient_of(rt_session *s, const ir_value *param)
{
    const ir_node *n = ir_first_output(param->graph);
    while (n && !(n->role == IR_OUTPUT_gradient && n->of == param)) n = ir_next_output(n);
    return n ? rt_session_output(s, ir_output_name(n)) : NULL;
}

/* The model node that uses the result of a node that the compiler inserted, such as a cast of a weight. */
static const ir_node *model_node(const ir_node *n, int depth)
{
    if (n->loc.op || !depth || !n->n_out) return n;
    for (const ir_use *u = n->out[0]->first_use; u; u = u->next) {
        const ir_node *user = model_node(u->user, depth - 1);
        if (user->loc.op) return user;
    }
    return n;
}

typedef struct fault {
    const ir_node *node;
    const char *param;
    int64_t bad, of;
} fault;

static void find_fault(rt_session *s, const ir_graph *g, fault *f)
{
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || v->kind != IR_VALUE_STORAGE || v->storage->kind != IR_PARAM) continue;
            const rt_tensor *t = gradient_of(s, v);
            int64_t bad = t ? count_not_finite(t) : 0;
            if (bad) *f = (fault){model_node(n, 3), v->storage->name, bad, count_elements(t)};
        }
}

static void rerun_and_find(rt_session *s, const ir_module *m, const rt_tensor *inputs, int n, fault *f)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_grad);
    diag *quiet = diag_new(NULL, NULL);
    if (g && quiet && rt_session_run(s, g->name, inputs, n, quiet) == AMPC_OK) find_fault(s, g, f);
    diag_free(quiet);
}

ampc_status rt_nonfinite_gradient(rt_session *s, const ir_module *m, const rt_tensor *inputs, int n, diag *d,
                                  const char *format, ...)
{
    char text[256];
    fault f = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rerun_and_find(s, m, inputs, n, &f);
    if (!f.node) return diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE, "%s", text);
    return diag_error(d, AMPC_NUMERIC, ir_diag_loc(f.node),
                      "%s; the gradient of parameter '%s' is not finite in %lld of %lld elements", text, f.param,
                      (long long)f.bad, (long long)f.of);
}
