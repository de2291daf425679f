/* places.cuh - the rows that indices address (kernels/places.h). */
#pragma once

#include "kernels/cuda/gather.h"
#include "kernels/cuda/operand.cuh"

/* Returns index `i`, counted from the front of `entries`, or -1 and sets a fault if it is out of range. */
__device__ __forceinline__ long long index_of(const void *indices, int dtype, long long i, long long entries,
                                              int *fault, int step)
{
    long long row = element_load<long long>(indices, dtype, i);
    if (row < 0) row += entries;
    if (row >= 0 && row < entries) return row;
    fault_set(fault, step, K_FAULT_INDEX);
    return -1;
}

/* The row of an item, or -1 after setting a fault. */
__device__ __forceinline__ long long place_of(const cuda_places &p, long long item)
{
    long long inner, row = walk_offset(p.rank, p.dims, p.base, item, &inner);
    bool good = true;
#pragma unroll 1
    for (int k = 0; k < p.depth; k++) {
        const long long at = index_of(p.indices, p.dtype, item * p.depth + k, p.size[k], p.fault, p.step);
        good &= at >= 0;
        row += at * p.stride[k];
    }
    return good ? row : -1;
}
