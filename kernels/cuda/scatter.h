/* scatter.h - arguments of the kernels in scatter.cu. */
#ifndef AMPC_CUDA_SCATTER_H
#define AMPC_CUDA_SCATTER_H

#include "kernels/cuda/gather.h"

/* Copies rows at the places to or from items [count, inner]; inner is in elements of the kernel's size. */
typedef struct scatter_rows {
    cuda_places places;
    const void *from;
    void *to;
    int *winners; /* [rows]: the last item of each row, or -1 */
} scatter_rows;

#endif
