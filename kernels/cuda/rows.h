/* rows.h - an array viewed as rows along one axis, for host and device (cuda.h, rows.cuh). */
#ifndef AMPC_CUDA_ROWS_H
#define AMPC_CUDA_ROWS_H

enum {
    ROW_BLOCK = 256, /* threads per block */
    ROW_WARPS = ROW_BLOCK / 32,
    ROW_IN_WARP = 1024 /* longest row that a warp keeps in registers */
};

/* [outer, length, inner]: outer * inner rows (o, :, i); a row's elements are adjacent if inner is 1. */
typedef struct cuda_rows {
    long long outer, length, inner;
} cuda_rows;

#endif
