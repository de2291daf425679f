/* split_entry_graphs.c - splits @train, which has its gradients as outputs, into two entry graphs.
 *
 * @grad returns the gradients to the caller and changes no storage: its stores become outputs. @train_step keeps the
 * stores, and the gradients of parameters for the optimizer to consume. */
#include "passes/pass.h"

static void stores_to_outputs(ir_graph *g, diag *d)
{
    for (ir_node *n = ir_first_store(g), *next; n; n = next) {
        next = ir_next_store(n);
        ir_builder b = ir_builder_before(n, d);
        ir_output_as(&b, IR_OUTPUT_buffer, ir_in(n, 0), ir_in(n, 1));
        ir_node_remove(n);
    }
}

ampc_status pass_entries(ir_module *m, compile *c)
{
    ir_graph *train = ir_graph_by_role(m, IR_GRAPH_train);
    if (!train) return AMPC_OK;
    ir_graph *step = ir_graph_derive(m, train, IR_GRAPH_train_step);
    for (ir_node *n = ir_first_output(step), *next; n; n = next) {
        next = ir_next_output(n);
        if (n->role == IR_OUTPUT_input_gradient) ir_node_remove(n);
    }
    ir_graph_set_role(train, IR_GRAPH_grad);
    stores_to_outputs(train, c->diag);
    return diag_status(c->diag);
}
