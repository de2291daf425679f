/* inner.h - running an op with one operand and one result inside another op's kernel: casts for types that a library
 * cannot store, sums for bias gradients, broadcasting a bias if there is nothing to multiply. */
#ifndef AMPC_CUDA_INNER_H
#define AMPC_CUDA_INNER_H

#include "kernels/cuda/cuda.h"

enum { CUDA_INNER_ATTRS = 4 };

/* All zero means no inner op: running does nothing and releasing is allowed. */
typedef struct cuda_inner {
    ir_op op;
    const k_kernel *kernel; /* of that op */
    k_view in, out;
    ir_attr attr[CUDA_INNER_ATTRS];
    void *state;
    size_t workspace; /* bytes of workspace for cuda_inner_run */
} cuda_inner;

/* Returns v as [N, spatial, C] on the same memory, for ops that do not support the NHWC layout. */
k_view cuda_dense(const k_view *v);

/* Prepares the inner op. The caller has set op, kernel, dtypes and shapes of in and out, and the attributes; attribute
 * lists must outlive the part. */
ampc_status cuda_inner_prepare(const k_args *outer, cuda_inner *part);
/* Enqueues the inner op on these addresses. */
ampc_status cuda_inner_run(const k_args *outer, const cuda_inner *part, void *in, void *out, void *workspace);
void cuda_inner_release(cuda_inner *part);

/* Prepares a cast of `count` elements; an empty part if the types are equal. */
ampc_status cuda_inner_cast(const k_args *outer, int64_t count, ir_dtype from, ir_dtype to, cuda_inner *part);

/* The result of an op without terms to sum: zero or the broadcast bias, whose axis is followed by `trailing` axes. */
typedef struct cuda_fill {
    cuda_inner cast, spread;
    int64_t dims[IR_MAX_RANK]; /* shape attribute of `spread` */
} cuda_fill;
/* bias may be NULL. *workspace: bytes needed to run. `fill` must not be moved afterwards, because it points into
 * itself. */
ampc_status cuda_fill_prepare(const k_args *outer, const k_view *bias, int trailing, const k_view *y, cuda_fill *fill,
                              size_t *workspace);
ampc_status cuda_fill_run(const k_args *outer, const cuda_fill *fill, const k_view *bias, const k_view *y);
void cuda_fill_release(cuda_fill *fill);

/* Rounds up to the alignment of workspace pieces. */
static inline size_t cuda_aligned(size_t bytes)
{
    return (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
}

#endif
