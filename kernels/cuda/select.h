/* select.h - arguments of the kernels in select.cu. */
#ifndef AMPC_CUDA_SELECT_H
#define AMPC_CUDA_SELECT_H

#include "kernels/cuda/rows.h"

/* The first `count` elements of each row in the order of the op, and their positions. */
typedef struct select_rows {
    cuda_rows rows;
    const void *x;
    void *values;  /* NULL: not wanted */
    void *indices; /* likewise */
    long long count;
    int x_dtype, index_dtype;
    int lanes;     /* threads per row: 1, 32 or ROW_BLOCK */
    int largest;   /* begin with the largest element */
    int nan_first; /* NaN precedes all numbers; otherwise it follows them */
    int last;      /* among equal elements, begin with the last position */
} select_rows;

#endif
