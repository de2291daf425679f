/* ranks.cu - brings tensors into the type of the wire and back, and adds the values of all ranks in a fixed order. */
#include "kernels/cuda/ranks.h"
#include "kernels/cuda/spans.cuh"

extern "C" __global__ void __launch_bounds__(RANKS_BLOCK) ranks_pack(const __grid_constant__ ranks_table t)
{
    const float factor = t.share ? *t.share : 1;
    spans_each(t, [&](const ranks_span &s, long long first, int n) {
        float v[TILE];
        tile_load(s.tensor, s.dtype, first, n, v);
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] = __fmul_rn(v[i], factor);
        tile_store(t.packed, t.wire, s.at + first, n, v);
    });
}
AMPC_KERNEL(ranks_pack)

extern "C" __global__ void __launch_bounds__(RANKS_BLOCK) ranks_unpack(const __grid_constant__ ranks_table t)
{
    spans_each(t, [&](const ranks_span &s, long long first, int n) {
        float v[TILE];
        tile_load(t.packed, t.wire, s.at + first, n, v);
        tile_store(s.tensor, s.dtype, first, n, v);
    });
}
AMPC_KERNEL(ranks_unpack)

/* Adds the rows of [ranks, n] in a balanced tree, ((0+1)+(2+3)).., into `sum`. Each partial sum is rounded to the dtype
 * and replaces the row of its first rank. */
extern "C" __global__ void __launch_bounds__(RANKS_BLOCK)
    ranks_add(char *rows, char *sum, int ranks, long long n, int dtype, int size)
{
    for (long long at = grid_first() * TILE; at < n; at += grid_step() * TILE) {
        const int m = tile_length(at, n);
        for (long long step = 1; step < ranks; step *= 2)
            for (long long r = 0; r + step < ranks; r += 2 * step) {
                float a[TILE], b[TILE];
                tile_load(rows + r * n * size, dtype, at, m, a);
                tile_load(rows + (r + step) * n * size, dtype, at, m, b);
#pragma unroll
                for (int i = 0; i < TILE; i++) a[i] += b[i];
                tile_store(2 * step < ranks ? rows + r * n * size : sum, dtype, at, m, a);
            }
    }
}
AMPC_KERNEL(ranks_add)

extern "C" __global__ void __launch_bounds__(32) ranks_set(float *to, float value)
{
    if (threadIdx.x == 0) *to = value;
}
AMPC_KERNEL(ranks_set)
