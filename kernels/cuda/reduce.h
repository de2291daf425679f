/* reduce.h - arguments of the kernels in reduce.cu. */
#ifndef AMPC_CUDA_REDUCE_H
#define AMPC_CUDA_REDUCE_H

#include "kernels/cuda/operand.h"

enum {
    REDUCE_BLOCK = 256,
    NORM_UNIT = REDUCE_BLOCK * 8 * 4, /* elements per block and iteration */
    NORM_SPANS = 512,                 /* tensors per launch, passed as kernel argument */
    NORM_BLOCKS = 512
};

/* Positions of some dimensions and their offsets in the operand. */
typedef struct reduce_positions {
    long long count;
    int rank;
    long long dims[OPERAND_RANK], strides[OPERAND_RANK];
} reduce_positions;

/* The innermost run of `length` elements is either reduced (rows) or kept (columns); `kept` and `reduced` describe
 * the remaining dimensions. The terms of an output are split into `groups` parts; part g of output o is at o *
 * groups + g. */
typedef struct reduce_shape {
    const void *x;
    void *y;
    int x_dtype, y_dtype;
    reduce_positions kept, reduced;
    long long length;
    long long groups;
    int lanes;  /* rows: adjacent threads per output; columns: tiles per block */
    int finish; /* of ir/ops/reductions.h, with `terms` elements per output */
    long long terms;
    float start; /* result without terms; `start_integer` for integers */
    long long start_integer;
} reduce_shape;

typedef struct norm_span {
    const void *x;
    long long count;
    int dtype, first; /* first: unit of the launch at which it starts */
} norm_span;

typedef struct norm_table {
    int spans, units;
    double *partial;    /* one per block */
    const float *scale; /* loss scale of the gradients; NULL: 1 */
    norm_span span[NORM_SPANS];
} norm_table;

#ifndef __cplusplus
#include "kernels/cuda/cuda.h"

/* How rows of adjacent elements are summed: each row either by `lanes` threads of a warp, or by one block per group,
 * which leaves partial sums. Depends only on the shape. */
typedef struct cuda_row_cut {
    bool by_block;
    int lanes;
    int64_t groups, blocks; /* at most INT32_MAX blocks can be launched */
} cuda_row_cut;
cuda_row_cut cuda_cut_rows(int64_t rows, int64_t length);

typedef struct cuda_reduce_kernels {
    cudaKernel_t by_form[3];
} cuda_reduce_kernels;
/* Looks up the kernels that sum floats. Call only from prepare. */
ampc_status cuda_find_reduce(const k_context *ctx, cuda_reduce_kernels *out);
/* y[r] = sum of the `groups` f32 partial sums of row r, divided by `terms` if terms > 0. y has any float type. */
ampc_status cuda_join_rows(const k_args *args, const cuda_reduce_kernels *kernels, const void *parts, int64_t groups,
                           int64_t terms, void *y, ir_dtype y_dtype, int64_t rows);
#endif

#endif
