/* mix.h - mix-up: a training sample becomes a weighted mean of itself and another one (Zhang et al., "mixup: Beyond
 * Empirical Risk Minimization", ICLR 2018), and its label the same mean of two classes. */
#ifndef RT_MIX_H
#define RT_MIX_H

#include "runtime/data/augment.h"

/* What a sample is mixed with: share * itself + (1 - share) * sample `partner` of the data set. */
typedef struct rt_mix {
    int64_t partner;
    float share;
} rt_mix;

/* A function of (seed, epoch, row). The share is drawn from Beta(alpha, alpha), 0 < alpha <= 1; the partner is one of
 * `rows` samples. */
rt_mix rt_mix_draw(double alpha, const rt_draw *draw, int64_t row, int64_t rows);

/* Stores share * dst + (1 - share) * other in `dst`, n elements of a float dtype. */
void rt_mix_add(const rt_mix *m, void *dst, const void *other, ir_dtype dtype, size_t n);

/* Changes a column of class numbers into one of probabilities f32[classes, ..]: 1 for the class, 0 for others. Reading
 * fails with AMPC_REJECTED if a number is not within 0 .. classes-1. */
ampc_status rt_columns_encode_classes(rt_column *c, int64_t classes, diag *d);

#endif
