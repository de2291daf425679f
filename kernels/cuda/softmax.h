/* softmax.h - arguments of the kernels in softmax.cu. */
#ifndef AMPC_CUDA_SOFTMAX_H
#define AMPC_CUDA_SOFTMAX_H

#include "kernels/cuda/rows.h"

typedef struct softmax_rows {
    cuda_rows rows;
    const void *a, *b; /* the operands: x, or dy and y */
    void *y;
    int in_dtype, out_dtype;
} softmax_rows;

#endif
