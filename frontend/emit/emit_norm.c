/* emit_norm.c - BatchNormalization, LayerNormalization. */
#include "frontend/emit/emit.h"

void emit_batch_norm(emitter *e, const ir_node *n)
{
    bool read = false;
    for (int i = 1; i < n->n_out; i++) read |= ir_value_used(n->out[i]);
    if (n->attr[IR_ATTR(batch_norm, training)].i)
        emit_refuse(e, n, "BatchNormalization in training mode cannot be exported%s",
                    read ? ", and other nodes read its statistics" : "; --mode=eval converts it to inference mode");
    else if (read) emit_refuse(e, n, "BatchNormalization cannot be exported: other nodes read its statistics");
    else emit_simple(e, n);
}

/* The schema requires scale and bias in the type of the input; statistics are f32 in both ONNX (stash_type) and the
 * IR. */
void emit_layer_norm(emitter *e, const ir_node *n)
{
    ir_dtype type = ir_in(n, 0)->type.dtype;
    const ir_value *bias = ir_in(n, IR_IN(layer_norm, bias));
    emit_op op = emit_begin(e, n, "LayerNormalization");
    emit_operand(&op, 0);
    emit_in(&op, emit_value_as(e, ir_in(n, IR_IN(layer_norm, scale)), type));
    if (bias) emit_in(&op, emit_value_as(e, bias, type));
    emit_finish(&op);
}
