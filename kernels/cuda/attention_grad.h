/* attention_grad.h - arguments of the kernels in attention_grad.cu. */
#ifndef AMPC_CUDA_ATTENTION_GRAD_H
#define AMPC_CUDA_ATTENTION_GRAD_H

#include "kernels/cuda/attention.h"

enum {
    GRAD_TILE = 64,     /* queries and keys of a tile */
    GRAD_COLUMNS = 128, /* of a gradient that a block computes */
    GRAD_BLOCK = 256    /* threads */
};

typedef struct attention_backward {
    attention_shape shape;
    attention_view q, k, v, mask, y, lse, dy, dq, dk, dv;
    long long group; /* items of q that share an item of k and v */
    float *delta;    /* [items, queries]: the sums of dy y */
} attention_backward;

#endif
