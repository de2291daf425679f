/* emit_opaque_bytes.c - decodes the stored bytes of opaque operators: their attributes, and the names in their
 * subgraphs. */
#include "frontend/emit/emit.h"
#include "frontend/opaque/opaque.h"

const Onnx__NodeProto *emit_decode_opaque(emitter *e, const ir_node *n, onnx_bytes *bytes)
{
    const char *text = n->attr[ir_op_find_attr(n->op, "attributes")].s;
    ProtobufCMessage *node = NULL;
    *bytes = opaque_from_text(e->arena, text);
    if ((!bytes->data && *text) ||
        onnx_decode(e->arena, &onnx__node_proto__descriptor, *bytes, n->loc.node, e->diag, &node) != AMPC_OK)
        diag_error(e->diag, AMPC_REJECTED, ir_diag_loc(n), "its attributes are malformed");
    return (const Onnx__NodeProto *)node;
}

static void reserve_names(emitter *e, const ir_node *n)
{
    onnx_bytes bytes;
    const Onnx__NodeProto *p = emit_decode_opaque(e, n, &bytes);
    opaque_names names = opaque_names_new(e->arena);
    if (!p) return;
    opaque_visit(&names, p, opaque_define);
    for (size_t i = 0; i < names.definitions.count; i++) strmap_put(e->names, names.definitions.items[i], e);
}

void emit_reserve_opaque(emitter *e, const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (ir_op_has(n->op, IR_DECLARED)) reserve_names(e, n);
}
