/* lower_control.c - If, Loop and Scan. If the condition of an If is known at compile time, the chosen branch replaces
 * the node: it sees the names of the enclosing graph and adds its own, and its nodes are lowered into the same graph.
 * Otherwise the operator becomes a node that runs its subgraphs (subgraph.c). */
#include "frontend/lower/lower.h"

#include <string.h>

static bool check_branch(onnx_node *n, const Onnx__GraphProto *g)
{
    if (g->n_input) onnx_reject(n, "a branch has inputs");
    if ((int)g->n_output != n->n_out) onnx_reject(n, "the branch has %zu outputs, the node %d", g->n_output, n->n_out);
    return !n->failed;
}

/* Where opaque nodes are allowed, the refusal leads to the same handler. */
void onnx_lower_at_run_time(onnx_node *n, const char *reason)
{
    if (n->importer->trial) onnx_refuse(n, "%s is computed at run time", reason);
    else onnx_keep_opaque(n);
}

void onnx_lower_if(onnx_node *n)
{
    if (n->n_in && n->in[0] && !ir_const_get(n->importer->consts, n->in[0])) {
        onnx_lower_at_run_time(n, "its condition");
        return;
    }
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

/* ---- attributes ---------------------------------------------------------------------------------- */

static void set_axes(onnx_node *n, ir_node *loop, int attr, const char *name, bool directions)
{
    onnx_list list = onnx_ints(n, name);
    const bool of_slices = attr == IR_ATTR(loop, slice_axes) || attr == IR_ATTR(loop, slice_reversed);
    if (of_slices && list.count && list.count != loop->attr[IR_ATTR(loop, scanned)].i)
        onnx_reject(n, "attribute '%s' has %d numbers, not one for each scanned operand", name, list.count);
    for (int i = 0; i < list.count && directions; i++)
        if (list.items[i] != 0 && list.items[i] != 1)
            onnx_reject(n, "attribute '%s' has a number other than 0 and 1", name);
    ir_set_list(loop, attr, list.items, list.count);
}

void onnx_set_loop(onnx_node *n, ir_node *loop)
{
    if (loop->op != IR_OP_loop) return;
    const bool scan = strcmp(n->proto->op_type, "Scan") == 0;
    ir_set_bool(loop, IR_ATTR(loop, counted), !scan);
    if (!scan) return;
    ir_set_int(loop, IR_ATTR(loop, scanned), onnx_int(n, "num_scan_inputs", 0));
    set_axes(n, loop, IR_ATTR(loop, slice_axes), "scan_input_axes", false);
    set_axes(n, loop, IR_ATTR(loop, slice_reversed), "scan_input_directions", true);
    set_axes(n, loop, IR_ATTR(loop, stack_axes), "scan_output_axes", false);
    set_axes(n, loop, IR_ATTR(loop, stack_reversed), "scan_output_directions", true);
}
