/* lower_control.c - If with a condition known at compile time: the chosen branch replaces the node.
 *
 * A branch sees the names of the enclosing graph and adds its own; its nodes are lowered into the same graph. */
#include "frontend/lower/lower.h"

static bool check_branch(onnx_node *n, const Onnx__GraphProto *g, onnx_scope *scope)
{
    if (g->n_input) onnx_reject(n, "a branch has inputs");
    if ((int)g->n_output != n->n_out) onnx_reject(n, "the branch has %zu outputs, the node %d", g->n_output, n->n_out);
    if (n->failed) return false;
    onnx_importer *im = n->importer;
    if (onnx_check_graph(im, scope) == AMPC_OK && onnx_initializers_bind(im, scope) == AMPC_OK) return true;
    n->failed = true;
    return false;
}

void onnx_lower_if(onnx_node *n)
{
    const Onnx__GraphProto *then_branch = onnx_graph_attr(n, "then_branch");
    const Onnx__GraphProto *else_branch = onnx_graph_attr(n, "else_branch");
    if (!then_branch || !else_branch) onnx_reject(n, "a branch is missing");
    bool condition = onnx_const_int(n, 0, 0) != 0;
    if (n->failed) return;
    onnx_importer *im = n->importer;
    onnx_scope scope = {.graph = condition ? then_branch : else_branch,
                        .outer = n->scope,
                        .bindings = strmap_new(im->scratch),
                        .node = n->index};
    while (n->proto->attribute[scope.attribute]->g != scope.graph) scope.attribute++;
    ir_loc loc = n->b->loc;
    if (check_branch(n, scope.graph, &scope)) n->failed = !onnx_lower_graph(im, &scope);
    n->b->loc = loc;
    for (int i = 0; i < n->n_out && !n->failed; i++) n->out[i] = onnx_value(im, &scope, scope.graph->output[i]->name);
}
