/* scan.h - arguments of the kernels in scan.cu. */
#ifndef AMPC_CUDA_SCAN_H
#define AMPC_CUDA_SCAN_H

#include "kernels/cuda/rows.h"

typedef struct scan_rows {
    cuda_rows rows;
    const void *x;
    void *y;
    int x_dtype, y_dtype;
    int lanes; /* threads per row: 1 or 32 */
    int exclusive, reverse;
} scan_rows;

#endif
