/* batch_norm.cu - normalisation per channel, and its gradient.
 *
 * x is [N, C, S]. Sums over a channel: a tile's sums are f32 (squares about the tile's own mean), tiles are added in
 * f64, where the difference of mean squares loses nothing that matters. Blocks share a channel; a warp joins them and
 * makes the channel's factors; then one pass over the elements applies them. Where S is small, a block reads 32
 * channels together, a lane each. The order of sums depends on shapes alone. */
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/rows.cuh"

/* a / b, both not negative; most are small enough for the short division. */
static __device__ __forceinline__ long long quotient(long long a, long long b)
{
    return ((a | b) >> 32) == 0 ? (long long)((unsigned)a / (unsigned)b) : a / b;
}

/* ---- sums over a channel ---- */

/* n elements of a tile; mean: of the channel, for the backward. */
template <bool backward>
static __device__ __forceinline__ void take_tile(const float (&x)[TILE], const float (&dy)[TILE], float mean, int n,
                                                 norm_sums *sums)
{
    float first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n) first += backward ? dy[i] : x[i];
    const float centre = backward ? mean : first / (float)n;
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n) second += (backward ? dy[i] : x[i] - centre) * (x[i] - centre);
    sums->first += (double)first;
    sums->second += backward ? (double)second : (double)second + (double)first * (double)first / n;
}

/* Blocks: channels times splits. */
template <bool backward> static __device__ __forceinline__ void sum_channel(const norm_input &in, double *slots)
{
    const norm_shape &s = in.shape;
    const long long channel = blockIdx.x / s.splits, split = blockIdx.x % s.splits;
    const long long in_row = (s.size + TILE - 1) / TILE, tiles = s.batch * in_row;
    const float mean = backward ? in.mean[channel] : 0;
    norm_sums sums = {0, 0};
    for (long long t = split * ROW_BLOCK + threadIdx.x; t < tiles; t += (long long)s.splits * ROW_BLOCK) {
        const long long row = quotient(t, in_row), column = (t - row * in_row) * TILE;
        const long long at = (row * s.channels + channel) * s.size + column;
        const int n = tile_length(column, s.size);
        float x[TILE], dy[TILE] = {};
        tile_load(in.x, in.dtype, at, n, x);
        if (backward) tile_load(in.dy, in.dtype, at, n, dy);
        take_tile<backward>(x, dy, mean, n, &sums);
    }
    sums.first = block_sum(sums.first, slots);
    sums.second = block_sum(sums.second, slots);
    if (threadIdx.x == 0) in.sums[blockIdx.x] = sums;
}

/* n elements of a channel from number `element` of its N * S on. */
static __device__ __forceinline__ void load_channel(const void *array, int dtype, const norm_shape &s,
                                                    long long channel, long long element, int n, float (&v)[TILE])
{
    const long long row = quotient(element, s.size);
    with_stored(0.0f, dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        long long column = element - row * s.size;
        const T *from = static_cast<const T *>(array) + (row * s.channels + channel) * s.size;
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            if (i >= n) break;
            to_carrier(&v[i], from[column]);
            if (++column < s.size) continue;
            column = 0;
            from += s.channels * s.size;
        }
    });
}

/* Blocks: groups of 32 channels times splits. */
template <bool backward> static __device__ __forceinline__ void sum_lanes(const norm_input &in, double *slots)
{
    const norm_shape &s = in.shape;
    const long long split = blockIdx.x % s.splits, channel = blockIdx.x / s.splits * WARP + threadIdx.x % WARP;
    const long long elements = channel < s.channels ? s.batch * s.size : 0;
    const float mean = backward && elements > 0 ? in.mean[channel] : 0;
    norm_sums sums = {0, 0};
    for (long long e = (split * ROW_WARPS + threadIdx.x / WARP) * TILE; e < elements;
         e += (long long)s.splits * ROW_WARPS * TILE) {
        const int n = tile_length(e, elements);
        float x[TILE] = {}, dy[TILE] = {};
        load_channel(in.x, in.dtype, s, channel, e, n, x);
        if (backward) load_channel(in.dy, in.dtype, s, channel, e, n, dy);
        take_tile<backward>(x, dy, mean, n, &sums);
    }
    sums.first = lane_sum(sums.first, slots);
    sums.second = lane_sum(sums.second, slots);
    if (threadIdx.x < WARP && channel < s.channels) in.sums[channel * s.splits + split] = sums;
}

#define NORM_SUMS_KERNEL(name, function, count)                                                                        \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) name(norm_input in)                                        \
    {                                                                                                                  \
        __shared__ double slots[count];                                                                                \
        function(in, slots);                                                                                           \
    }                                                                                                                  \
    AMPC_KERNEL(name)

NORM_SUMS_KERNEL(batch_norm_sums_channel, sum_channel<false>, WARP)
NORM_SUMS_KERNEL(batch_norm_sums_lanes, sum_lanes<false>, ROW_BLOCK)
NORM_SUMS_KERNEL(batch_norm_grad_sums_channel, sum_channel<true>, WARP)
NORM_SUMS_KERNEL(batch_norm_grad_sums_lanes, sum_lanes<true>, ROW_BLOCK)

/* ---- factors of a channel, a warp each ---- */

static __device__ __forceinline__ norm_sums joined_sums(const norm_input &in, long long channel)
{
    const int lane = threadIdx.x % WARP;
    norm_sums own = {0, 0};
    if (lane < in.shape.splits) own = in.sums[channel * in.shape.splits + lane];
    return {warp_sum(own.first), warp_sum(own.second)};
}

/* f(channel, sums) in one thread for each channel. */
template <typename F> static __device__ __forceinline__ void channels_each(const norm_input &in, F f)
{
    for (long long channel = (long long)blockIdx.x * ROW_WARPS + threadIdx.x / WARP; channel < in.shape.channels;
         channel += (long long)gridDim.x * ROW_WARPS) {
        const norm_sums sums = joined_sums(in, channel);
        if (threadIdx.x % WARP == 0) f(channel, sums);
    }
}

static __device__ __forceinline__ double number(const void *array, int dtype, long long i)
{
    return array ? (double)element_load<float>(array, dtype, i) : 0;
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) batch_norm_factors(norm_forward a)
{
    const double count = (double)a.in.shape.batch * (double)a.in.shape.size, keep = a.training ? a.momentum : 1;
    channels_each(a.in, [&](long long c, norm_sums sums) {
        const double old_mean = number(a.mean, a.dtype, c), old_var = number(a.var, a.dtype, c);
        double mean = old_mean, var = old_var;
        if (a.training) {
            mean = count > 0 ? sums.first / count : 0;
            var = count > 0 ? sums.second / count - mean * mean : 0;
            var = var < 0 ? 0 : var;
        }
        const double rstd = 1 / sqrt(var + a.eps);
        a.factors[c] = {(float)mean, (float)(rstd * number(a.scale, a.dtype, c)), (float)number(a.bias, a.dtype, c), 0};
        if (a.saved_mean) a.saved_mean[c] = (float)mean;
        if (a.saved_rstd) a.saved_rstd[c] = (float)rstd;
        const float new_mean = (float)(keep == 1 ? old_mean : old_mean * keep + mean * (1 - keep));
        const float new_var = (float)(keep == 1 ? old_var : old_var * keep + var * (1 - keep));
        if (a.mean_out) element_store(a.mean_out, a.dtype, c, new_mean);
        if (a.var_out) element_store(a.var_out, a.dtype, c, new_var);
    });
}
AMPC_KERNEL(batch_norm_factors)

/* With h the normalised x: dscale = sum(dy h), dbias = sum(dy), and in training
 * dx = scale rstd (dy - dbias / n - h dscale / n); else scale rstd dy. */
extern "C" __global__ void __launch_bounds__(ROW_BLOCK) batch_norm_grad_factors(norm_backward a)
{
    const double count = (double)a.in.shape.batch * (double)a.in.shape.size;
    channels_each(a.in, [&](long long c, norm_sums sums) {
        const double rstd = a.rstd[c], factor = number(a.scale, a.dtype, c) * rstd, dscale = sums.second * rstd;
        norm_factors f = {a.in.mean[c], (float)factor, 0, 0};
        if (a.training) {
            f.b = (float)(factor * sums.first / count);
            f.d = (float)(factor * dscale * rstd / count);
        }
        a.factors[c] = f;
        if (a.dscale) element_store(a.dscale, a.dtype, c, (float)dscale);
        if (a.dbias) element_store(a.dbias, a.dtype, c, (float)sums.first);
    });
}
AMPC_KERNEL(batch_norm_grad_factors)

/* ---- the factors applied to all elements ---- */

template <bool backward>
static __device__ __forceinline__ void apply(const norm_input &in, const norm_factors *factors, void *to)
{
    const norm_shape &s = in.shape;
    const long long total = s.batch * s.channels * s.size;
    for (long long first = grid_first() * TILE; first < total; first += grid_step() * TILE) {
        const int n = tile_length(first, total);
        const long long row = quotient(first, s.size);
        long long column = first - row * s.size, channel = row - quotient(row, s.channels) * s.channels;
        float x[TILE], dy[TILE];
        tile_load(in.x, in.dtype, first, n, x);
        if (backward) tile_load(in.dy, in.dtype, first, n, dy);
        norm_factors f = factors[channel];
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            x[i] = backward ? f.a * dy[i] - (f.b + f.d * (x[i] - f.centre)) : (x[i] - f.centre) * f.a + f.b;
            if (++column < s.size) continue;
            column = 0;
            channel = channel + 1 < s.channels ? channel + 1 : 0;
            f = factors[channel];
        }
        tile_store(to, in.dtype, first, n, x);
    }
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) batch_norm_apply(norm_input in, const norm_factors *factors,
                                                                         void *y)
{
    apply<false>(in, factors, y);
}
AMPC_KERNEL(batch_norm_apply)

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) batch_norm_grad_apply(norm_input in,
                                                                              const norm_factors *factors, void *dx)
{
    apply<true>(in, factors, dx);
}
AMPC_KERNEL(batch_norm_grad_apply)
