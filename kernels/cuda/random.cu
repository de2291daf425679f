/* random.cu - uniform and normal random numbers from Philox, computed as in kernels/cpu/random.c. */
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/random.h"
#include "kernels/cuda/tile.cuh"

static __device__ __forceinline__ void make_normal(const philox_words &w, float *v)
{
#pragma unroll
    for (int i = 0; i < PHILOX_WORDS; i += 2) {
        const float radius = sqrtf(-2 * logf(1 - philox_unit(w.v[i])));
        const float angle = 6.28318530718f * philox_unit(w.v[i + 1]);
        v[i] = radius * sine_of(angle, 1);
        v[i + 1] = radius * sine_of(angle, 0);
    }
}

extern "C" __global__ void __launch_bounds__(RANDOM_BLOCK) random_numbers(random_draw a)
{
    const dropout_source s = dropout_source_of(element_load<long long>(a.rng, a.rng_dtype, 0),
                                               element_load<long long>(a.rng, a.rng_dtype, 1), a.stream);
    for (long long first = grid_first() * TILE; first < a.count; first += grid_step() * TILE) {
        const int n = tile_length(first, a.count);
        float v[TILE];
#pragma unroll
        for (int b = 0; b < TILE; b += PHILOX_WORDS) {
            const philox_words w = philox_block(s.key, s.stream, (unsigned long long)(first + b) / PHILOX_WORDS);
#pragma unroll
            for (int i = 0; i < PHILOX_WORDS; i++) v[b + i] = philox_unit(w.v[i]);
            if (a.normal) make_normal(w, v + b);
        }
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] = a.offset + a.scale * v[i];
        tile_store(a.y, a.dtype, first, n, v);
    }
}
AMPC_KERNEL(random_numbers)
