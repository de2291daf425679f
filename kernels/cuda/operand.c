/* operand.c - describes broadcast operands for kernels. */
#include "kernels/cuda/operand.h"

_Static_assert((int)OPERAND_RANK == (int)IR_MAX_RANK, "one limit");

cuda_operand cuda_operand_of(const k_view *v, const k_view *y)
{
    const k_walk w = k_walk_broadcast(v, y);
    cuda_operand o = {.data = v->data,
                      .dtype = (int)v->dtype,
                      .form = k_count(v) == k_count(y) ? OPERAND_DENSE : OPERAND_STRIDED,
                      .rank = w.rank};
    for (int i = 0; i < w.rank; i++) {
        o.dims[i] = w.dims[i];
        o.strides[i] = w.src[i];
    }
    return o;
}
