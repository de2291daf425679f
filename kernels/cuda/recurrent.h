/* recurrent.h - arguments of the kernels in recurrent.cu. */
#ifndef AMPC_CUDA_RECURRENT_H
#define AMPC_CUDA_RECURRENT_H

#include "kernels/recurrent.h"

enum {
    RECURRENT_TILE = 16,  /* a block computes the units of a tile of this size in a tile of rows of the batch */
    RECURRENT_DEPTH = 32, /* columns of the factors in shared memory at a time */
    RECURRENT_BLOCK = RECURRENT_TILE * RECURRENT_TILE
};

/* Arrays of type `dtype` if not stated otherwise; NULL: absent, or unused. */
typedef struct recurrent_args {
    recurrent_shape shape;
    const void *x, *r, *bias, *h0, *lengths;
    const float *c0, *peephole;
    void *y, *last_h, *gates;
    float *last_c, *cells;
    const void *dy, *dlast_h;
    const float *dlast_c;
    void *dx, *dproduct, *previous, *reset, *dh0;
    float *dc0, *dpeephole;
    /* Workspace, [B,H] unless stated. Forward: the states before and after the step, the cell state, r times h, and
     * the operand of z. Backward: the gradient of h after the step but for what passes through products, that of c, and
     * those of the products, [B,G*H], of the step and of the step after it. */
    float *h, *next_h, *c, *factor, *z;
    float *direct, *dc, *products, *later;
    long long t;  /* the step; backward: -1 after the first one */
    int is_first; /* backward: there is no step after this one */
    int dtype, lengths_dtype;
    int step, *fault;
} recurrent_args;

#endif
