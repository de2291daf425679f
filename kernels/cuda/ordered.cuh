/* ordered.cuh - sums in shared memory to which the threads of a block add in the order of their numbers. */
#pragma once

#include "kernels/cuda/device.cuh"

/* Adds one gradient per thread to the sums, in thread order; target -1: none. All threads must call it; it starts
 * and ends with a barrier. `next` has `slots` entries, all INT_MAX between calls. */
template <int slots>
static __device__ __forceinline__ void add_in_order(float *sums, int *next, int target, float value)
{
    bool waits = target >= 0;
    while (__syncthreads_or(waits)) {
        if (waits) atomicMin(&next[target % slots], (int)threadIdx.x);
        __syncthreads();
        const bool mine = waits && next[target % slots] == (int)threadIdx.x;
        __syncthreads();
        if (mine) {
            sums[target] += value;
            next[target % slots] = INT_MAX;
            waits = false;
        }
    }
}
