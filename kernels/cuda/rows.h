/* rows.h - an array seen as rows along one axis, for both sides (rows.cuh, cuda.h). */
#ifndef AMPC_CUDA_ROWS_H
#define AMPC_CUDA_ROWS_H

enum {
    ROW_BLOCK = 256,              /* threads of a block */
    ROW_WARPS = ROW_BLOCK / 32,
    ROW_IN_WARP = 1024            /* the longest row that a warp keeps in registers */
};

/* [outer, length, inner]: outer * inner rows (o, :, i); adjacent elements where inner is 1. */
typedef struct cuda_rows {
    long long outer, length, inner;
} cuda_rows;

#endif
