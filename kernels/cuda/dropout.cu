/* dropout.cu - Philox decides, as integers, with the bits that the processor draws: element i of stream s at step c
 * under seed k takes word i of the Philox stream (s + 1, c) with key k. */
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/tile.cuh"

#define PHILOX_FUNCTION static __device__ __forceinline__
#include "ir/philox.h"

enum : int { WORDS = 4, BLOCKS = TILE / WORDS }; /* of Philox: words of a block, blocks of a tile */

extern "C" __global__ void __launch_bounds__(DROPOUT_BLOCK) dropout(dropout_draw a)
{
    const unsigned long long seed = (unsigned long long)element_load<long long>(a.rng, a.rng_dtype, 0);
    const unsigned long long step = (unsigned long long)element_load<long long>(a.rng, a.rng_dtype, 1);
    const unsigned long long key = seed ^ step >> 32, stream = a.stream << 32 | (step & 0xffffffffu);
    for (long long first = grid_first() * TILE; first < a.count; first += grid_step() * TILE) {
        const int n = tile_length(first, a.count);
        long long keep[TILE];
        float v[TILE];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const philox_words w = philox_block(key, stream, (unsigned long long)first / WORDS + b);
#pragma unroll
            for (int i = 0; i < WORDS; i++) keep[b * WORDS + i] = w.v[i] >= a.threshold;
        }
        if (a.mask) tile_store(a.mask, IR_bool, first, n, keep);
        if (!a.y) continue;
        tile_load(a.x, a.dtype, first, n, v);
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] = keep[i] ? v[i] * a.scale : 0;
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
        for (int i = 0; i < TILE; i++) v[i] = keep[i] ? v[i] * a.scale : 0;
        tile_store(a.dx, a.dtype, first, n, v);
    }
}
AMPC_KERNEL(dropout_grad)
