/* grid_sample.h - arguments of the kernels in grid_sample.cu. */
#ifndef AMPC_CUDA_GRID_SAMPLE_H
#define AMPC_CUDA_GRID_SAMPLE_H

#include "kernels/grid.h"

enum {
    GRID_BLOCK = 256,
    GRID_SEGMENT = 8192, /* f32 sums per block of the gradient of x, in shared memory */
    GRID_SLOTS = 1024    /* plus 4 KiB to order the writers */
};

typedef struct grid_args {
    grid_shape shape;
    const void *x, *grid, *dy;
    void *to;
    int dtype, grid_dtype;
    int span; /* elements per segment of a plane */
} grid_args;

#endif
