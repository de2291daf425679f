/* inner.h - an op with one operand and one result as a part of another op's kernel: the cast of what a library cannot
 * store, the sum that is a bias gradient, the spreading of a bias where there is nothing to multiply. */
#ifndef AMPC_CUDA_INNER_H
#define AMPC_CUDA_INNER_H

#include "kernels/cuda/cuda.h"

enum { CUDA_INNER_ATTRS = 4 };

/* All zero: no part; running it does nothing, and it may be released. */
typedef struct cuda_inner {
    ir_op op;
    const k_kernel *kernel; /* of that op */
    k_view in, out;
    ir_attr attr[CUDA_INNER_ATTRS];
    void *state;
    size_t workspace; /* bytes that its run wants */
} cuda_inner;

/* v as ops see it that know no channels last: the same memory as [N, spatial, C]. */
k_view cuda_dense(const k_view *v);

/* The caller has set op and kernel, dtypes and shapes of in and out, and attributes (lists must stay). */
ampc_status cuda_inner_prepare(const k_args *outer, cuda_inner *part);
/* Enqueues it on these addresses. */
ampc_status cuda_inner_run(const k_args *outer, const cuda_inner *part, void *in, void *out, void *workspace);
void cuda_inner_release(cuda_inner *part);

/* A cast of `count` elements; none when the types are equal. */
ampc_status cuda_inner_cast(const k_args *outer, int64_t count, ir_dtype from, ir_dtype to, cuda_inner *part);

/* A result where nothing is summed: zero, or the bias along the axis that `trailing` axes follow. */
typedef struct cuda_fill {
    cuda_inner cast, spread;
    int64_t dims[IR_MAX_RANK]; /* attribute of the spread */
} cuda_fill;
/* bias may be NULL. *workspace: bytes that its run wants. `fill` must not move afterwards. */
ampc_status cuda_fill_prepare(const k_args *outer, const k_view *bias, int trailing, const k_view *y,
                              cuda_fill *fill, size_t *workspace);
ampc_status cuda_fill_run(const k_args *outer, const cuda_fill *fill, const k_view *bias, const k_view *y);
void cuda_fill_release(cuda_fill *fill);

/* Workspace is handed out in aligned pieces. */
static inline size_t cuda_aligned(size_t bytes)
{
    return (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
}

#endif
