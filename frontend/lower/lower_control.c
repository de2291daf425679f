/* lower_control.c - If with a condition known at compile time: the chosen branch replaces the node.
 *
 * A branch sees the names of the enclosing graph and adds its own; its nodes are lowered into the same graph. */
#include "frontend/lower/lower.h"

static bool check_branch(onnx_node *n, const Onnx__GraphProto *g)
{
    if (g->n_input) onnx_reject(n, "a branch has inputs");
    if ((int)g->n_output != n->n_out) onnx_reject(n, "the branch has %zu outputs, the node %d", g->n_output, n->n_out);
    return !n->failed;
}

void onnx_lower_if(onnx_node *n)
{
    const Onnx__GraphProto *then_branch = onnx_graph_attr(n, "then_branch");
    const Onnx__GraphProto *else_branch = onnx_graph_attr(n, "else_branch");
    if (!then_branch || !else_branch) onnx_reject(n, "a branch is missing");
    if (!onnx_in(n, 0)) onnx_reject(n, "its condition is not a tensor");
    bool condition = !n->failed && onnx_const_int(n, 0, 0) != 0;
    if (n->failed) return;
    const Onnx__GraphProto *chosen = condition ? then_branch : else_branch;
    onnx_item *out = arena_array(n->importer->scratch, chosen->n_output + 1, sizeof *out);
    onnx_body b;
    if (!check_branch(n, chosen) || !onnx_body_open(n, chosen, &b) || !onnx_body_lower(&b, NULL, NULL, out)) return;
    for (int i = 0; i < n->n_out; i++) {
        n->out[i] = out[i].value;
        n->out_sequence[i] = out[i].sequence;
    }
}
