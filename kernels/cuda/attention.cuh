/* attention.cuh - what attention and its gradient share: where items are, reading rows, masks. */
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/tile.cuh"

/* Offset of the matrix of an item of q in a view. */
__device__ __forceinline__ long long attention_at(const attention_shape &s, const attention_view &v, long long item)
{
    long long offset = 0, shared = v.group;
#pragma unroll 1
    for (int d = s.rank - 1; d >= 0; d--, shared = 1) {
        offset += item % s.dims[d] / shared * v.item[d];
        item /= s.dims[d];
    }
    return offset;
}

/* The keys that queries up to `query` see; the others need not be read. */
__device__ __forceinline__ long long attention_seen(const attention_shape &s, long long query)
{
    const long long seen = (query < s.queries ? query : s.queries - 1) + s.last + 1;
    return seen < 0 ? 0 : seen < s.keys ? seen : s.keys;
}

/* The score of a product of a query and a key: -infinity if the key is masked out, even if the product is NaN, or if
 * one of both does not exist. mask_at: attention_at of the mask. */
__device__ __forceinline__ float attention_score(const attention_shape &s, const attention_view &mask,
                                                 long long mask_at, long long query, long long key, float product)
{
    if (query >= s.queries || key >= s.keys || key > query + s.last) return -INFINITY;
    const float score = product * s.scale;
    if (!mask.data) return score;
    const long long at = mask_at + query * mask.row + key * mask.column;
    if (mask.dtype == IR_bool) return static_cast<const unsigned char *>(mask.data)[at] ? score : -INFINITY;
    const float more = element_load<float>(mask.data, mask.dtype, at);
    return more == -INFINITY ? more : score + more;
}

/* What scores are relative to in exponentials: the maximum, or 0 if there is no score. */
__device__ __forceinline__ float attention_base(float largest) { return largest == -INFINITY ? 0 : largest; }

/* Loads columns [column, column + columns) of `count` rows from `row` on into rows of `to` that are `step` floats
 * apart. What a matrix of `rows` rows of `length` elements lacks is 0. All threads of the block call it, and `columns`
 * is a multiple of TILE. */
__device__ __forceinline__ void attention_stage(const attention_view &v, long long at, long long row, long long rows,
                                                long long column, long long length, float *to, int step, int count,
                                                int columns)
{
    const int tiles = columns / TILE;
    for (int i = threadIdx.x; i < count * tiles; i += blockDim.x) {
        const int r = i / tiles, c = i % tiles * TILE;
        const bool exists = row + r < rows && column + c < length;
        float x[TILE];
        tile_load(v.data, v.dtype, exists ? at + (row + r) * v.row + column + c : 0,
                  exists ? tile_length(column + c, length) : 0, x);
#pragma unroll
        for (int j = 0; j < TILE; j++) to[r * step + c + j] = x[j];
    }
}
