/* update.h - what a step of an optimizer op may read and write beside the slots of the op, for all devices.
 *
 *     operands  K_UPDATE_SCALE  f32 scalar: the gradient, of any float type, is that of the loss times this number;
 *                               it is unscaled as check_finite_and_unscale does it, with the same bits
 *     results   K_UPDATE_LOW    param_out once more, rounded to another float type
 *
 * With `skip` set neither param_out nor this copy is written when it lies in place. check_finite_and_unscale with none
 * of its `outs` wanted reads the gradients and writes found_inf alone. */
#ifndef AMPC_UPDATE_H
#define AMPC_UPDATE_H

#include "kernels/kernel.h"

enum { K_UPDATE_SCALE = 0, K_UPDATE_EXTRA_IN = 1 };
enum { K_UPDATE_LOW = 0, K_UPDATE_EXTRA_OUT = 1 };

#endif
