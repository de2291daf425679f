/* loss.h - the extra result (K_SLOT) of softmax_cross_entropy_grad, for all devices.
 *
 *     result    loss    the result of softmax_cross_entropy with the same operands and attributes. Operand lse is then
 *                       absent, and computed. */
#ifndef AMPC_LOSS_H
#define AMPC_LOSS_H

#include "kernels/kernel.h"

/* The op that may be such a result, and the one that may have it. */
static inline bool k_is_loss(ir_op op) { return op == IR_OP_softmax_cross_entropy; }
static inline bool k_computes_loss(ir_op op) { return op == IR_OP_softmax_cross_entropy_grad; }

/* NULL: the gradient alone. */
static inline k_view *k_loss_result(const k_args *args)
{
    return k_computes_loss(args->op) ? k_extra_out(args, K_SLOT(loss, loss)) : NULL;
}

#endif
