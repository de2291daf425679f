/* emit_pointwise.c - element by element, where a node is more than its operator: Gelu, Clip, Mod,
 * Cast. */
#include "frontend/emit.h"

void emit_gelu(emitter *e, const ir_node *n)
{
    emit_need(e, 20);
    emit_op op = emit_begin(e, n, "Gelu");
    emit_operands(&op);
    if (n->attr[IR_ATTR(gelu, tanh)].i) emit_text(&op, "approximate", "tanh");
    emit_results(&op);
    emit_end(&op);
}

/* Bounds of one element are scalars in ONNX. */
static const char *bound(emitter *e, const ir_node *n, int i)
{
    const ir_value *v = ir_in(n, i);
    if (!v) return NULL;
    const char *name = emit_value(e, v);
    return v->type.rank ? emit_call(e, n, "Reshape", name, emit_i64s(e, NULL, 0)) : name;
}

void emit_clip(emitter *e, const ir_node *n)
{
    const char *lo = bound(e, n, IR_IN(clip, lo)), *hi = bound(e, n, IR_IN(clip, hi));
    emit_op op = emit_begin(e, n, "Clip");
    emit_operand(&op, 0);
    if (lo || hi) emit_in(&op, lo);
    if (hi) emit_in(&op, hi);
    emit_results(&op);
    emit_end(&op);
}

void emit_mod(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "Mod");
    emit_operands(&op);
    emit_int(&op, "fmod", n->attr[IR_ATTR(mod, fmod)].i);
    emit_results(&op);
    emit_end(&op);
}

/* A weight that the passes cast is read in that type; a cast of the model's own stays. */
void emit_cast(emitter *e, const ir_node *n)
{
    const ir_value *v = ir_in(n, 0);
    ir_dtype to = n->out[0]->type.dtype;
    if (!n->loc.op && v->kind == IR_VALUE_STORAGE) {
        emit_define(e, n, 0, emit_value_as(e, v, to), to);
        return;
    }
    emit_op op = emit_begin(e, n, "Cast");
    emit_operand(&op, 0);
    emit_int(&op, "to", onnx_type_of(to));
    emit_results(&op);
    emit_end(&op);
}
