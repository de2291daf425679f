/* pointwise.h - arguments of the kernels in pointwise.cu. */
#ifndef AMPC_CUDA_POINTWISE_H
#define AMPC_CUDA_POINTWISE_H

#include "kernels/cuda/operand.h"

enum { POINTWISE_BLOCK = 256 };

typedef struct cuda_pointwise {
    cuda_operand a, b;    /* b: where there are two */
    void *y;
    int y_dtype;
    long long count;
    const void *low, *high; /* bounds, of the operands' dtype; NULL: none */
    float number;           /* of IR_NUMBERS_COUNT */
} cuda_pointwise;

#endif
