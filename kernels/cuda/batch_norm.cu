/* batch_norm.cu - normalisation per channel, and its gradient.
 *
 * x is [N, C, S]. Within a tile, sums are in f32 (squares about the tile's own mean); tiles are added in f64, in which
 * the variance as a difference of mean squares is accurate enough. Several blocks share a channel. A warp combines
 * their sums and computes the channel's factors, and a final pass over the elements applies them. If S is small, a
 * block reads 32 channels together, one per lane. If S is 1 (NHWC), a thread processes a tile of channels and walks
 * down the pixels; adjacent pixels are packed into one row until it consists of whole tiles for any number of channels.
 * The order of sums depends only on shapes.
 *
 * The gradient of a relu after the normalisation is computed wherever dy is loaded (kernels/norm_grad.h). */
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/rows.cuh"

/* a / b for non-negative operands, with a 32-bit division if they fit. */
static __device__ __forceinline__ long long quotient(long long a, long long b)
{
    return ((a | b) >> 32) == 0 ? (long long)((unsigned)a / (unsigned)b) : a / b;
}

/* ---- the gradient of a relu ---- */

static __device__ __forceinline__ float number(const void *array, int dtype, long long i)
{
    return array ? element_load<float>(array, dtype, i) : 0;
}

template <typename T> static __device__ __forceinline__ float rounded(float v)
{
    T stored;
    from_carrier(&stored, v);
    to_carrier(&v, stored);
    return v;
}

/* What the forward pass computed of one channel. */
struct norm_channel {
    float mean, rstd, scale, bias;
};

static __device__ __forceinline__ norm_channel channel_of(const norm_input &in, const norm_relu &relu, long long c)
{
    return {in.mean[c], relu.rstd[c], number(relu.scale, relu.dtype, c), number(relu.bias, relu.dtype, c)};
}

/* The operand of the relu, rounded at the same places as by the fused kernel that computed it. */
template <typename T> static __device__ __forceinline__ float normalised(float x, const norm_channel &c)
{
    return rounded<T>(__fadd_rn(__fmul_rn(__fmul_rn(__fsub_rn(x, c.mean), c.rstd), c.scale), c.bias));
}

/* The gradient of the operand of a relu, from that of its result. */
static __device__ __forceinline__ float relu_gradient(float dy, float y) { return y <= 0 ? 0 : dy; }

/* Replaces the gradients dy of n elements starting at `at`. channel(i): that of element i. */
template <typename F>
static __device__ __forceinline__ void relu_tile(const norm_input &in, const norm_relu &relu, long long at, int n,
                                                 const float (&x)[TILE], float (&dy)[TILE], F channel)
{
    with_stored(0.0f, in.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        float more[TILE];
        if (relu.addend) load_typed(static_cast<const T *>(relu.addend) + at, n, more);
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (relu.addend) dy[i] = rounded<T>(dy[i] + more[i]);
        if (relu.y) load_typed(static_cast<const T *>(relu.y) + at, n, more);
#pragma unroll
        for (int i = 0; i < TILE; i++) dy[i] = relu_gradient(dy[i], relu.y ? more[i] : normalised<T>(x[i], channel(i)));
        if (relu.masked) store_typed(static_cast<T *>(relu.masked) + at, n, dy);
    });
}

/* ---- sums over a channel ---- */

/* Adds n elements of a tile; mean: of the channel, for backward. */
template <bool backward>
static __device__ __forceinline__ void add_tile(const float (&x)[TILE], const float (&dy)[TILE], float mean, int n,
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

/* Sums one channel per block. Blocks: channels times splits. */
template <bool backward, bool gated>
static __device__ __forceinline__ void sum_channel(const norm_input &in, const norm_relu &relu, double *slots)
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
        if (gated) relu_tile(in, relu, at, n, x, dy, [&](int) { return channel_of(in, relu, channel); });
        add_tile<backward>(x, dy, mean, n, &sums);
    }
    sums.first = block_sum(sums.first, slots);
    sums.second = block_sum(sums.second, slots);
    if (threadIdx.x == 0) in.sums[blockIdx.x] = sums;
}

/* Loads n elements of a channel, starting at element `element` of its N * S. */
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

/* Sums 32 channels per block, one per lane. Blocks: groups of 32 channels times splits. */
template <bool backward>
static __device__ __forceinline__ void sum_lanes(const norm_input &in, const norm_relu &, double *slots)
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
        add_tile<backward>(x, dy, mean, n, &sums);
    }
    sums.first = lane_sum(sums.first, slots);
    sums.second = lane_sum(sums.second, slots);
    if (threadIdx.x < WARP && channel < s.channels) in.sums[channel * s.splits + split] = sums;
}

/* ---- strips: tiles of channels ---- */

/* A thread's tile in the rows first, first + step, ...; `begin`, `advance`: the same in elements. */
struct norm_strip {
    long long column, first, step, begin, advance;
    long long full;  /* number of complete rows; 0: this thread has no tile */
    int rest;        /* elements of the tile in the incomplete last row */
};

static __device__ __forceinline__ norm_strip strip_of(const norm_shape &s)
{
    const int across = threadIdx.x % s.lanes, down = threadIdx.x / s.lanes, height = ROW_BLOCK / s.lanes;
    const long long width = s.channels * s.pack, wide = (long long)s.lanes * TILE, strips = (width + wide - 1) / wide;
    norm_strip t;
    t.column = blockIdx.x % strips * wide + across * TILE;
    t.first = blockIdx.x / strips * height + down;
    t.step = gridDim.x / strips * height;
    t.begin = t.first * width + t.column;
    t.advance = t.step * width;
    t.full = t.column < width ? s.batch / s.pack : 0;
    const long long rest = t.column < width ? s.batch % s.pack * s.channels - t.column : 0;
    t.rest = rest < 0 ? 0 : rest < TILE ? (int)rest : TILE;
    return t;
}

/* What strips do with the gradients of a tile before they use them: nothing. */
struct strip_plain {
    enum : int { rows = 4 }; /* rows that a thread loads before it adds them */
    template <bool whole>
    __device__ __forceinline__ void apply(const float (&)[TILE], float (&)[TILE], long long, int) const
    {
    }
};

/* The gradient of a relu, as relu_tile. */
template <typename T, bool reads_y> struct strip_relu {
    enum : int { rows = 2 };
    const T *addend, *y;
    T *masked;
    norm_channel channel[reads_y ? 1 : TILE]; /* of the columns, if the operand of the relu is recomputed */

    __device__ __forceinline__ strip_relu(const norm_input &in, const norm_relu &relu, long long column)
        : addend(static_cast<const T *>(relu.addend)), y(static_cast<const T *>(relu.y)),
          masked(static_cast<T *>(relu.masked))
    {
#pragma unroll
        for (int i = 0; i < TILE && !reads_y; i++)
            if (column < in.shape.channels * in.shape.pack)
                channel[i] = channel_of(in, relu, (column + i) % in.shape.channels);
    }

    template <bool whole> static __device__ __forceinline__ void load(const T *from, int n, float (&v)[TILE])
    {
        if (whole) load_full(from, v);
        else load_typed(from, n, v);
    }

    template <bool whole>
    __device__ __forceinline__ void apply(const float (&x)[TILE], float (&dy)[TILE], long long at, int n) const
    {
        float more[TILE];
        if (addend) {
            load<whole>(addend + at, n, more);
#pragma unroll
            for (int i = 0; i < TILE; i++) dy[i] = rounded<T>(dy[i] + more[i]);
        }
        if (reads_y) load<whole>(y + at, n, more);
#pragma unroll
        for (int i = 0; i < TILE; i++)
            dy[i] = relu_gradient(dy[i], reads_y ? more[i] : normalised<T>(x[i], channel[i]));
        if (reads_y && masked && whole) store_full(masked + at, dy);
        else if (reads_y && masked) store_typed(masked + at, n, dy);
    }
};

/* What the gradient of a relu is computed from. */
enum norm_relu_kind : int { NO_RELU, RELU_OF_X, RELU_OF_Y };

template <norm_relu_kind kind, typename T>
static __device__ __forceinline__ auto strip_relu_of(const norm_input &in, const norm_relu &relu, long long column)
{
    if constexpr (kind == NO_RELU) return strip_plain();
    else return strip_relu<T, kind == RELU_OF_Y>(in, relu, column);
}

/* Sums of a tile's columns. They are accumulated in f32 about a shift before being added in f64. */
struct strip_sums {
    double first[TILE], second[TILE];
};

template <bool backward>
static __device__ __forceinline__ void strip_flush(const float (&first)[TILE], const float (&second)[TILE], int n,
                                                   float (&shift)[TILE], strip_sums *sums)
{
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        const double f = first[i], about = backward ? 0 : shift[i];
        sums->first[i] += f + n * about;
        sums->second[i] += (double)second[i] + about * (2 * f + n * about);
        if (!backward) shift[i] += first[i] / (float)n; /* close to the mean of the rows so far */
    }
}

/* Adds n <= STRIP_ROWS rows, starting at element `at`. */
template <bool backward, typename T, typename R>
static __device__ __forceinline__ void strip_rows(const T *x, const T *dy, const R &relu, long long at,
                                                  long long advance, int n, float (&shift)[TILE], strip_sums *sums)
{
    float first[TILE] = {}, second[TILE] = {};
#pragma unroll R::rows
    for (int k = 0; k < n; k++) {
        float v[TILE], g[TILE];
        load_full(x + at + k * advance, v);
        if (backward) load_full(dy + at + k * advance, g);
        if (backward) relu.template apply<true>(v, g, at + k * advance, TILE);
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            const float from_shift = v[i] - shift[i];
            first[i] += backward ? g[i] : from_shift;
            second[i] += (backward ? g[i] : from_shift) * from_shift;
        }
    }
    strip_flush<backward>(first, second, n, shift, sums);
}

enum : int { STRIP_ROWS = 16 };

/* Adds all rows of a thread; `shift`: the means (backward only). */
template <bool backward, typename T, typename R>
static __device__ __forceinline__ void strip_sum(const T *x, const T *dy, const R &relu, const norm_strip &t,
                                                 float (&shift)[TILE], strip_sums *sums)
{
    long long row = t.first, at = t.begin;
    if (!backward && row < t.full) load_full(x + at, shift);
    while (row < t.full) {
        const long long left = (t.full - row + t.step - 1) / t.step;
        const int n = left < STRIP_ROWS ? (int)left : STRIP_ROWS;
        strip_rows<backward>(x, dy, relu, at, t.advance, n, shift, sums);
        row += n * t.step;
        at += n * t.advance;
    }
    if (row != t.full || t.rest == 0) return;
    float v[TILE], g[TILE] = {};
    load_typed(x + at, t.rest, v);
    if (backward) load_typed(dy + at, t.rest, g);
    if (backward) relu.template apply<false>(v, g, at, t.rest);
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        if (i >= t.rest) continue;
        sums->first[i] += backward ? g[i] : v[i];
        sums->second[i] += backward ? (double)g[i] * (v[i] - shift[i]) : (double)v[i] * v[i];
    }
}

/* Sums over the threads of a block with the same columns; the threads of the first row get the result. `slots`:
 * shared. */
static __device__ __forceinline__ void strip_join(double (&v)[TILE], int lanes, double *slots)
{
    const int down = threadIdx.x / lanes;
#pragma unroll
    for (int i = 0; i < TILE; i++) slots[i * ROW_BLOCK + threadIdx.x] = v[i];
    for (int half = ROW_BLOCK / lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (down >= half) continue;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            slots[i * ROW_BLOCK + threadIdx.x] += slots[i * ROW_BLOCK + threadIdx.x + half * lanes];
    }
#pragma unroll
    for (int i = 0; i < TILE; i++) v[i] = slots[i * ROW_BLOCK + threadIdx.x];
    __syncthreads();
}

/* Sums one strip per block. Blocks: strips times splits. */
template <bool backward, norm_relu_kind kind>
static __device__ __forceinline__ void sum_strips(const norm_input &in, const norm_relu &relu, double *slots)
{
    const norm_shape &s = in.shape;
    const norm_strip t = strip_of(s);
    strip_sums sums = {};
    float shift[TILE] = {};
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (backward && t.column < s.channels * s.pack) shift[i] = in.mean[(t.column + i) % s.channels];
    with_stored(0.0f, in.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const T *x = static_cast<const T *>(in.x), *dy = static_cast<const T *>(in.dy);
        strip_sum<backward>(x, dy, strip_relu_of<kind, T>(in, relu, t.column), t, shift, &sums);
    });
    strip_join(sums.first, s.lanes, slots);
    strip_join(sums.second, s.lanes, slots);
    if ((int)threadIdx.x >= s.lanes || t.column >= s.channels * s.pack) return;
#pragma unroll
    for (int i = 0; i < TILE; i++)
        in.sums[(t.column + i) * s.splits + t.first / (ROW_BLOCK / s.lanes)] = {sums.first[i], sums.second[i]};
}

#define NORM_SUMS_KERNEL(name, function, count)                                                                        \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) name(norm_input in, norm_relu relu)                        \
    {                                                                                                                  \
        __shared__ double slots[count];                                                                                \
        function(in, relu, slots);                                                                                     \
    }                                                                                                                  \
    AMPC_KERNEL(name)

NORM_SUMS_KERNEL(batch_norm_sums_channel, (sum_channel<false, false>), WARP)
NORM_SUMS_KERNEL(batch_norm_sums_lanes, sum_lanes<false>, ROW_BLOCK)
NORM_SUMS_KERNEL(batch_norm_sums_strips, (sum_strips<false, NO_RELU>), ROW_BLOCK *TILE)
NORM_SUMS_KERNEL(batch_norm_grad_sums_strips, (sum_strips<true, NO_RELU>), ROW_BLOCK *TILE)
NORM_SUMS_KERNEL(batch_norm_grad_sums_channel, (sum_channel<true, false>), WARP)
NORM_SUMS_KERNEL(batch_norm_grad_sums_lanes, sum_lanes<true>, ROW_BLOCK)
NORM_SUMS_KERNEL(batch_norm_relu_x_grad_sums_strips, (sum_strips<true, RELU_OF_X>), ROW_BLOCK *TILE)
NORM_SUMS_KERNEL(batch_norm_relu_y_grad_sums_strips, (sum_strips<true, RELU_OF_Y>), ROW_BLOCK *TILE)
NORM_SUMS_KERNEL(batch_norm_relu_grad_sums_channel, (sum_channel<true, true>), WARP)

/* ---- factors: one warp per channel ---- */

static __device__ __forceinline__ norm_sums joined_sums(const norm_input &in, long long channel)
{
    const norm_shape &s = in.shape;
    norm_sums own = {0, 0};
    for (int p = 0; p < s.pack; p++)
        for (int i = threadIdx.x % WARP; i < s.splits; i += WARP) {
            const norm_sums part = in.sums[(p * s.channels + channel) * s.splits + i];
            own.first += part.first;
            own.second += part.second;
        }
    return {warp_sum(own.first), warp_sum(own.second)};
}

/* Calls f(channel, sums) in one thread per channel. */
template <typename F> static __device__ __forceinline__ void channels_each(const norm_input &in, F f)
{
    for (long long channel = (long long)blockIdx.x * ROW_WARPS + threadIdx.x / WARP; channel < in.shape.channels;
         channel += (long long)gridDim.x * ROW_WARPS) {
        const norm_sums sums = joined_sums(in, channel);
        if (threadIdx.x % WARP == 0) f(channel, sums);
    }
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) batch_norm_factors(norm_forward a)
{
    const double count = (double)a.in.shape.batch * (double)a.in.shape.size, keep = a.training ? a.momentum : 1;
    channels_each(a.in, [&](long long c, norm_sums sums) {
        if (a.sum) sums = {a.sum[c], a.squares[c]};
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

/* With h the normalised x: dscale = sum(dy h), dbias = sum(dy). In training, dx = scale rstd (dy - dbias / n - h dscale
 * / n), else dx = scale rstd dy. */
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

/* ---- applying the factors ---- */

template <bool backward>
static __device__ __forceinline__ float applied(float x, float dy, const norm_factors &f)
{
    return backward ? f.a * dy - (f.b + f.d * (x - f.centre)) : (x - f.centre) * f.a + f.b;
}

template <bool backward, bool gated>
static __device__ __forceinline__ void apply(const norm_input &in, const norm_factors *factors, const norm_relu &relu,
                                             void *to)
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
        if (gated)
            relu_tile(in, relu, first, n, x, dy, [&](int i) {
                return channel_of(in, relu, (row + quotient(column + i, s.size)) % s.channels);
            });
        norm_factors f = factors[channel];
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            x[i] = applied<backward>(x[i], backward ? dy[i] : 0, f);
            if (++column < s.size) continue;
            column = 0;
            channel = channel + 1 < s.channels ? channel + 1 : 0;
            f = factors[channel];
        }
        tile_store(to, in.dtype, first, n, x);
    }
}

/* Applies the factors to n elements starting at `at`; whole: a full, aligned tile. */
template <bool backward, bool whole, typename T, typename R>
static __device__ __forceinline__ void apply_tile(const T *x, const T *dy, const R &relu, T *to, long long at, int n,
                                                  const norm_factors (&f)[TILE])
{
    float v[TILE], g[TILE] = {};
    if (whole) load_full(x + at, v);
    else load_typed(x + at, n, v);
    if (backward && whole) load_full(dy + at, g);
    else if (backward) load_typed(dy + at, n, g);
    if (backward) relu.template apply<whole>(v, g, at, n);
#pragma unroll
    for (int i = 0; i < TILE; i++) v[i] = applied<backward>(v[i], g[i], f[i]);
    if (whole) store_full(to + at, v);
    else store_typed(to + at, n, v);
}

template <bool backward, norm_relu_kind kind>
static __device__ __forceinline__ void apply_strips(const norm_input &in, const norm_factors *factors,
                                                    const norm_relu &relu, void *to)
{
    const norm_shape &s = in.shape;
    const norm_strip t = strip_of(s);
    norm_factors f[TILE];
    if (t.column >= s.channels * s.pack) return;
#pragma unroll
    for (int i = 0; i < TILE; i++) f[i] = factors[(t.column + i) % s.channels];
    with_stored(0.0f, in.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const T *x = static_cast<const T *>(in.x), *dy = static_cast<const T *>(in.dy);
        T *y = static_cast<T *>(to);
        const auto r = strip_relu_of<kind, T>(in, relu, t.column);
        long long row = t.first, at = t.begin;
#pragma unroll 2
        for (; row < t.full; row += t.step, at += t.advance)
            apply_tile<backward, true>(x, dy, r, y, at, TILE, f);
        if (row == t.full && t.rest > 0) apply_tile<backward, false>(x, dy, r, y, at, t.rest, f);
    });
}

#define NORM_APPLY_KERNEL(name, function)                                                                              \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK)                                                            \
        name(norm_input in, const norm_factors *factors, norm_relu relu, void *to)                                     \
    {                                                                                                                  \
        function(in, factors, relu, to);                                                                               \
    }                                                                                                                  \
    AMPC_KERNEL(name)

NORM_APPLY_KERNEL(batch_norm_apply, (apply<false, false>))
NORM_APPLY_KERNEL(batch_norm_grad_apply, (apply<true, false>))
NORM_APPLY_KERNEL(batch_norm_relu_grad_apply, (apply<true, true>))
NORM_APPLY_KERNEL(batch_norm_apply_strips, (apply_strips<false, NO_RELU>))
NORM_APPLY_KERNEL(batch_norm_grad_apply_strips, (apply_strips<true, NO_RELU>))
NORM_APPLY_KERNEL(batch_norm_relu_x_grad_apply_strips, (apply_strips<true, RELU_OF_X>))
