/* dropout.cuh - selection of the elements that a dropout keeps. Philox uses integers only, so the bits equal those
 * of the CPU kernel: element i of stream s at step c with seed k uses word i of the Philox stream (s + 1, c) with
 * key k. */
#pragma once

#include "kernels/cuda/device.cuh"

#define PHILOX_FUNCTION static __device__ __forceinline__
#include "ir/base/philox.h"

enum : int { PHILOX_WORDS = 4 };

struct dropout_source {
    unsigned long long key, stream;
};

/* `stream`: the op's stream plus 1. */
__device__ __forceinline__ dropout_source dropout_source_of(long long seed, long long step, unsigned long long stream)
{
    const unsigned long long count = (unsigned long long)step;
    return {(unsigned long long)seed ^ count >> 32, stream << 32 | (count & 0xffffffffu)};
}

/* keep[i] = put(whether element first + i is kept) for n elements; n and first are multiples of PHILOX_WORDS. Elements
 * with words below `threshold` are dropped. */
template <int n, typename T, typename F>
__device__ __forceinline__ void dropout_blocks(const dropout_source &s, unsigned long long threshold, long long first,
                                               T *keep, F put)
{
#pragma unroll
    for (int b = 0; b < n / PHILOX_WORDS; b++) {
        const philox_words w = philox_block(s.key, s.stream, (unsigned long long)first / PHILOX_WORDS + b);
#pragma unroll
        for (int i = 0; i < PHILOX_WORDS; i++) keep[b * PHILOX_WORDS + i] = put(w.v[i] >= threshold);
    }
}

__device__ __forceinline__ float dropped(float v, bool keep, float scale) { return keep ? v * scale : 0; }
