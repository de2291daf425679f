/* trust.cu - the ratios of norms that scale the updates of LAMB, LARS and Adafactor. A launch has a table of tensors.
 * Norms are computed in f64; a block computes one part of both norms of a tensor, so that the order is fixed. */
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/trust.h"

static __device__ __forceinline__ double tile_squares(const float *p, int n)
{
    float v[TILE];
    double sum = 0;
    load_typed(p, n, v); /* zeros beyond n */
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += (double)v[i] * v[i];
    return sum;
}

extern "C" __global__ void __launch_bounds__(TRUST_BLOCK) norm_parts(const __grid_constant__ parts_table t)
{
    __shared__ double slots[WARP];
    for (int block = blockIdx.x; block < t.spans * TRUST_PARTS; block += gridDim.x) {
        const parts_span &s = t.span[block / TRUST_PARTS];
        const int part = block % TRUST_PARTS;
        const long long first = part * s.length, end = min(s.count, first + s.length);
        double a = 0, b = 0;
        for (long long i = first + threadIdx.x * TILE; i < end; i += TRUST_BLOCK * TILE) {
            a += tile_squares(s.a + i, tile_length(i, end));
            b += tile_squares(s.b + i, tile_length(i, end));
        }
        a = block_sum(a, slots);
        b = block_sum(b, slots);
        if (threadIdx.x == 0) {
            s.parts[part] = (float)(sqrt(a) / s.root);
            s.parts[TRUST_PARTS + part] = (float)(sqrt(b) / s.root);
        }
    }
}
AMPC_KERNEL(norm_parts)

/* The norm of one of the two tensors of a span, from its parts. */
static __device__ double whole_norm(const float *parts, double *slots)
{
    const double part = parts[threadIdx.x];
    return sqrt(block_sum(part * part, slots));
}

extern "C" __global__ void __launch_bounds__(TRUST_PARTS) trust_ratio(const __grid_constant__ trust_table t)
{
    __shared__ double slots[WARP];
    for (int block = blockIdx.x; block < t.spans; block += gridDim.x) {
        const trust_span &s = t.span[block];
        const double a = whole_norm(s.parts, slots), b = whole_norm(s.parts + TRUST_PARTS, slots);
        const double ratio = a == 0 || b == 0 ? 1 : t.coefficient * a / (b + t.decay * a + t.eps);
        if (threadIdx.x == 0) *s.ratio = (float)ratio;
    }
}
AMPC_KERNEL(trust_ratio)

extern "C" __global__ void __launch_bounds__(TRUST_PARTS) clipped_ratio(const __grid_constant__ trust_table t)
{
    __shared__ double slots[WARP];
    for (int block = blockIdx.x; block < t.spans; block += gridDim.x) {
        const trust_span &s = t.span[block];
        const double a = whole_norm(s.parts, slots), b = whole_norm(s.parts + TRUST_PARTS, slots);
        if (threadIdx.x == 0) *s.ratio = (float)(fmax(t.least, a) / fmax(1.0, b / t.clip));
    }
}
AMPC_KERNEL(clipped_ratio)
