/* dropout.cu - dropout and its gradient. */
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/tile.cuh"

extern "C" __global__ void __launch_bounds__(DROPOUT_BLOCK) dropout(dropout_draw a)
{
    const dropout_source source = dropout_source_of(element_load<long long>(a.rng, a.rng_dtype, 0),
                                                    element_load<long long>(a.rng, a.rng_dtype, 1), a.stream);
    for (long long first = grid_first() * TILE; first < a.count; first += grid_step() * TILE) {
        const int n = tile_length(first, a.count);
        long long keep[TILE];
        float v[TILE];
        dropout_blocks<TILE>(source, a.threshold, first, keep, [](bool stays) -> long long { return stays; });
        if (a.mask) tile_store(a.mask, IR_bool, first, n, keep);
        if (!a.y) continue;
        tile_load(a.x, a.dtype, first, n, v);
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] = dropped(v[i], keep[i], a.scale);
        tile_store(a.y, a.dtype, first, n, v);
    }
}
AMPC_KERNEL(dropout)

extern "C" __global__ void __launch_bounds__(DROPOUT_BLOCK) dropout_grad(dropout_apply a)
{
    for (long long first = grid_first() * TILE; first < a.count; first += grid_step() * TILE) {
        const int n = tile_length(first, a.count);
        long long keep[TILE];
        float v[TILE];
        tile_load(a.mask, IR_bool, first, n, keep);
        tile_load(a.dy, a.dtype, first, n, v);
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] = dropped(v[i], keep[i], a.scale);
        tile_store(a.dx, a.dtype, first, n, v);
    }
}
AMPC_KERNEL(dropout_grad)
