/* rows.cuh - distribution of row elements over threads, and reductions over the threads of a row.
 *
 * Rows of adjacent elements are processed by a warp (which keeps rows of at most ROW_IN_WARP elements in registers) or
 * by a block. Interleaved rows are processed 32 per block: each lane has one row, and the warps alternate between its
 * tiles, so that memory is read in full cache lines. All threads of a row get the reduced value, always computed in the
 * same order. */
#pragma once

#include "kernels/cuda/rows.h"
#include "kernels/cuda/tile.cuh"

/* The part of a row that one thread processes: the tiles at elements begin, begin + advance, ... */
struct row_part {
    long long item;        /* row number in outer * inner */
    long long first, step; /* offset of element 0, distance between elements */
    long long begin, advance, length; /* length 0: no row, but the thread still joins reductions */
    bool leads;            /* true in one thread per row, which writes the row's results */
};

/* Reduces by f over the warps of a block, separately per lane, in warp order. `slots`: ROW_BLOCK values in shared
 * memory. */
template <typename T, typename F> __device__ __forceinline__ T lane_join(T v, T *slots, F f)
{
    slots[threadIdx.x] = v;
    __syncthreads();
    v = slots[threadIdx.x % WARP];
    for (int w = 1; w < ROW_WARPS; w++) v = f(v, slots[w * WARP + threadIdx.x % WARP]);
    __syncthreads();
    return v;
}
template <typename T> __device__ __forceinline__ T lane_sum(T v, T *slots)
{
    return lane_join(v, slots, [](T a, T b) { return a + b; });
}

struct by_warp {
    enum : bool { adjacent = true };
    __device__ static long long begin() { return (long long)blockIdx.x * ROW_WARPS + threadIdx.x / WARP; }
    __device__ static long long advance() { return (long long)gridDim.x * ROW_WARPS; }
    __device__ static long long end(const cuda_rows &r) { return r.outer; }
    __device__ static row_part part(const cuda_rows &r, long long row)
    {
        const int lane = threadIdx.x % WARP;
        return {row, row * r.length, 1, lane * TILE, WARP * TILE, r.length, lane == 0};
    }
    __device__ float max(float v) const { return warp_max(v); }
    __device__ float sum(float v) const { return warp_sum(v); }
};

struct by_block {
    float *slots; /* shared, 32 values */
    enum : bool { adjacent = true };
    __device__ static long long begin() { return blockIdx.x; }
    __device__ static long long advance() { return gridDim.x; }
    __device__ static long long end(const cuda_rows &r) { return r.outer; }
    __device__ static row_part part(const cuda_rows &r, long long row)
    {
        const int thread = threadIdx.x;
        return {row, row * r.length, 1, thread * TILE, ROW_BLOCK * TILE, r.length, thread == 0};
    }
    __device__ float max(float v) const { return block_max(v, slots); }
    __device__ float sum(float v) const { return block_sum(v, slots); }
};

struct by_lane {
    float *slots; /* shared, ROW_BLOCK values */
    enum : bool { adjacent = false };
    __device__ static long long groups(const cuda_rows &r) { return (r.inner + WARP - 1) / WARP; } /* per outer index */
    __device__ static long long begin() { return blockIdx.x; }
    __device__ static long long advance() { return gridDim.x; }
    __device__ static long long end(const cuda_rows &r) { return r.outer * groups(r); }
    __device__ static row_part part(const cuda_rows &r, long long group)
    {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        const long long outer = group / groups(r), inner = group % groups(r) * WARP + lane;
        const bool exists = inner < r.inner;
        return {outer * r.inner + inner, outer * r.length * r.inner + inner, r.inner, warp * TILE, ROW_WARPS * TILE,
                exists ? r.length : 0, exists && warp == 0};
    }
    __device__ float max(float v) const
    {
        return lane_join(v, slots, [](float a, float b) { return larger(a, b); });
    }
    __device__ float sum(float v) const { return lane_sum(v, slots); }
};

/* Calls f(part) for each row of this thread; all threads of a row make the call together. */
template <typename G, typename F> __device__ __forceinline__ void rows_each(const cuda_rows &r, F f)
{
    for (long long at = G::begin(); at < G::end(r); at += G::advance()) f(G::part(r, at));
}

/* Calls f(i, n) for each tile of the part: n elements starting at element i of the row. */
template <typename F> __device__ __forceinline__ void tiles_each(const row_part &p, F f)
{
    for (long long i = p.begin; i < p.length; i += p.advance) f(i, tile_length(i, p.length));
}

/* Load and store n elements of the row, starting at element i. */
template <typename G>
__device__ __forceinline__ void part_load(const void *array, int dtype, const row_part &p, long long i, int n,
                                          float (&v)[TILE])
{
    if (G::adjacent) {
        tile_load(array, dtype, p.first + i, n, v);
        return;
    }
    with_stored(0.0f, dtype, [&](auto s) {
        const auto *from = static_cast<const typename decltype(s)::type *>(array) + p.first + i * p.step;
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            v[j] = 0;
            if (j < n) to_carrier(&v[j], from[j * p.step]);
        }
    });
}

template <typename G>
__device__ __forceinline__ void part_store(void *array, int dtype, const row_part &p, long long i, int n,
                                           const float (&v)[TILE])
{
    if (G::adjacent) {
        tile_store(array, dtype, p.first + i, n, v);
        return;
    }
    with_stored(0.0f, dtype, [&](auto s) {
        auto *to = static_cast<typename decltype(s)::type *>(array) + p.first + i * p.step;
#pragma unroll
        for (int j = 0; j < TILE; j++)
            if (j < n) from_carrier(&to[j * p.step], v[j]);
    });
}

/* ---- rows of at most ROW_IN_WARP elements in the registers of a warp: tile t of a lane is tile t * 32 + lane ---- */

enum : int { ROW_TILES = ROW_IN_WARP / (WARP * TILE) };

__device__ __forceinline__ int row_tile(int t) { return (t * WARP + (int)threadIdx.x % WARP) * TILE; }

__device__ __forceinline__ void row_load(const void *array, int dtype, const row_part &p, float (&v)[ROW_TILES][TILE])
{
    const int length = (int)p.length;
    with_stored(0.0f, dtype, [&](auto s) {
        const auto *from = static_cast<const typename decltype(s)::type *>(array) + p.first;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) load_typed(from + row_tile(t), tile_length(row_tile(t), length), v[t]);
    });
}

__device__ __forceinline__ void row_store(void *array, int dtype, const row_part &p, const float (&v)[ROW_TILES][TILE])
{
    const int length = (int)p.length;
    with_stored(0.0f, dtype, [&](auto s) {
        auto *to = static_cast<typename decltype(s)::type *>(array) + p.first;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) store_typed(to + row_tile(t), tile_length(row_tile(t), length), v[t]);
    });
}
