/* emit_norm.c - BatchNormalization, LayerNormalization, Softmax, LogSoftmax. */
#include "frontend/emit/emit.h"

void emit_batch_norm(emitter *e, const ir_node *n)
{
    bool others = n->attr[IR_ATTR(batch_norm, training)].i != 0;
    for (int i = 1; i < n->n_out; i++) others |= ir_value_used(n->out[i]);
    if (others) {
        emit_refuse(e, n, "BatchNormalization in training form");
        return;
    }
    emit_op op = emit_begin(e, n, "BatchNormalization");
    emit_operands(&op);
    emit_float(&op, "epsilon", n->attr[IR_ATTR(batch_norm, eps)].f);
    emit_float(&op, "momentum", n->attr[IR_ATTR(batch_norm, momentum)].f);
    emit_result(&op, 0, n->out[0]->type.dtype);
    emit_end(&op);
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
    emit_int(&op, "axis", n->attr[IR_ATTR(layer_norm, axis)].i);
    emit_float(&op, "epsilon", n->attr[IR_ATTR(layer_norm, eps)].f);
    emit_result(&op, 0, type);
    bool rstd = ir_value_used(n->out[IR_OUT(layer_norm, rstd)]);
    if (rstd || ir_value_used(n->out[IR_OUT(layer_norm, mean)])) emit_result(&op, IR_OUT(layer_norm, mean), IR_f32);
    if (rstd) emit_result(&op, IR_OUT(layer_norm, rstd), IR_f32);
    emit_end(&op);
}

static void along_axis(emitter *e, const ir_node *n, int axis)
{
    emit_op op = emit_begin(e, n, e->rows[n->op].onnx->name);
    emit_operands(&op);
    emit_int(&op, "axis", n->attr[axis].i);
    emit_result(&op, 0, ir_in(n, 0)->type.dtype);
    emit_end(&op);
}

void emit_softmax(emitter *e, const ir_node *n) { along_axis(e, n, IR_ATTR(softmax, axis)); }

void emit_log_softmax(emitter *e, const ir_node *n) { along_axis(e, n, IR_ATTR(log_softmax, axis)); }
