/* pool.cu - max and average pooling over 1 to 3 spatial axes, and their gradients.
 *
 * Each thread computes one element (in NHWC, a tile of channels) of the result. For y it visits the taps of the window;
 * for dx it visits all windows that contain the element, in order. The gradient of max pooling has positions instead of
 * windows. There, a block keeps sums of planes in shared memory and adds gradients in order, one per thread at a time.
 * If several threads target one position (or share its slot), the first adds and the others wait for the next round.
 * `width` is 1, or TILE if planes have channels. */
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/pool.h"

/* `n` channels starting at `channel`, at position `at` of a plane. */
struct pool_place {
    long long plane;
    int at, channel, n;
};

/* Calls f(place) for each place of planes with `size` positions. Adjacent threads have adjacent channels, then
 * positions. */
template <int width, typename F>
static __device__ __forceinline__ void places_each(const pool_shape &s, int size, F f)
{
    const long long outer_count = width == 1 ? s.planes : s.planes * size;
    const unsigned inner_count = width == 1 ? size : (s.channels + width - 1) / width;
    const unsigned step = (unsigned)grid_step(), more = step / inner_count, rest = step % inner_count;
    unsigned inner = (unsigned)grid_first() % inner_count;
    long long outer = (unsigned)grid_first() / inner_count;
    while (outer < outer_count) {
        if (width == 1) {
            f(pool_place{outer, (int)inner, 0, 1});
        } else {
            long long at;
            const long long plane = divide(outer, size, &at);
            const int channel = (int)inner * width;
            f(pool_place{plane, (int)at, channel, tile_length(channel, s.channels)});
        }
        outer += more;
        inner += rest;
        if (inner < inner_count) continue;
        inner -= inner_count;
        outer++;
    }
}

/* Offset of the place's first channel at position `at` of its plane. */
template <int width>
static __device__ __forceinline__ long long element_of(const pool_shape &s, const pool_place &p, int size, int at)
{
    return width == 1 ? p.plane * size + at : (p.plane * size + at) * s.channels + p.channel;
}

template <typename T, typename C> static __device__ __forceinline__ void load_channels(const T *from, int, C (&v)[1])
{
    to_carrier(&v[0], *from);
}
template <typename T, typename C>
static __device__ __forceinline__ void load_channels(const T *from, int n, C (&v)[TILE])
{
    load_typed(from, n, v);
}

template <typename C>
static __device__ __forceinline__ void store_channels(void *to, int dtype, long long at, int, const C (&v)[1])
{
    element_store(to, dtype, at, v[0]);
}
template <typename C>
static __device__ __forceinline__ void store_channels(void *to, int dtype, long long at, int n, const C (&v)[TILE])
{
    tile_store(to, dtype, at, n, v);
}

/* Coordinates of an element of a plane, in the input or the output. */
struct position {
    int d, h, w;
};

static __device__ __forceinline__ position position_of(int at, int rows, int columns)
{
    const int slice = at / columns;
    return {slice / rows, slice % rows, at % columns};
}

static __device__ __forceinline__ int ceil_div(int a, int b) { return a > 0 ? (a - 1) / b + 1 : -(-a / b); }

/* Taps [low, high) of an output that are inside the input. */
struct tap_range {
    int low, high, start; /* start: position of tap 0 */
};

static __device__ __forceinline__ int taps_before(const pool_span &a, int start, int limit) /* first tap >= limit */
{
    const int tap = ceil_div(limit - start, a.dilation);
    return tap < 0 ? 0 : tap < a.kernel ? tap : a.kernel;
}

static __device__ __forceinline__ tap_range taps_of(const pool_span &a, int o)
{
    const int start = o * a.stride - a.before;
    return {taps_before(a, start, 0), taps_before(a, start, a.in), start};
}

/* Number of taps of output o inside the input or, if padded, inside the padded input. */
static __device__ __forceinline__ int tap_count(const pool_span &a, int o, int padded)
{
    const int start = o * a.stride - a.before;
    return taps_before(a, start, a.in + (padded ? a.after : 0)) - taps_before(a, start, padded ? -a.before : 0);
}

/* Calls f(position in the plane) for each tap of the output, in row-major order. */
template <typename F> static __device__ __forceinline__ void taps_each(const pool_shape &s, position o, F f)
{
    const tap_range d = taps_of(s.axis[0], o.d), h = taps_of(s.axis[1], o.h), w = taps_of(s.axis[2], o.w);
    for (int i = d.low; i < d.high; i++)
        for (int j = h.low; j < h.high; j++) {
            const int slice = (d.start + i * s.axis[0].dilation) * s.axis[1].in + h.start + j * s.axis[1].dilation;
            for (int k = w.low; k < w.high; k++) f(slice * s.axis[2].in + w.start + k * s.axis[2].dilation);
        }
}

static __device__ __forceinline__ float window_count(const pool_shape &s, position o, int padded)
{
    return (float)(tap_count(s.axis[0], o.d, padded) * tap_count(s.axis[1], o.h, padded) *
                   tap_count(s.axis[2], o.w, padded));
}

/* ---- maximum: the first of equal elements wins, NaN is a maximum ---- */

static __device__ __forceinline__ float lowest(float) { return -INFINITY; }
static __device__ __forceinline__ long long lowest(long long) { return LLONG_MIN; }

static __device__ __forceinline__ bool is_nan(float v) { return v != v; }
static __device__ __forceinline__ bool is_nan(long long) { return false; }

/* The number of the tap of output o at position i, which is in its window. */
static __device__ __forceinline__ int tap_of(const pool_shape &s, position o, position i)
{
    const pool_span &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
    const int slice = (i.d + d.before - o.d * d.stride) / d.dilation * h.kernel +
                      (i.h + h.before - o.h * h.stride) / h.dilation;
    return slice * w.kernel + (i.w + w.before - o.w * w.stride) / w.dilation;
}

/* The index of position `at` of an image channel, `plane`, in an NCHW array. */
static __device__ __forceinline__ long long index_of(const pool_shape &s, long long plane, int at, int column_major)
{
    if (at < 0) return -1;
    if (!column_major) return plane * s.wide + at;
    const position p = position_of(at, s.axis[1].in, s.axis[2].in);
    return plane * s.wide + ((long long)p.w * s.axis[1].in + p.h) * s.axis[0].in + p.d;
}

template <int width, typename C>
static __device__ __forceinline__ void window_maximum(const pool_args &a, const pool_place &p, C (&best)[width],
                                                      int (&found)[width])
{
    const pool_shape &s = a.shape;
    with_stored(C(), a.dtype, [&](auto type) {
        const auto *from = static_cast<const typename decltype(type)::type *>(a.from);
        taps_each(s, position_of(p.at, s.axis[1].out, s.axis[2].out), [&](int at) {
            C v[width];
            load_channels(from + element_of<width>(s, p, s.wide, at), p.n, v);
#pragma unroll
            for (int i = 0; i < width; i++) {
                if (!(v[i] > best[i] || is_nan(v[i]) || found[i] < 0)) continue;
                best[i] = v[i];
                found[i] = at;
            }
        });
    });
}

template <int width, typename C> static __device__ __forceinline__ void max_windows(const pool_args &a)
{
    const pool_shape &s = a.shape;
    places_each<width>(s, s.narrow, [&](const pool_place &p) {
        const long long to = element_of<width>(s, p, s.narrow, p.at);
        C best[width];
        int found[width];
#pragma unroll
        for (int i = 0; i < width; i++) best[i] = lowest(C()), found[i] = -1;
        window_maximum<width>(a, p, best, found);
        store_channels(a.to, a.dtype, to, p.n, best);
        if (!a.indices && !a.taps) return;
        long long indices[width];
        if (a.taps) {
            const position o = position_of(p.at, s.axis[1].out, s.axis[2].out);
#pragma unroll
            for (int i = 0; i < width; i++)
                indices[i] = found[i] < 0 ? POOL_NO_TAP
                                          : tap_of(s, o, position_of(found[i], s.axis[1].in, s.axis[2].in));
            store_channels(a.taps, IR_u8, to, p.n, indices);
            return;
        }
#pragma unroll
        for (int i = 0; i < width; i++)
            indices[i] = index_of(s, width == 1 ? p.plane : p.plane * s.channels + p.channel + i, found[i],
                                  a.column_major);
        store_channels(a.indices, IR_i64, to, p.n, indices);
    });
}

#define POOL_KERNEL(name, ...)                                                                                         \
    extern "C" __global__ void __launch_bounds__(POOL_BLOCK) name(pool_args a) { __VA_ARGS__(a); }                     \
    AMPC_KERNEL(name)
POOL_KERNEL(max_pool_float, max_windows<1, float>)
POOL_KERNEL(max_pool_float_last, max_windows<TILE, float>)
POOL_KERNEL(max_pool_integer, max_windows<1, long long>)
POOL_KERNEL(max_pool_integer_last, max_windows<TILE, long long>)

/* One unit of a block's work: channels starting at `channel` of planes first, first + 1, ..., restricted to `span`
 * positions starting at `low`. Its sums are [planes, span, width]. */
struct scatter_work {
    long long first;
    int planes, channel, n, low, span;
};

template <int width>
static __device__ __forceinline__ scatter_work work_of(const pool_scatter &a, long long work, long long segments)
{
    const long long tiles = width == 1 ? 1 : (a.channels + width - 1) / width, range = work / segments;
    scatter_work w;
    w.first = range / tiles * a.block_planes;
    w.planes = a.planes - w.first < a.block_planes ? (int)(a.planes - w.first) : a.block_planes;
    w.channel = (int)(range % tiles) * width;
    w.n = width == 1 || a.channels - w.channel >= width ? width : a.channels - w.channel;
    w.low = (int)(work % segments) * a.span;
    w.span = a.wide - w.low < a.span ? (int)(a.wide - w.low) : a.span;
    return w;
}

/* Returns the sum to which gradient k of the work is added, or -1 for none; *value: the gradient. */
template <int width>
static __device__ __forceinline__ int target_of(const pool_scatter &a, const scatter_work &w, long long k, float *value)
{
    const int lane = (int)(k % width);
    long long rest;
    const long long position = w.first * a.narrow + k / width, plane = divide(position, a.narrow, &rest);
    const long long channels = width == 1 ? 1 : a.channels, at = position * channels + w.channel + lane;
    if (plane >= w.first + w.planes || lane >= w.n) return -1;
    const long long base = (plane * channels + w.channel + lane) * a.wide + w.low, index = a.indices[at];
    if (index < base || index - base >= w.span) return -1;
    *value = element_load<float>(a.dy, a.dtype, at);
    return ((int)(plane - w.first) * w.span + (int)(index - base)) * width + lane;
}

/* Each thread stores the sums that it also resets, so no barrier is needed before the next reset. */
template <int width>
static __device__ __forceinline__ void store_sums(const pool_scatter &a, const scatter_work &w, const float *sums)
{
    const long long channels = width == 1 ? 1 : a.channels;
    for (int k = threadIdx.x; k < w.planes * w.span; k += POOL_BLOCK) {
        const int plane = k / w.span;
        float v[width];
#pragma unroll
        for (int i = 0; i < width; i++) v[i] = sums[k * width + i];
        store_channels(a.dx, a.dtype, ((w.first + plane) * a.wide + w.low + k - plane * w.span) * channels + w.channel,
                       w.n, v);
    }
}

template <int width>
static __device__ __forceinline__ void scatter(const pool_scatter &a, float *sums, int *next)
{
    const long long ranges = (a.planes + a.block_planes - 1) / a.block_planes;
    const long long tiles = width == 1 ? 1 : (a.channels + width - 1) / width;
    const long long segments = (a.wide + a.span - 1) / a.span;
    for (int i = threadIdx.x; i < POOL_SLOTS; i += POOL_BLOCK) next[i] = INT_MAX;
    for (long long work = blockIdx.x; work < ranges * tiles * segments; work += gridDim.x) {
        const scatter_work w = work_of<width>(a, work, segments);
        for (int k = threadIdx.x; k < w.planes * w.span; k += POOL_BLOCK)
#pragma unroll
            for (int i = 0; i < width; i++) sums[k * width + i] = 0;
        for (long long base = threadIdx.x; base - threadIdx.x < w.planes * a.narrow * width;
             base += POOL_BLOCK * POOL_BATCH) {
            int target[POOL_BATCH], any = 0;
            float value[POOL_BATCH];
#pragma unroll
            for (int j = 0; j < POOL_BATCH; j++) {
                target[j] = target_of<width>(a, w, base + j * POOL_BLOCK, &value[j]);
                any |= target[j] >= 0;
            }
            if (!__syncthreads_or(any)) continue;
#pragma unroll
            for (int j = 0; j < POOL_BATCH; j++) add_in_order<POOL_SLOTS>(sums, next, target[j], value[j]);
        }
        store_sums<width>(a, w, sums);
    }
}

#define SCATTER_KERNEL(name, width)                                                                                    \
    extern "C" __global__ void __launch_bounds__(POOL_BLOCK) name(pool_scatter a)                                      \
    {                                                                                                                  \
        __shared__ float sums[POOL_SEGMENT];                                                                           \
        __shared__ int next[POOL_SLOTS];                                                                               \
        scatter<width>(a, sums, next);                                                                                 \
    }                                                                                                                  \
    AMPC_KERNEL(name)
SCATTER_KERNEL(max_pool_scatter, 1)
SCATTER_KERNEL(max_pool_scatter_last, TILE)

/* ---- average ---- */

template <int width> static __device__ __forceinline__ void average_windows(const pool_args &a)
{
    const pool_shape &s = a.shape;
    places_each<width>(s, s.narrow, [&](const pool_place &p) {
        const position o = position_of(p.at, s.axis[1].out, s.axis[2].out);
        float sum[width] = {};
        with_stored(0.0f, a.dtype, [&](auto type) {
            const auto *from = static_cast<const typename decltype(type)::type *>(a.from);
            taps_each(s, o, [&](int at) {
                float v[width];
                load_channels(from + element_of<width>(s, p, s.wide, at), p.n, v);
#pragma unroll
                for (int i = 0; i < width; i++) sum[i] += v[i];
            });
        });
        const float count = a.sum ? 1 : window_count(s, o, a.padded);
#pragma unroll
        for (int i = 0; i < width; i++) sum[i] /= count;
        store_channels(a.to, a.dtype, element_of<width>(s, p, s.narrow, p.at), p.n, sum);
    });
}
POOL_KERNEL(avg_pool_windows, average_windows<1>)
POOL_KERNEL(avg_pool_windows_last, average_windows<TILE>)

/* Range [low, high] of outputs whose windows may contain position i of an axis. */
struct output_range {
    int low, high;
};

static __device__ __forceinline__ output_range outputs_of(const pool_span &a, int i)
{
    const int last = (i + a.before) / a.stride, low = ceil_div(i + a.before - (a.kernel - 1) * a.dilation, a.stride);
    return {low < 0 ? 0 : low, last < a.out ? last : a.out - 1};
}

static __device__ __forceinline__ bool holds(const pool_span &a, int o, int i)
{
    return (i + a.before - o * a.stride) % a.dilation == 0;
}

/* Calls f(output) for each output whose window contains position i, in row-major order. */
template <typename F> static __device__ __forceinline__ void outputs_each(const pool_shape &s, position i, F f)
{
    const output_range d = outputs_of(s.axis[0], i.d), h = outputs_of(s.axis[1], i.h), w = outputs_of(s.axis[2], i.w);
    position o;
    for (o.d = d.low; o.d <= d.high; o.d++)
        for (o.h = h.low; o.h <= h.high; o.h++)
            for (o.w = w.low; o.w <= w.high; o.w++)
                if (holds(s.axis[0], o.d, i.d) && holds(s.axis[1], o.h, i.h) && holds(s.axis[2], o.w, i.w)) f(o);
}

template <int width> static __device__ __forceinline__ void average_spread(const pool_args &a)
{
    const pool_shape &s = a.shape;
    places_each<width>(s, s.wide, [&](const pool_place &p) {
        float sum[width] = {};
        outputs_each(s, position_of(p.at, s.axis[1].in, s.axis[2].in), [&](position o) {
            const int at = (o.d * s.axis[1].out + o.h) * s.axis[2].out + o.w;
            const float count = a.sum ? 1 : window_count(s, o, a.padded);
            float v[width];
            with_stored(0.0f, a.dtype, [&](auto type) {
                const auto *from = static_cast<const typename decltype(type)::type *>(a.from);
                load_channels(from + element_of<width>(s, p, s.narrow, at), p.n, v);
            });
#pragma unroll
            for (int i = 0; i < width; i++) sum[i] += v[i] / count;
        });
        store_channels(a.to, a.dtype, element_of<width>(s, p, s.wide, p.at), p.n, sum);
    });
}
POOL_KERNEL(avg_pool_spread, average_spread<1>)
POOL_KERNEL(avg_pool_spread_last, average_spread<TILE>)

/* ---- gradient of max pooling from tap numbers ---- */

template <int width> static __device__ __forceinline__ void maximum_spread(const pool_args &a)
{
    const pool_shape &s = a.shape;
    places_each<width>(s, s.wide, [&](const pool_place &p) {
        const position i = position_of(p.at, s.axis[1].in, s.axis[2].in);
        float sum[width] = {};
        outputs_each(s, i, [&](position o) {
            const int at = (o.d * s.axis[1].out + o.h) * s.axis[2].out + o.w, own = tap_of(s, o, i);
            const long long from = element_of<width>(s, p, s.narrow, at);
            float v[width];
            long long tap[width];
            load_channels(a.taps + from, p.n, tap);
            with_stored(0.0f, a.dtype, [&](auto type) {
                load_channels(static_cast<const typename decltype(type)::type *>(a.from) + from, p.n, v);
            });
#pragma unroll
            for (int k = 0; k < width; k++)
                if (tap[k] == own) sum[k] += v[k];
        });
        store_channels(a.to, a.dtype, element_of<width>(s, p, s.wide, p.at), p.n, sum);
    });
}
POOL_KERNEL(max_pool_spread, maximum_spread<1>)
POOL_KERNEL(max_pool_spread_last, maximum_spread<TILE>)
