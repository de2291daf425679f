/* fold.cuh - how the elements of a row become one number, the same wherever rows are summed.
 *
 * The threads of a row take tiles that begin at multiples of a tile in memory, whatever the row's start; each adds up
 * its tiles, and what they have is joined pairwise. */
#pragma once

#include "kernels/cuda/element.cuh"

__device__ __forceinline__ float mean_of(float sum, long long terms) { return sum / (float)terms; }
__device__ __forceinline__ long long mean_of(long long sum, long long terms)
{
    return terms == 0 ? 0 : sum / terms;
}

/* The tiles of a row of `length` elements, and tile t of the one that begins at `from`; n <= 0: there is none. */
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

/* Over `lanes` neighbouring threads of a warp, a power of two. */
template <typename T> __device__ __forceinline__ T lanes_sum(T v, int lanes)
{
    for (int distance = lanes / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(WHOLE_WARP, v, distance);
    return v;
}
