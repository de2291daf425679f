/* emit_loss.c - SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss. */
#include "frontend/emit/emit.h"

static emit_op begin(emitter *e, const ir_node *n, int64_t ignore_index, const char *reduction)
{
    const ir_value *weight = ir_in(n, 2), *label = ir_in(n, 1);
    ir_dtype type = ir_in(n, 0)->type.dtype;
    emit_op op = emit_begin(e, n, e->rows[n->op].onnx->name);
    emit_operand(&op, 0);
    emit_in(&op, emit_value_as(e, label, label->type.dtype == IR_i32 ? IR_i32 : IR_i64));
    if (weight) emit_in(&op, emit_value_as(e, weight, type));
    if (ignore_index != INT64_MIN) emit_int(&op, "ignore_index", ignore_index);
    emit_text(&op, "reduction", reduction);
    emit_result(&op, 0, type);
    return op;
}

void emit_softmax_cross_entropy(emitter *e, const ir_node *n)
{
    if (ir_value_used(n->out[IR_OUT(softmax_cross_entropy, lse)])) {
        emit_none(e, n);
        return;
    }
    emit_op op = begin(e, n, n->attr[IR_ATTR(softmax_cross_entropy, ignore_index)].i,
                       n->attr[IR_ATTR(softmax_cross_entropy, reduction)].s);
    int log_prob = IR_OUT(softmax_cross_entropy, log_prob);
    if (ir_value_used(n->out[log_prob])) emit_result(&op, log_prob, ir_in(n, 0)->type.dtype);
    emit_end(&op);
}

void emit_nll_loss(emitter *e, const ir_node *n)
{
    emit_op op = begin(e, n, n->attr[IR_ATTR(nll_loss, ignore_index)].i, n->attr[IR_ATTR(nll_loss, reduction)].s);
    emit_end(&op);
}
