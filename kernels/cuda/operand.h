/* operand.h - an operand seen in the shape of a result, as an argument of kernels (operand.cuh reads it). */
#ifndef AMPC_CUDA_OPERAND_H
#define AMPC_CUDA_OPERAND_H

enum {
    OPERAND_RANK = 12,  /* IR_MAX_RANK */
    OPERAND_DENSE = 0,  /* in the result's own order */
    OPERAND_STRIDED = 1 /* broadcast: strides say where */
};

typedef struct cuda_operand {
    const void *data;
    int dtype, form;
    int rank; /* STRIDED: >= 1; merged dimensions of the result, and the operand's stride in each */
    long long dims[OPERAND_RANK], strides[OPERAND_RANK];
} cuda_operand;

#ifndef __cplusplus
#include "kernels/walk.h"
/* v in the shape of y (NumPy rules). */
cuda_operand cuda_operand_of(const k_view *v, const k_view *y);
#endif

#endif
