/* emit_opset.c - chooses the opset of the model: the one that the options name, or the imported one, at least 17, at
 * least 22 with bfloat16, and higher where an operator form requires it. */
#include "frontend/emit/emit.h"

#include <stdlib.h>

static bool touches(const ir_node *n, ir_dtype t)
{
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_in(n, i)->type.dtype == t) return true;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype == t) return true;
    return false;
}

int emit_first_opset(const emitter *e)
{
    const onnx_emit_options *o = e->options;
    int opset = (int)ir_training_opset(&e->module->training, "");
    if (opset < ONNX_OPSET_EMIT) opset = ONNX_OPSET_EMIT;
    if (o->opset) return o->opset;
    if (o->max_opset && o->max_opset < (opset > ONNX_OPSET_BF16 ? opset : ONNX_OPSET_BF16))
        return opset < o->max_opset ? opset : o->max_opset; /* a node that needs more is refused by name */
    for (const ir_graph *g = e->graph; g; g = ir_next_graph_in(e->graph, g))
        for (const ir_node *n = g->first; n && opset < ONNX_OPSET_BF16; n = n->next)
            if (touches(n, IR_bf16)) opset = ONNX_OPSET_BF16;
    return opset;
}

void emit_need(emitter *e, int opset)
{
    const onnx_emit_options *o = e->options;
    const int max = o->opset ? o->opset : o->max_opset;
    if (opset <= e->opset) return;
    if (max && opset > max) {
        const diag_loc loc = ir_diag_loc(e->node);
        const char *needs = arena_printf(e->arena, "it needs opset %d", opset);
        if (e->refused) return;
        e->refused = true;
        if (o->opset)
            diag_error(e->diag, AMPC_UNSUPPORTED,
                       DIAG_USE(loc, OPTION_opset, .value = arena_printf(e->arena, "%d", opset)), "%s", needs);
        else diag_error(e->diag, AMPC_UNSUPPORTED, loc, "%s, but %s reads at most %d", needs, o->reader, max);
        return;
    }
    e->opset = opset;
    e->changed = true;
}

void emit_check_schema(emitter *e, const ir_node *n)
{
    const onnx_operator *schema = e->rows[n->op].onnx;
    if (!schema->name || !touches(n, IR_bf16)) return;
    if (schema->bf16) emit_need(e, schema->bf16);
    else emit_refuse(e, n, "no opset up to %d supports bfloat16 for %s", ONNX_OPSET_LAST, schema->name);
}

int emit_ir_version(const emitter *e)
{
    enum { WITH_NODE_METADATA = 10 };
    static const struct {
        int opset, version;
    } table[] = {{18, 8}, {20, 9}, {22, 10}, {23, 11}, {24, 12}, {27, 13}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (e->opset <= table[i].opset)
            return e->own && table[i].version < WITH_NODE_METADATA ? WITH_NODE_METADATA : table[i].version;
    return ONNX_IR_VERSION_LAST;
}
