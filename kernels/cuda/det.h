/* det.h - arguments of the kernels in det.cu. */
#ifndef AMPC_CUDA_DET_H
#define AMPC_CUDA_DET_H

enum { DET_BLOCK = 64 }; /* threads per block */

typedef struct det_batch {
    const void *dy, *x; /* dy: for the gradient */
    void *y;
    double *space; /* `each` elements per matrix */
    long long count, size, each;
    int dtype;
} det_batch;

#endif
