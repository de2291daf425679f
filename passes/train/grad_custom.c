/* grad_custom.c - the gradient of custom operators: one node that calls the operator's own gradient. */
#include "passes/train/grad.h"

/* The gradient of result i, or zeros. */
static ir_value *result_gradient(grad *g, int i)
{
    const ir_value *y = g->n->out[i];
    return g->dy[i] ? grad_cast_like(g, g->dy[i], y) : grad_zeros(g, y);
}

bool grad_custom(grad *g)
{
    ir_node *n = g->n;
    const char *gradients = n->attr[IR_ATTR(custom, gradients)].s;
    if (!*gradients) return grad_none(g);
    arena *a = n->graph->module->arena;
    ir_value **in = arena_array(a, (size_t)(n->n_in + 2 * n->n_out), sizeof *in);
    int n_in = 0, n_out = 0;
    for (int i = 0; i < n->n_in; i++) in[n_in++] = ir_in(n, i);
    for (int i = 0; i < n->n_out; i++) in[n_in++] = n->out[i];
    for (int i = 0; i < n->n_out; i++)
        if (ir_dtype_is_float(n->out[i]->type.dtype)) in[n_in++] = result_gradient(g, i);
    for (const char *c = gradients; *c; c++) n_out += *c == 'd';
    ir_node *node = grad_node_with(g, IR_OP_custom_grad, n_in, in, n_out);
    if (node) node->layout = n->layout;
    if (!node || !ir_done_all(g->b, node)) return false;
    for (int i = 0, k = 0; i < n->n_in; i++)
        if (gradients[i] == 'd') g->dx[i] = node->out[k++];
    return true;
}
