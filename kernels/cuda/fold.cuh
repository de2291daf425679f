/* fold.cuh - summation of a row in an order that all kernels share.
 *
 * The threads of a row process tiles aligned to multiples of TILE in memory, wherever the row starts. Each thread sums
 * its tiles, and their sums are added pairwise. */
#pragma once

#include "kernels/cuda/element.cuh"

__device__ __forceinline__ float mean_of(float sum, long long terms) { return sum / (float)terms; }

/* Upper bound of the tiles in a row of `length` elements, and tile t of the row starting at `from`; n <= 0: empty. */
__device__ __forceinline__ long long row_tiles(long long length)
{
    return (length + TILE - 1) / TILE + (length % TILE != 0);
}
struct row_span {
    long long first;
    int n;
};
__device__ __forceinline__ row_span row_span_of(long long from, long long length, long long t)
{
    const long long aligned = from / TILE * TILE + t * TILE;
    const long long first = max(from, aligned), end = min(from + length, aligned + TILE);
    return {first, (int)(end - first)};
}

template <typename S, typename C> __device__ __forceinline__ S tile_sum(const C (&v)[TILE])
{
    S half[TILE / 2];
#pragma unroll
    for (int i = 0; i < TILE / 2; i++) half[i] = (S)v[i] + (S)v[i + TILE / 2];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

/* Sum over `lanes` adjacent threads of a warp; `lanes` is a power of two. */
template <typename T> __device__ __forceinline__ T lanes_sum(T v, int lanes)
{
    for (int distance = lanes / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(WHOLE_WARP, v, distance);
    return v;
}
