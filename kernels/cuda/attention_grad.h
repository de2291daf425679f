/* attention_grad.h - arguments of the kernels in attention_grad.cu. */
#ifndef AMPC_CUDA_ATTENTION_GRAD_H
#define AMPC_CUDA_ATTENTION_GRAD_H

#include "kernels/cuda/attention.h"

enum {
    GRAD_TILE = 64, /* queries and keys of a tile */

    /* kernels in f32 */
    GRAD_COLUMNS = 128, /* of a gradient that a block computes */
    GRAD_BLOCK = 256,   /* threads */

    /* kernels on tensor cores */
    GRAD_LOW_COLUMNS = 128, /* of q and v, at most */
    GRAD_LOW_BLOCK = 128    /* threads */
};

/* The distance between rows of so many low numbers in shared memory: no two rows of a matrix are in the same banks. */
#define GRAD_LOW_STEP(columns) ((columns) + 8)
/* Bytes of shared memory: tiles of both own operands, two of both others, and three numbers for each query. */
#define GRAD_LOW_BYTES(columns) (GRAD_TILE * (6 * GRAD_LOW_STEP(columns) * 2 + 2 * 3 * 4))

typedef struct attention_backward {
    attention_shape shape;
    attention_view q, k, v, mask, y, lse, dy, dq, dk, dv;
    long long group; /* items of q that share an item of k and v */
    float *delta;    /* [items, queries]: the sums of dy y */
} attention_backward;

#endif
