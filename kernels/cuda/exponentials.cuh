/* exponentials.cuh - maximum and sum of exponentials of a row in one pass; a new maximum rescales the sum. */
#pragma once

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/rows.cuh"

/* Rescales a sum of exp(a - max_value) to another maximum; 0 if all elements so far are -infinity. */
__device__ __forceinline__ float rescale(float sum, float max_value, float new_max)
{
    return max_value == -INFINITY ? 0 : sum * m_exp_float(max_value - new_max);
}

struct exponentials {
    float max_value = -INFINITY, sum = 0; /* sum of exp(a - max_value) */
    __device__ void collect(const float (&a)[TILE], int n)
    {
        float now = max_value;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) now = larger(now, a[i]);
        sum = rescale(sum, max_value, now);
        max_value = now;
        if (max_value == -INFINITY) return;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) sum += m_exp_float(a[i] - max_value);
    }
    /* Combines the results of all threads of the row. */
    template <typename G> __device__ void join(const G &g)
    {
        const float all = g.max(max_value);
        sum = g.sum(rescale(sum, max_value, all));
        max_value = all;
    }
    /* Logarithm of the sum, relative to the maximum; NaN for a row of -infinity. */
    __device__ float log_sum() const { return max_value == -INFINITY ? NAN : m_log_float(sum); }
};
