/* layer_norm.h - arguments of the kernels in layer_norm.cu. */
#ifndef AMPC_CUDA_LAYER_NORM_H
#define AMPC_CUDA_LAYER_NORM_H

#include "kernels/cuda/rows.h"

enum {
    COLUMN_TILE = 32 * 8,   /* columns per block that adds rows: one tile per lane */
    COLUMN_GROUP_ROWS = 32, /* minimum rows per group */
    COLUMN_BLOCKS = 264     /* approximate number of blocks that add rows */
};

typedef struct layer_norm_forward {
    cuda_rows rows;
    const void *x, *scale, *bias; /* scale, bias NULL: absent */
    void *y;
    float *mean, *rstd; /* NULL: not wanted */
    int x_dtype, y_dtype, scale_dtype;
    int center; /* subtract the mean */
    float eps;
} layer_norm_forward;

typedef struct layer_norm_backward {
    cuda_rows rows;
    const void *dy, *x, *scale, *addend; /* scale, addend NULL: absent */
    const float *mean, *rstd;
    void *dx, *dscale, *dbias; /* NULL: not wanted */
    int dtype, scale_dtype;
    int center;
    int groups;  /* number of row groups */
    float *sums; /* [groups][2][length]: sums of dy h and of dy */
} layer_norm_backward;

#endif
