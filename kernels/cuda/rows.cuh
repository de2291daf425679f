/* rows.cuh - the threads of a row: how they divide its elements and join what they found.
 *
 * Rows of adjacent elements are taken by a warp each (held in registers up to ROW_IN_WARP elements) or by a block
 * each. Interleaved rows are taken 32 by a block: a lane each, their elements dealt to the warps tile by tile, so that
 * memory is read in whole lines. Every thread of a row gets the joined number, added in a fixed order. */
#pragma once

#include "kernels/cuda/rows.h"
#include "kernels/cuda/tile.cuh"

/* ---- joining ---- */

struct by_warp {
    __device__ float max(float v) const { return warp_max(v); }
    __device__ float sum(float v) const { return warp_sum(v); }
};

struct by_block {
    float *slots; /* shared, 32 */
    __device__ float max(float v) const { return block_max(v, slots); }
    __device__ float sum(float v) const { return block_sum(v, slots); }
};

/* A row is a lane of each warp. */
struct by_lane {
    float *slots; /* shared, ROW_BLOCK */
    template <typename F> __device__ float join(float v, F f) const
    {
        slots[threadIdx.x] = v;
        __syncthreads();
        v = slots[threadIdx.x % WARP];
        for (int w = 1; w < ROW_WARPS; w++) v = f(v, slots[w * WARP + threadIdx.x % WARP]);
        __syncthreads();
        return v;
    }
    __device__ float max(float v) const { return join(v, [](float a, float b) { return larger(a, b); }); }
    __device__ float sum(float v) const { return join(v, [](float a, float b) { return a + b; }); }
};

/* ---- the elements of a row ---- */

enum : int { ROW_TILES = ROW_IN_WARP / (WARP * TILE) };

/* A row of at most ROW_IN_WARP elements: tile t of a lane is tile t * 32 + lane of the row. */
__device__ __forceinline__ int row_tile(int t) { return (t * WARP + (int)threadIdx.x % WARP) * TILE; }

__device__ __forceinline__ void load_row(const void *array, int dtype, long long row, int length,
                                                float (&v)[ROW_TILES][TILE])
{
    with_stored(0.0f, dtype, [&](auto s) {
        const auto *from = static_cast<const typename decltype(s)::type *>(array) + row * length;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) load_typed(from + row_tile(t), tile_length(row_tile(t), length), v[t]);
    });
}

__device__ __forceinline__ void store_row(void *array, int dtype, long long row, int length,
                                          const float (&v)[ROW_TILES][TILE])
{
    with_stored(0.0f, dtype, [&](auto s) {
        auto *to = static_cast<typename decltype(s)::type *>(array) + row * length;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) store_typed(to + row_tile(t), tile_length(row_tile(t), length), v[t]);
    });
}

/* n elements of a row from `first` on, `step` apart. */
__device__ __forceinline__ void load_apart(const void *array, int dtype, long long first, long long step, int n,
                                                  float (&v)[TILE])
{
    with_stored(0.0f, dtype, [&](auto s) {
        const auto *from = static_cast<const typename decltype(s)::type *>(array) + first;
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            v[i] = 0;
            if (i < n) to_carrier(&v[i], from[i * step]);
        }
    });
}

__device__ __forceinline__ void store_apart(void *array, int dtype, long long first, long long step, int n,
                                                   const float (&v)[TILE])
{
    with_stored(0.0f, dtype, [&](auto s) {
        auto *to = static_cast<typename decltype(s)::type *>(array) + first;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) from_carrier(&to[i * step], v[i]);
    });
}
