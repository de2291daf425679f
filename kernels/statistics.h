/* statistics.h - sums that a convolution computes for the normalisation of its result.
 *
 *     %c, sum, squares = conv %x, %w                    [M] f32: sums of %c and of its squares, per channel
 *     %y, .. = batch_norm %c, .., sum_x, squares_x      training; reads %c only to compute %y
 *
 * They are in K_SLOT(statistics, ..). The variance is max(squares / n - mean^2, 0): unlike that of separate sums, which
 * are shifted towards the mean, its relative error grows with mean^2 / variance, in f32 by the order of 2^-22 times
 * that. Only convolutions in f16 have these results, for which cuDNN has compiled engines. */
#ifndef AMPC_STATISTICS_H
#define AMPC_STATISTICS_H

#include "kernels/kernel.h"

/* The sums that a batch_norm reads; NULL: it computes its own. */
typedef struct k_statistics {
    const k_view *sum, *squares;
} k_statistics;

static inline k_statistics k_statistics_of(const k_args *args)
{
    return (k_statistics){k_extra_in(args, K_SLOT(statistics, sum_x)), k_extra_in(args, K_SLOT(statistics, squares_x))};
}

/* Whether the kernel reads operand i: a batch_norm that knows the sums of x reads x only to compute y. */
static inline bool k_statistics_read(const k_args *args, int i)
{
    if (args->op != IR_OP_batch_norm || i != IR_IN(batch_norm, x) || !k_statistics_of(args).sum) return true;
    return k_present(&args->out[IR_OUT(batch_norm, y)]);
}

#endif
