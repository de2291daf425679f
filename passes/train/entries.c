/* entries.c - @train, with its gradients as outputs, becomes two entry graphs.
 *
 * @grad gives the gradients to the caller and moves nothing: what would be stored is an output "buf/STATE". @train_step
 * keeps the stores and the gradients of parameters, which the optimizer will consume. */
#include "passes/pass.h"

#include <string.h>

static bool named(const ir_node *n, const char *prefix)
{
    return n->op == IR_OP_output && strncmp(n->attr[IR_ATTR(output, name)].s, prefix, strlen(prefix)) == 0;
}

static void stores_to_outputs(ir_graph *g, diag *d)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op != IR_OP_store) continue;
        ir_builder b = ir_builder_before(n, d);
        ir_output(&b, arena_printf(g->module->arena, "buf/%s", ir_in(n, 0)->name), ir_in(n, 1));
        ir_node_remove(n);
    }
}

ampc_status pass_entries(ir_module *m, compile *c)
{
    ir_graph *train = ir_graph_find(m, "train");
    if (!train) return AMPC_OK;
    ir_graph *step = ir_graph_clone(m, train, "train_step", NULL);
    for (ir_node *n = step->first, *next; n; n = next) {
        next = n->next;
        if (named(n, "gradin/")) ir_node_remove(n);
    }
    train->name = "grad";
    stores_to_outputs(train, c->diag);
    return diag_status(c->diag);
}
