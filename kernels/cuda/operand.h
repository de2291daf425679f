/* operand.h - an operand broadcast to the shape of a result, as a kernel argument (read by operand.cuh). */
#ifndef AMPC_CUDA_OPERAND_H
#define AMPC_CUDA_OPERAND_H

enum {
    OPERAND_RANK = 12,  /* IR_MAX_RANK */
    OPERAND_DENSE = 0,  /* same shape and order as the result */
    OPERAND_STRIDED = 1 /* broadcast by strides */
};

typedef struct cuda_operand {
    const void *data;
    int dtype, form;
    int rank; /* for STRIDED, >= 1: merged dimensions of the result, and the operand's stride in each */
    long long dims[OPERAND_RANK], strides[OPERAND_RANK];
} cuda_operand;

#ifndef __cplusplus
#include "kernels/walk.h"
/* Broadcasts v to the shape of y (NumPy rules). */
cuda_operand cuda_operand_of(const k_view *v, const k_view *y);
#endif

#endif
