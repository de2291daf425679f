/* operand.cuh - tiles of a broadcast operand.
 *
 * The offset of a tile's first element is computed by division. If the other elements follow it in memory (a row of a
 * bias), they are loaded like any tile; if all are the same element (one number per row), it is loaded once; otherwise
 * each offset needs its own division. Divisions use 32 bits if the numbers fit. */
#pragma once

#include "kernels/cuda/operand.h"
#include "kernels/cuda/tile.cuh"

/* Returns index / length and sets *rest to the remainder; neither operand is negative. */
__device__ __forceinline__ long long divide(long long index, long long length, long long *rest)
{
    if (((index | length) >> 32) == 0) {
        const unsigned quotient = (unsigned)index / (unsigned)length;
        *rest = (unsigned)index - quotient * (unsigned)length;
        return quotient;
    }
    const long long quotient = index / length;
    *rest = index - quotient * length;
    return quotient;
}

/* Offset of position `index` of an index space with these strides; *inner: its innermost coordinate. */
__device__ __forceinline__ long long walk_offset(int rank, const long long *dims, const long long *strides,
                                                 long long index, long long *inner)
{
    long long at, offset = 0;
    *inner = index;
#pragma unroll 1
    for (int i = rank - 1; i > 0; i--) {
        index = divide(index, dims[i], &at);
        offset += at * strides[i];
        if (i == rank - 1) *inner = at;
    }
    return offset + index * strides[0];
}

/* Offset of the operand's element for position `index` of the result; *run: number of elements from there with the
 * innermost stride. */
__device__ __forceinline__ long long operand_at(const cuda_operand &o, long long index, long long *run)
{
    *run = TILE;
    if (o.form == OPERAND_DENSE) return index;
    long long inner;
    const long long at = walk_offset(o.rank, o.dims, o.strides, index, &inner);
    *run = o.dims[o.rank - 1] - inner;
    return at;
}

/* Loads elements [first, first + n) in the result's shape, n <= TILE; the rest of v is undefined. */
template <typename C>
__device__ __forceinline__ void operand_load(const cuda_operand &o, long long first, int n, C (&v)[TILE])
{
    long long run, at = operand_at(o, first, &run);
    const long long stride = o.form == OPERAND_DENSE ? 1 : o.strides[o.rank - 1];
    if (run >= n && stride == 1) return tile_load(o.data, o.dtype, at, n, v);
    const bool same = run >= n && stride == 0;
    C one = element_load<C>(o.data, o.dtype, at);
#pragma unroll
    for (int i = 0; i < TILE; i++) v[i] = one;
#pragma unroll 1
    for (int k = 1; k < TILE && !same; k++) { /* v is a queue, which avoids non-constant indices */
        one = element_load<C>(o.data, o.dtype, operand_at(o, k < n ? first + k : first, &run));
#pragma unroll
        for (int i = 1; i < TILE; i++) v[i - 1] = v[i];
        v[TILE - 1] = one;
    }
}
