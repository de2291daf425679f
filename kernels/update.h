/* update.h - extra operands and results (K_SLOT) of the kernels that finish a training step, for all devices. They let
 * one pass over memory do the work of several ops of the graph, with the same bits.
 *
 * optimizers (ir/ops/updates.def); the gradient may have any float type:
 *     operands  scale           scalar loss scale; the gradient is unscaled as check_finite_and_unscale does it
 *               a, b            operands of the op, a matmul or a conv_grad_weight without dbias, that computes the
 *                               gradient, which is absent (CPU only: cpu_grad_update). The attributes of the update are
 *                               followed by the number of that op, and its attributes
 *     result    low             param_out rounded to another float type
 * If `skip` is set, results that alias their operands are not written. The low-precision copy is in place if param_out
 * is, and then it already holds the rounded old parameter; otherwise it is computed from the old parameter.
 *
 * check_finite_and_unscale, family check:
 *     operand   found_before    bool scalar: found_inf of earlier calls. found_inf is true if it is, and may alias it.
 *                               Chained calls have the same result as one call with all gradients, and each can run as
 *                               soon as its gradients are available.
 * If none of `outs` is wanted (they keep their positions), the kernel reads the gradients and writes only found_inf. It
 * can then also accumulate the squares of the unscaled gradients in the same pass:
 *     result    squares         f64 vector whose elements add up to the sum of squares. How the sum is distributed over
 *                               the elements depends on the device and the shapes.
 *     operand   squares_before  `squares` of an earlier call, to which this call adds; the result may alias it. Without
 *                               this operand the sums start at 0.
 * cpu_check_factors replaces its kernel on the CPU. Its operands are factors of gradients instead of
 * gradients, and found_inf is true if one of them is NaN or greater than the attribute `limit`, an f64, in magnitude.
 * found_inf does not depend on the sums, which can overflow although every gradient is finite.
 *
 * global_norm, family norm; its operands may be scaled gradients of any float types:
 *     operands  scale           like that of an update
 *               squares         instead of gradients, of which there are none: the `squares` of the last check. The
 *                               result is the same up to the order of additions. */
#ifndef AMPC_UPDATE_H
#define AMPC_UPDATE_H

#include "kernels/kernel.h"

#include <math.h>

extern const k_kernel cpu_check_factors;

/* Elements of the vector of sums of squares; one per block, so that a large device has enough blocks. */
enum { K_SQUARE_SUMS = 1024 };

static inline const k_view *k_check_scale(const k_args *args)
{
    return &args->in[k_in_at(args->op, args->listed, IR_IN(check_finite_and_unscale, scale))];
}
static inline k_view *k_check_found(const k_args *args)
{
    return &args->out[k_out_at(args->op, args->listed, IR_OUT(check_finite_and_unscale, found_inf))];
}

/* The operands of an optimizer, -1 if it does not have one. Operands and results start with the parameter and its
 * slots, `states` in total. */
typedef struct k_update_slots {
    ir_op op;
    int states, grad, step, ratio, lr, skip;
} k_update_slots;

/* NULL if the op is not an optimizer. */
static inline const k_update_slots *k_update_slots_of(ir_op op)
{
#define SLOT_lr(op) IR_IN(op, lr)
#define SLOT_step(op) IR_IN(op, step)
#define SLOT_ratio(op) IR_IN(op, ratio)
#define SLOT_none(op) (-1)
#define UPDATE(op, states, rate, step, ratio, ...) \
    {IR_OP_##op, states, IR_IN(op, grad), SLOT_##step(op), SLOT_##ratio(op), SLOT_##rate(op), IR_IN(op, skip)},
    static const k_update_slots rows[] = {
#include "ir/ops/updates.def"
    };
#undef SLOT_lr
#undef SLOT_step
#undef SLOT_ratio
#undef SLOT_none
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}
/* The attributes of an optimizer, all as f64. */
static inline void k_update_attributes(ir_op op, const ir_attr *attr, double *numbers)
{
    const ir_op_info *info = ir_op_get(op);
    for (int i = 0; i < info->n_attr; i++)
        numbers[i] = info->attr[i].kind == IR_SLOT_DOUBLE ? attr[i].f : (double)attr[i].i;
}
static inline bool k_updates(ir_op op) { return ir_op_has(op, IR_UPDATES); }
static inline int k_update_gradient(ir_op op) { return k_update_slots_of(op)->grad; }

/* The call that computes the gradient of an update, and its views. The gradient has the dimensions of the parameter. */
typedef struct k_gradient {
    k_view in[3], out[2]; /* as many as either op has */
    k_args args;
} k_gradient;

/* False: the gradient is an operand. Its data is only not NULL. */
static inline bool k_update_computes(const k_args *args, k_gradient *g)
{
    const k_view *a = k_extra_in(args, K_SLOT(update, a)), *b = k_extra_in(args, K_SLOT(update, b));
    if (!k_updates(args->op) || !a || !b) return false;
    const ir_attr *attr = args->attr + ir_op_get(args->op)->n_attr;
    *g = (k_gradient){.in = {*a, *b}, .out = {args->in[0]}, .args = *args};
    g->in[2].dtype = g->out[1].dtype = IR_NO_DTYPE;
    g->args.op = (ir_op)attr->i;
    g->args.attr = attr + 1;
    g->args.in = g->in;
    g->args.out = g->out;
    g->args.n_in = ir_op_get(g->args.op)->n_in;
    g->args.n_out = ir_op_get(g->args.op)->n_out;
    return true;
}

/* The elements of each of the IR_NORM_PARTS parts of a tensor in norm_parts; the last parts may have fewer, or none. A
 * multiple of 8, so that parts are aligned. */
static inline int64_t k_norm_part_length(int64_t count)
{
    return (count + IR_NORM_PARTS * 8 - 1) / (IR_NORM_PARTS * 8) * 8;
}

/* The divisor of the norms of a norm_parts. */
static inline double k_norm_root(const k_args *args)
{
    const int64_t n = k_count(&args->in[0]);
    return args->attr[IR_ATTR(norm_parts, mean)].i && n > 0 ? sqrt((double)n) : 1;
}

#endif
