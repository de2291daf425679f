/* update.h - what the kernels of a training step's end may read and write beside the slots of their ops, for all
 * devices: it makes one pass over memory of what are several ops in a graph, with the same bits.
 *
 * sgd, momentum, adamw, whose gradient may be of any float type:
 *     operands  K_UPDATE_SCALE  scalar: the gradient is that of the loss times this number; it is unscaled as
 *                               check_finite_and_unscale does it
 *     results   K_UPDATE_LOW    param_out once more, rounded to another float type
 *   With `skip` set what lies in place is not written. The copy lies in place where param_out does: it is that of the
 *   old parameter already. Elsewhere it is made of the old parameter.
 *
 * check_finite_and_unscale:
 *     operand   behind `scale`  bool scalar, what calls before this one found; found_inf is true when it is, and may
 *                               lie over it. Calls that hand it on give together what one call with all the gradients
 *                               gives, each as soon as its gradients are there.
 *   With none of its `outs` wanted (they keep their positions) it reads the gradients and writes found_inf alone.
 *
 * global_norm, whose operands may be raw gradients of any float types:
 *     operands  behind the gradients an absent one, then K_NORM_SCALE, as K_UPDATE_SCALE. */
#ifndef AMPC_UPDATE_H
#define AMPC_UPDATE_H

#include "kernels/kernel.h"

enum { K_UPDATE_SCALE = 0, K_UPDATE_EXTRA_IN = 1 };
enum { K_UPDATE_LOW = 0, K_UPDATE_EXTRA_OUT = 1 };
enum { K_NORM_SCALE = 1, K_NORM_EXTRA_IN = 2 };

/* Of a call of check_finite_and_unscale: how many gradients there are, `scale` and found_inf, and what was found before
 * it, or NULL. */
static inline int k_check_gradients(const k_args *args) { return args->n_out - 1; }
static inline const k_view *k_check_scale(const k_args *args) { return &args->in[args->n_out - 1]; }
static inline k_view *k_check_found(const k_args *args) { return &args->out[args->n_out - 1]; }
static inline const k_view *k_check_before(const k_args *args)
{
    const k_view *v = &args->in[args->n_out];
    return args->n_out < args->n_in && k_present(v) ? v : NULL;
}

/* Ops of optimizers: operand 0 is the parameter, result 0 what it becomes. */
static inline bool k_updates(ir_op op) { return op == IR_OP_sgd || op == IR_OP_momentum || op == IR_OP_adamw; }
/* The operand of such an op that is the gradient. */
static inline int k_update_gradient(ir_op op)
{
    if (op == IR_OP_sgd) return IR_IN(sgd, grad);
    return op == IR_OP_momentum ? IR_IN(momentum, grad) : IR_IN(adamw, grad);
}

/* Of a call of global_norm: the scale, or NULL, and how many gradients there are. */
static inline const k_view *k_norm_scale(const k_args *args)
{
    const int n = args->n_in - K_NORM_EXTRA_IN;
    return n >= 0 && !k_present(&args->in[n]) ? &args->in[n + K_NORM_SCALE] : NULL;
}
static inline int k_norm_gradients(const k_args *args)
{
    return args->n_in - (k_norm_scale(args) ? K_NORM_EXTRA_IN : 0);
}

#endif
