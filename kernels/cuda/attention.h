/* attention.h - arguments of the kernels of attention and its gradient.
 *
 * Operands and results are matrices, one for each item, which is a position in the leading dimensions of q. Rows may be
 * anywhere: each view has a stride along each leading dimension, so parts of a packed tensor are read and written in
 * place. */
#ifndef AMPC_CUDA_ATTENTION_H
#define AMPC_CUDA_ATTENTION_H

enum {
    ATTENTION_RANK = 10,     /* IR_MAX_RANK without rows and columns */
    ATTENTION_BLOCK = 128,   /* threads of a block */
    ATTENTION_QUERIES = 64,  /* of a block that multiplies in tensor cores, 16 of a warp */
    ATTENTION_LARGEST = 256, /* depth and width that such a block supports */
    PLAIN_QUERIES = 32,      /* of a block of the plain kernel */
    PLAIN_WIDTH = 256        /* columns of v that it adds at once */
};

/* Strides are in elements; 0 where the view is broadcast. */
typedef struct attention_view {
    void *data; /* NULL: absent or not wanted */
    int dtype;
    long long row, column;
    long long item[ATTENTION_RANK];
    long long group; /* neighbours along the last leading dimension that share an item of this view */
} attention_view;

typedef struct attention_dropout {
    const void *rng; /* seed, step counter; NULL: no dropout */
    int dtype;
    unsigned long long stream;    /* the op's stream plus 1 */
    unsigned long long threshold; /* ratio * 2^32; probabilities with smaller words are dropped */
    float scale;                  /* of those that stay; 1 without dropout */
} attention_dropout;

typedef struct attention_shape {
    int rank;                       /* leading dimensions */
    long long dims[ATTENTION_RANK]; /* of q */
    long long items;                /* their product */
    long long queries, keys, depth, width;
    long long last; /* query t sees no key after t + last */
    float scale;
    attention_dropout dropout;
} attention_shape;

typedef struct attention_args {
    attention_shape shape;
    attention_view q, k, v, mask, y, lse;
} attention_args;

#ifndef __cplusplus
#include "kernels/kernel.h"

/* Of a call of attention or attention_grad. */
attention_shape cuda_attention_shape(const k_args *args);
/* An operand or result of the call, by the strides that it has for the items of q; absent if the view is. */
attention_view cuda_attention_view(const k_args *args, const k_view *v);
#endif

#endif
