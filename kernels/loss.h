/* loss.h - the extra result (K_SLOT) of softmax_cross_entropy_grad, for all devices.
 *
 *     result    loss    the result of softmax_cross_entropy with the same operands and attributes; may be unwanted
 *
 * A call that computes the loss has no operand lse, and computes that, too. */
#ifndef AMPC_LOSS_H
#define AMPC_LOSS_H

#include "kernels/kernel.h"

/* The op that may be such a result, and the one that may have it. */
static inline bool k_is_loss(ir_op op) { return op == IR_OP_softmax_cross_entropy; }
static inline bool k_computes_loss(ir_op op) { return op == IR_OP_softmax_cross_entropy_grad; }

/* Whether the gradient computes lse, and the loss unless that is unwanted. */
static inline bool k_computes_lse(const k_args *args)
{
    return k_computes_loss(args->op) && !k_present(&args->in[IR_IN(softmax_cross_entropy_grad, lse)]);
}

/* NULL: unwanted. */
static inline k_view *k_loss_result(const k_args *args)
{
    return k_computes_lse(args) ? k_extra_out(args, K_SLOT(loss, loss)) : NULL;
}

#endif
