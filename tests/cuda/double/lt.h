/* lt.h - a matmul as cuBLASLt's descriptors say it: read and checked (lt_problem.c), carried out (lt_run.c). */
#ifndef TESTS_CUDA_DOUBLE_LT_H
#define TESTS_CUDA_DOUBLE_LT_H

#include "tests/cuda/double/inner.h"

#include "ir/dtype.h"

/* Columns one after another, `ld` elements apart. */
typedef struct lt_matrix {
    ir_dtype type;
    int64_t rows, columns, ld, batch, stride;
} lt_matrix;

typedef struct lt_problem {
    lt_matrix a, b, c, d;
    bool trans_a, trans_b, device_scalars;
    unsigned epilogue;
    ir_dtype bias_type, aux_type;
    char *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride;
} lt_problem;

/* What an epilogue does, one bit each. */
enum {
    LT_BIAS = 1,
    LT_RELU = 2,
    LT_GELU = 4,
    LT_RELU_BACK = 8,
    LT_GELU_BACK = 16,
    LT_AUX_OUT = 32,
    LT_BIAS_GRAD = 64, /* sums of the rows of D */
    LT_SUM_A = 128,    /* of the rows of op(A) */
    LT_SUM_B = 256     /* of the columns of op(B) */
};
#define LT_WITH_AUX (LT_RELU_BACK | LT_GELU_BACK | LT_AUX_OUT)
#define LT_BITS_AUX(epilogue) ((epilogue) & (LT_RELU | LT_RELU_BACK))
#define LT_SUMS (LT_BIAS_GRAD | LT_SUM_A | LT_SUM_B)

/* Reads the descriptors with the real library's getters and refuses what is against the header's rules
 * (CUBLAS_STATUS_INVALID_VALUE) or is not known to run on sm_90 (CUBLAS_STATUS_NOT_SUPPORTED), with a reason. */
cublasStatus_t lt_read(lt_problem *p, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d);
/* Elements between the first and behind the last of all batches. */
int64_t lt_extent(const lt_matrix *m);
int64_t lt_sum_length(const lt_problem *p); /* of the bias or of the sums in its place */

typedef struct lt_call {
    lt_problem p;
    const char *a, *b, *c;
    char *d, *workspace;
    size_t workspace_bytes; /* that the algorithm uses */
    const float *device_alpha, *device_beta;
    float alpha, beta;
} lt_call;

cudaError_t lt_run(void *call); /* work for double_enqueue */

#endif
