/* exponentials.cuh - maximum and sum of exponentials of a row in one pass; a new maximum rescales the sum. */
#pragma once

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/rows.cuh"

/* Rescales a sum of exp(a - most) to another maximum; 0 if all elements so far are -infinity. */
__device__ __forceinline__ float rescale(float sum, float most, float new_most)
{
    return most == -INFINITY ? 0 : sum * m_exp_float(most - new_most);
}

struct exponentials {
    float most = -INFINITY, sum = 0; /* sum of exp(a - most) */
    __device__ void collect(const float (&a)[TILE], int n)
    {
        float now = most;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) now = larger(now, a[i]);
        sum = rescale(sum, most, now);
        most = now;
        if (most == -INFINITY) return;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) sum += m_exp_float(a[i] - most);
    }
    /* Combines the results of all threads of the row. */
    template <typename G> __device__ void join(const G &g)
    {
        const float all = g.max(most);
        sum = g.sum(rescale(sum, most, all));
        most = all;
    }
    /* Logarithm of the sum, relative to the maximum; NaN for a row of -infinity. */
    __device__ float log_sum() const { return most == -INFINITY ? NAN : m_log_float(sum); }
};
