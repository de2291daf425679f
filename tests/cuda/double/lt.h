/* lt.h - a matmul as described by cuBLASLt's descriptors: read and checked in lt_problem.c, executed in lt_run.c. */
#ifndef TESTS_CUDA_DOUBLE_LT_H
#define TESTS_CUDA_DOUBLE_LT_H

#include "tests/cuda/double/inner.h"

#include "ir/ops/dtype.h"

/* Column-major: columns are `ld` elements apart. */
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

/* Operations of an epilogue, one bit each. */
enum {
    LT_BIAS = 1,
    LT_RELU = 2,
    LT_GELU = 4,
    LT_RELU_BACK = 8,
    LT_GELU_BACK = 16,
    LT_AUX_OUT = 32,
    LT_BIAS_GRAD = 64, /* sums over the rows of D */
    LT_SUM_A = 128,    /* over the rows of op(A) */
    LT_SUM_B = 256     /* over the columns of op(B) */
};
#define LT_WITH_AUX (LT_RELU_BACK | LT_GELU_BACK | LT_AUX_OUT)
#define LT_BITS_AUX(epilogue) ((epilogue) & (LT_RELU | LT_RELU_BACK))
#define LT_SUMS (LT_BIAS_GRAD | LT_SUM_A | LT_SUM_B)

/* Reads the descriptors with the real library's getters. Rejects, with a reason, what violates the header's rules
 * (CUBLAS_STATUS_INVALID_VALUE) or is not known to run on sm_90 (CUBLAS_STATUS_NOT_SUPPORTED). */
cublasStatus_t lt_read(lt_problem *p, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d);
/* Number of elements from the first to the last of all batches. */
int64_t lt_extent(const lt_matrix *m);
int64_t lt_sum_length(const lt_problem *p); /* of the bias, or of the sums written through its pointer */

typedef struct lt_call {
    lt_problem p;
    const char *a, *b, *c;
    char *d, *workspace;
    size_t workspace_bytes; /* used by the algorithm */
    const float *device_alpha, *device_beta;
    float alpha, beta;
} lt_call;

cudaError_t lt_run(void *call); /* for double_enqueue */

#endif
