/* pointwise.h - arguments of the kernels in pointwise.cu. */
#ifndef AMPC_CUDA_POINTWISE_H
#define AMPC_CUDA_POINTWISE_H

#include "kernels/cuda/operand.h"

enum { POINTWISE_BLOCK = 256 };

typedef struct cuda_pointwise {
    cuda_operand a, b; /* b: second operand, if any */
    void *y;
    int y_dtype;
    long long count;
    const void *low, *high; /* bounds, in the operands' dtype; NULL: none */
    float p, q;             /* see IR_NUMBERS_COUNT and IR_NUMBERS_PARAMS */
} cuda_pointwise;

#endif
