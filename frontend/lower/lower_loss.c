/* lower_loss.c - SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss.
 *
 * Losses of the IR are always f32, those of ONNX have the type of the scores, so a low-precision result is cast. */
#include "frontend/lower/lower.h"

static ir_node *loss_node(onnx_node *n, ir_op op, int reduction_attr, int ignore_attr)
{
    const int reduction = onnx_word(n, "reduction", ir_words_loss, IR_WORD(loss, mean));
    int64_t ignore = onnx_int(n, "ignore_index", INT64_MIN);
    if (n->failed) return NULL;
    ir_node *node = ir_new(n->b, op, 3, n->in[0], n->in[1], onnx_in(n, 2));
    ir_set_int(node, reduction_attr, reduction);
    ir_set_int(node, ignore_attr, ignore);
    n->out[0] = ir_cast(n->b, ir_done(n->b, node), n->in[0]->type.dtype);
    return n->out[0] ? node : NULL;
}

void onnx_lower_softmax_cross_entropy(onnx_node *n)
{
    ir_node *node = loss_node(n, IR_OP_softmax_cross_entropy, IR_ATTR(softmax_cross_entropy, reduction),
                              IR_ATTR(softmax_cross_entropy, ignore_index));
    if (node && onnx_result_is_used(n, 1)) n->out[1] = node->out[IR_OUT(softmax_cross_entropy, log_prob)];
}

void onnx_lower_nll_loss(onnx_node *n)
{
    loss_node(n, IR_OP_nll_loss, IR_ATTR(nll_loss, reduction), IR_ATTR(nll_loss, ignore_index));
}
