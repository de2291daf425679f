/* norm_grad.h - batch_norm_grad that also computes the gradient of a relu after the normalisation, on CUDA only.
 *
 * Without extra operands, dy is the gradient of the normalised x. With them (K_SLOT(relu, ..)) it is the gradient of
 * the result of a relu, and the kernel makes of it, bit for bit, what an add and a relu_slope would have written:
 *
 *     operands  bias     that of the normalisation. The operand of the relu is the normalised x, which is computed
 *                        again with the arithmetic and the roundings of the parts that split_norms.c makes.
 *               y        the result of the relu, whose operand may be anything, such as the sum of the normalised x
 *                        and another tensor. Either bias or y is present.
 *               addend   added to dy first
 *     result    masked   the gradient of the operand of the relu, for other readers; only with y
 *
 * y, addend and masked have the type and shape of x, bias that of scale. */
#ifndef AMPC_NORM_GRAD_H
#define AMPC_NORM_GRAD_H

#include "kernels/kernel.h"

typedef struct k_norm_relu {
    const k_view *bias, *y, *addend, *masked; /* NULL: absent */
} k_norm_relu;

static inline k_norm_relu k_norm_relu_of(const k_args *args)
{
    return (k_norm_relu){k_extra_in(args, K_SLOT(relu, bias)), k_extra_in(args, K_SLOT(relu, y)),
                         k_extra_in(args, K_SLOT(relu, addend)), k_extra_out(args, K_SLOT(relu, masked))};
}

#endif
