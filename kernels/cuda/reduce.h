/* reduce.h - arguments of the kernels in reduce.cu. */
#ifndef AMPC_CUDA_REDUCE_H
#define AMPC_CUDA_REDUCE_H

#include "kernels/cuda/operand.h"

enum {
    REDUCE_BLOCK = 256,
    NORM_UNIT = REDUCE_BLOCK * 8 * 4, /* elements that a block squares at a time */
    NORM_SPANS = 512,                 /* tensors of one launch; they travel as its argument */
    NORM_BLOCKS = 512
};

/* Positions of some dimensions and where they lie in the operand. */
typedef struct reduce_positions {
    long long count;
    int rank;
    long long dims[OPERAND_RANK], strides[OPERAND_RANK];
} reduce_positions;

/* Kept and reduced dimensions outside of the innermost run of `length` elements, which is reduced (rows) or kept
 * (columns). The terms of an output are cut into `groups` parts; result number o has its part g at o * groups + g. */
typedef struct reduce_shape {
    const void *x;
    void *y;
    int x_dtype, y_dtype;
    reduce_positions kept, reduced;
    long long length;
    long long groups;
    int lanes; /* rows: neighbouring threads that share an output; columns: tiles of a row that a block takes */
    int mean;           /* divide by `terms` */
    long long terms;
} reduce_shape;

typedef struct norm_span {
    const void *x;
    long long count;
    int dtype, first;   /* it begins at unit `first` of the launch */
} norm_span;

typedef struct norm_table {
    int spans, units;
    double *partial;    /* one for each block of the launch */
    const float *scale; /* of the loss that all are gradients of; NULL: 1 */
    norm_span span[NORM_SPANS];
} norm_table;

#ifndef __cplusplus
#include "kernels/cuda/cuda.h"

/* How rows of neighbouring elements are summed: each by `lanes` threads of a warp, or each by as many blocks as it has
 * groups, which leave parts. A function of the shape alone. */
typedef struct cuda_row_cut {
    bool by_block;
    int lanes;
    int64_t groups, blocks; /* no more than INT32_MAX blocks can be launched */
} cuda_row_cut;
cuda_row_cut cuda_cut_rows(int64_t rows, int64_t length);

typedef struct cuda_reduce_kernels {
    cudaKernel_t by_form[3];
} cuda_reduce_kernels;
/* Those for floats, or for whole numbers. Only in prepare. */
ampc_status cuda_find_reduce(const k_context *ctx, bool whole, cuda_reduce_kernels *out);
/* y[r], of any float type: the sum of the `groups` f32 parts of row r; `terms` > 0: divided by so many. */
ampc_status cuda_join_rows(const k_args *args, const cuda_reduce_kernels *kernels, const void *parts, int64_t groups,
                           int64_t terms, void *y, ir_dtype y_dtype, int64_t rows);
#endif

#endif
