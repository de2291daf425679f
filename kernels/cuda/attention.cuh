/* attention.cuh - what attention and its gradient share: where items are, reading rows, masks, dropout. */
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout.cuh"
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

/* Which probabilities 4 * block + (0..3) stay, as bits 0..3. The state is read each time, to keep no registers. */
__device__ __forceinline__ unsigned attention_draw(const attention_dropout &d, unsigned long long block)
{
    const dropout_source source = dropout_source_of(element_load<long long>(d.rng, d.dtype, 0),
                                                    element_load<long long>(d.rng, d.dtype, 1), d.stream);
    unsigned keep[PHILOX_WORDS], bits = 0;
    dropout_blocks<PHILOX_WORDS>(source, d.threshold, (long long)(block * PHILOX_WORDS), keep,
                                 [](bool stays) -> unsigned { return stays; });
#pragma unroll
    for (int i = 0; i < PHILOX_WORDS; i++) bits |= keep[i] << i;
    return bits;
}

/* The number of a probability, which selects its random word. */
__device__ __forceinline__ unsigned long long attention_number(const attention_shape &s, long long item,
                                                               long long query, long long key)
{
    return (unsigned long long)((item * s.queries + query) * s.keys + key);
}

/* Whether a probability stays. */
__device__ __forceinline__ bool attention_keeps(const attention_shape &s, long long item, long long query,
                                                long long key)
{
    const unsigned long long i = attention_number(s, item, query, key);
    return attention_draw(s.dropout, i / PHILOX_WORDS) >> i % PHILOX_WORDS & 1;
}

/* Which numbers x[n][i] of a lane stay, as bits 4 * n + i, of N results of 16 x 8 side by side (mma.cuh). Their rows
 * are queries from `query` on and their columns keys from `key` on, or the other way round if by_key. If blocks of
 * random numbers do not cross rows, a lane draws N of those that four lanes, or two and both rows, need. */
template <int N, bool by_key>
__device__ __forceinline__ unsigned attention_kept(const attention_shape &s, long long item, long long query,
                                                   long long key)
{
    static_assert(4 * N <= 32, "a bit for each number");
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4 * 2;
    unsigned drawn = 0, kept = 0;
    if (s.keys % PHILOX_WORDS) {
#pragma unroll 1
        for (int i = 0; i < 4 * N; i++) {
            const int row = g + i % 4 / 2 * 8, column = i / 4 * 8 + t + i % 2;
            const bool stays = attention_keeps(s, item, query + (by_key ? column : row), key + (by_key ? row : column));
            kept |= (unsigned)stays << i;
        }
        return kept;
    }
#pragma unroll 1
    for (int n = 0; n < N; n++) {
        const int to_query = by_key ? n * 8 + t + g % 2 : g + lane % 2 * 8,
                  to_key = by_key ? g / 4 * 4 + g / 2 % 2 * 8 : n * 8 + t / 4 * 4;
        const unsigned long long i = attention_number(s, item, query + to_query, key + to_key);
        drawn |= attention_draw(s.dropout, i / PHILOX_WORDS) << 4 * n;
    }
    if (by_key) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            kept |= (__shfl_sync(WHOLE_WARP, drawn, (lane & ~12) | i << 2) >> g % 4 & 0x11111111) << i;
    } else {
#pragma unroll
        for (int r = 0; r < 2; r++)
            kept |= (__shfl_sync(WHOLE_WARP, drawn, (lane & ~1) | r) >> t % 4 & 0x33333333) << 2 * r;
    }
    return kept;
}

/* Applies dropout to the numbers of a lane. */
template <int N>
__device__ __forceinline__ void attention_drop(const attention_dropout &d, unsigned kept, float (&x)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) x[n][i] = dropped(x[n][i], kept >> (4 * n + i) & 1, d.scale);
}

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
