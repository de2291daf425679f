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
 *   With none of its `outs` wanted (they keep their positions) it reads the gradients and writes found_inf alone. It
 *   can then also accumulate the squares of the unscaled gradients in the same pass:
 *     result    after found_inf  f64 vector whose elements add up to the sum of squares. How the sum is divided among
 *                                them depends on the device and on the shapes.
 *     operand   after the bool scalar  f64 vector of an earlier call, to which this call adds; the result may be stored
 *                                over it. Without this operand the sums start at 0.
 *   found_inf does not depend on the sums, which can overflow although every gradient is finite.
 *
 * global_norm, whose operands may be raw gradients of any float types:
 *     operands  behind the gradients an absent one, then K_NORM_SCALE, as K_UPDATE_SCALE
 *   or no gradients: two absent operands, then K_NORM_SQUARES, the sums of squares that checks have accumulated. The
 *   result is then the same up to the order of the additions. */
#ifndef AMPC_UPDATE_H
#define AMPC_UPDATE_H

#include "kernels/kernel.h"

enum { K_UPDATE_SCALE = 0, K_UPDATE_EXTRA_IN = 1 };
enum { K_UPDATE_LOW = 0, K_UPDATE_EXTRA_OUT = 1 };
enum { K_NORM_SCALE = 1, K_NORM_EXTRA_IN = 2, K_NORM_SQUARES = 2, K_NORM_JOINED_IN = 3 };
enum { K_SQUARE_SUMS = 1024 }; /* elements of the sums of squares, one per block: enough blocks for a large device */

/* Whether a call of check_finite_and_unscale accumulates squares. */
static inline bool k_check_sums(const k_args *args)
{
    return args->n_out > 1 && args->out[args->n_out - 1].dtype == IR_f64 &&
           args->out[args->n_out - 2].dtype == IR_bool;
}
/* How many gradients there are, `scale` and found_inf, and what was found before it, or NULL. */
static inline int k_check_gradients(const k_args *args)
{
    return args->n_out - (k_check_sums(args) ? 2 : 1);
}
static inline const k_view *k_check_scale(const k_args *args)
{
    return &args->in[k_check_gradients(args)];
}
static inline k_view *k_check_found(const k_args *args)
{
    return &args->out[k_check_gradients(args)];
}
static inline const k_view *k_check_before(const k_args *args)
{
    const int at = k_check_gradients(args) + 1;
    return at < args->n_in && k_present(&args->in[at]) ? &args->in[at] : NULL;
}
/* The sums of squares, or NULL, and those to add to, or NULL. */
static inline k_view *k_check_squares(const k_args *args)
{
    return k_check_sums(args) ? &args->out[args->n_out - 1] : NULL;
}
static inline const k_view *k_check_squares_before(const k_args *args)
{
    const int at = k_check_gradients(args) + 2;
    return at < args->n_in && k_present(&args->in[at]) ? &args->in[at] : NULL;
}

/* The slots of an optimizer: operands and results begin with the parameter and its states. -1: it has no such slot. */
typedef struct k_update_slots {
    ir_op op;
    int states, grad, step, lr, skip;                 /* operands */
    int weight_decay, mu, beta1, beta2, eps, variant; /* attributes; variant: nesterov, decoupled */
} k_update_slots;

/* NULL: the op is no optimizer. */
static inline const k_update_slots *k_update_slots_of(ir_op op)
{
    static const k_update_slots rows[] = {
        {IR_OP_sgd, 1, IR_IN(sgd, grad), -1, IR_IN(sgd, lr), IR_IN(sgd, skip),
         IR_ATTR(sgd, weight_decay), -1, -1, -1, -1, -1},
        {IR_OP_momentum, 2, IR_IN(momentum, grad), -1, IR_IN(momentum, lr), IR_IN(momentum, skip),
         IR_ATTR(momentum, weight_decay), IR_ATTR(momentum, mu), -1, -1, -1, IR_ATTR(momentum, nesterov)},
        {IR_OP_adamw, 3, IR_IN(adamw, grad), IR_IN(adamw, step), IR_IN(adamw, lr), IR_IN(adamw, skip),
         IR_ATTR(adamw, weight_decay), -1, IR_ATTR(adamw, beta1), IR_ATTR(adamw, beta2), IR_ATTR(adamw, eps),
         IR_ATTR(adamw, decoupled)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}
static inline bool k_updates(ir_op op) { return ir_op_has(op, IR_UPDATES); }
static inline int k_update_gradient(ir_op op) { return k_update_slots_of(op)->grad; }

/* Of a call of global_norm: how many gradients there are; the scale, and sums of squares, or NULL. */
static inline int k_norm_gradients(const k_args *args)
{
    int n = 0;
    while (n < args->n_in && k_present(&args->in[n])) n++;
    return n;
}
static inline const k_view *k_norm_extra(const k_args *args, int which)
{
    const int at = k_norm_gradients(args) + which;
    return at < args->n_in && k_present(&args->in[at]) ? &args->in[at] : NULL;
}
static inline const k_view *k_norm_scale(const k_args *args)
{
    return k_norm_extra(args, K_NORM_SCALE);
}
static inline const k_view *k_norm_squares(const k_args *args)
{
    return k_norm_extra(args, K_NORM_SQUARES);
}

#endif
