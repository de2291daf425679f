/* emit_loss.c - SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss. */
#include "frontend/emit/emit.h"

static void loss(emitter *e, const ir_node *n, int log_prob)
{
    const ir_value *weight = ir_in(n, 2), *label = ir_in(n, 1);
    ir_dtype type = ir_in(n, 0)->type.dtype;
    emit_op op = emit_begin(e, n, e->rows[n->op].onnx->name);
    emit_operand(&op, 0);
    emit_in(&op, emit_value_as(e, label, label->type.dtype == IR_i32 ? IR_i32 : IR_i64));
    if (weight) emit_in(&op, emit_value_as(e, weight, type));
    emit_attributes(&op);
    emit_result(&op, 0, type);
    if (log_prob && ir_value_used(n->out[log_prob])) emit_result(&op, log_prob, type);
    emit_end(&op);
}

void emit_softmax_cross_entropy(emitter *e, const ir_node *n)
{
    const bool is_padded = n->attr[IR_ATTR(softmax_cross_entropy, classes)].i != 0;
    if (is_padded || ir_value_used(n->out[IR_OUT(softmax_cross_entropy, lse)])) emit_none(e, n);
    else loss(e, n, IR_OUT(softmax_cross_entropy, log_prob));
}

void emit_nll_loss(emitter *e, const ir_node *n) { loss(e, n, 0); }
