/* pointwise.h - what pointwise kernels of all devices share. */
#ifndef AMPC_POINTWISE_H
#define AMPC_POINTWISE_H

#include "ir/ops/formulas.h"
#include "kernels/kernel.h"

/* The divisor of a formula of IR_NUMBERS_COUNT. */
static inline double k_pointwise_count(const ir_attr *attr)
{
    double count = 1;
    for (int i = 0; i < attr[0].list.count; i++) count *= (double)attr[0].list.items[i];
    return ir_count_divisor(count, attr);
}
_Static_assert(IR_ATTR(div_count, count) == 0, "the count is the first attribute");

#endif
