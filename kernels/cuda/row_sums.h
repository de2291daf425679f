/* row_sums.h - host side of row_sums.cuh: sorts items by the row they address and reduces their rows. */
#ifndef AMPC_CUDA_ROW_SUMS_H
#define AMPC_CUDA_ROW_SUMS_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gather.h"

typedef struct row_sums_kernels {
    cudaKernel_t count, places, place; /* of the sort */
    cudaKernel_t sum, join;
} row_sums_kernels;

/* Sort and summation parameters, and the offsets of the pieces of workspace in bytes. */
typedef struct row_sums_plan {
    int64_t outer, entries, inner; /* of the result */
    int64_t count, runs;           /* items; runs of sorted items */
    int passes;                    /* of the sort */
    int64_t each, blocks;
    size_t keys[2], positions[2], counts, partial, bytes;
} row_sums_plan;

row_sums_plan row_sums_plan_of(int64_t outer, int64_t entries, int64_t inner, int64_t count, size_t carrier_size);
/* Looks up the kernels; sums[] are the names of the kernels that reduce, in `family`. Refuses more items or rows than
 * the sort can count. */
ampc_status row_sums_find(const k_args *args, const row_sums_plan *p, const char *const *sums, cuda_family family,
                          row_sums_kernels *out);
/* Reduces the rows of `from` into result 0. Also checks all indices if there is nothing to reduce. */
ampc_status row_sums_run(const k_args *args, const row_sums_kernels *kernels, const row_sums_plan *p,
                         const cuda_places *places, const k_view *from, int mode);

#endif
