/* attention.cuh - what attention and its gradient share: where items are, reading rows, masks. */
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/mma.cuh"
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

/* What a mask adds to a score; -infinity: the key is masked out. at: in the mask. */
__device__ __forceinline__ float attention_mask(const attention_view &mask, long long at)
{
    if (mask.dtype == IR_bool) return static_cast<const unsigned char *>(mask.data)[at] ? 0 : -INFINITY;
    return element_load<float>(mask.data, mask.dtype, at);
}

/* The score of a product of a query and a key: -infinity if the key is masked out, even if the product is NaN, or if
 * one of both does not exist. mask_at: attention_at of the mask. */
__device__ __forceinline__ float attention_score(const attention_shape &s, const attention_view &mask,
                                                 long long mask_at, long long query, long long key, float product)
{
    if (query >= s.queries || key >= s.keys || key > query + s.last) return -INFINITY;
    if (!mask.data) return product * s.scale;
    const float more = attention_mask(mask, mask_at + query * mask.row + key * mask.column);
    return more == -INFINITY ? more : product * s.scale + more;
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

/* The exponential of a score relative to a base, of which the result has few bits. */
__device__ __forceinline__ float attention_exp(float x) { return exp2f(x * 1.44269504f); }

/* Eight elements of 16 bits, as they are stored; those from n on are 0. */
__device__ __forceinline__ uint4 low_load(const unsigned short *p, int n)
{
    if (n == TILE && reinterpret_cast<unsigned long long>(p) % sizeof(uint4) == 0)
        return *reinterpret_cast<const uint4 *>(p);
    unsigned pairs[TILE / 2];
#pragma unroll
    for (int i = 0; i < TILE / 2; i++) {
        pairs[i] = 2 * i < n ? p[2 * i] : 0;
        if (2 * i + 1 < n) pairs[i] |= (unsigned)p[2 * i + 1] << 16;
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__device__ __forceinline__ void low_store(unsigned short *p, int n, uint4 v)
{
    if (n == TILE && reinterpret_cast<unsigned long long>(p) % sizeof(uint4) == 0) {
        *reinterpret_cast<uint4 *>(p) = v;
        return;
    }
    const unsigned pairs[TILE / 2] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n) p[i] = (unsigned short)(pairs[i / 2] >> i % 2 * 16);
}

/* COUNT rows of 16-bit elements that go to shared memory: the part of this thread, one of ATTENTION_BLOCK, which
 * waits for it only when it stores. Rows in shared memory are SIZE + 8 elements apart, so that matrices are loaded from
 * different banks. What a matrix of `rows` rows of `length` elements lacks is 0, up to a multiple of 16 columns. */
template <int SIZE, int COUNT> struct low_rows {
    enum : int { TILES = SIZE / TILE, APART = ATTENTION_BLOCK / TILES, EACH = COUNT / APART };
    uint4 bits[EACH]; /* of rows APART apart */
    __device__ __forceinline__ void load(const attention_view &v, long long at, long long row, long long rows,
                                         int length)
    {
        const int c = threadIdx.x % TILES * TILE, n = c < length ? tile_length(c, length) : 0;
        const unsigned short *from = static_cast<const unsigned short *>(v.data);
        row += threadIdx.x / TILES;
        at += row * v.row + c;
#pragma unroll
        for (int i = 0; i < EACH; i++, row += APART, at += APART * v.row)
            bits[i] = row < rows && n ? low_load(from + at, n) : uint4{0, 0, 0, 0};
    }
    __device__ __forceinline__ void store(int length, unsigned short *to) const
    {
        const int c = threadIdx.x % TILES * TILE;
        if (c >= (length + 15) / 16 * 16) return;
        to += threadIdx.x / TILES * (SIZE + 8) + c;
#pragma unroll
        for (int i = 0; i < EACH; i++, to += APART * (SIZE + 8)) {
            uint4 *x = reinterpret_cast<uint4 *>(to);
            x->x = bits[i].x, x->y = bits[i].y, x->z = bits[i].z, x->w = bits[i].w;
        }
    }
};
