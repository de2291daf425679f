/* operand.cuh - tiles of a broadcast operand.
 *
 * The position of a tile's first element is found by division; where the rest follows in memory (a row of a bias) it is
 * loaded like any tile, where it is the same (a number of a row) once; else each element is divided for. Divisions are
 * in 32 bits where the numbers allow it. */
#pragma once

#include "kernels/cuda/operand.h"
#include "kernels/cuda/tile.cuh"

/* index / length and the remainder, both not negative */
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

/* Offset of position `index` of an index space, by the strides of one side; *inner: its innermost coordinate. */
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

/* Where the element for position `index` of the result lies; *run: how many from there on have the innermost stride. */
__device__ __forceinline__ long long operand_at(const cuda_operand &o, long long index, long long *run)
{
    *run = TILE;
    if (o.form == OPERAND_DENSE) return index;
    long long inner;
    const long long at = walk_offset(o.rank, o.dims, o.strides, index, &inner);
    *run = o.dims[o.rank - 1] - inner;
    return at;
}

/* Elements [first, first + n) of the result's shape, n <= TILE; the rest of v holds anything. */
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
    for (int k = 1; k < TILE && !same; k++) { /* v as a queue: no index that is not constant */
        one = element_load<C>(o.data, o.dtype, operand_at(o, k < n ? first + k : first, &run));
#pragma unroll
        for (int i = 1; i < TILE; i++) v[i - 1] = v[i];
        v[TILE - 1] = one;
    }
}
