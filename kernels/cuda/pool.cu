/* pool.cu - maximum and average pooling over 1 to 3 spatial axes, and their gradients.
 *
 * A thread has an element of the result: of y it visits the window's taps, of dx all windows that hold it, in their
 * order. The gradient of the maximum knows positions, not windows: a block holds sums of planes in shared memory and
 * takes the gradients in order, as many at a time as it has threads; where several go to one position (or share its
 * slot), the first writes and the others wait for the next round. A window that is a whole plane is a row. */
#include "kernels/cuda/pool.h"
#include "kernels/cuda/rows.cuh"

/* f(plane, element) for each element of planes of `size`, divided once for each thread; the grid is small. */
template <typename F> static __device__ __forceinline__ void elements_each(long long planes, int size, F f)
{
    const unsigned step = (unsigned)grid_step(), more = step / size, rest = step % size;
    unsigned at = (unsigned)grid_first() % size;
    long long plane = (unsigned)grid_first() / size;
    while (plane < planes) {
        f(plane, (int)at);
        plane += more;
        at += rest;
        if (at < (unsigned)size) continue;
        at -= (unsigned)size;
        plane++;
    }
}

/* Element `at` of a plane by axis: on the narrow side, or on the wide one. */
struct position {
    int d, h, w;
};

static __device__ __forceinline__ position position_of(int at, int rows, int columns)
{
    const int slice = at / columns;
    return {slice / rows, slice % rows, at % columns};
}

static __device__ __forceinline__ int ceil_div(int a, int b) { return a > 0 ? (a - 1) / b + 1 : -(-a / b); }

/* Taps [low, high) of output o that are inside the input. */
struct tap_range {
    int low, high, start; /* start: position of tap 0 */
};

static __device__ __forceinline__ int taps_before(const pool_span &a, int start, int limit) /* first tap at or after */
{
    const int tap = ceil_div(limit - start, a.dilation);
    return tap < 0 ? 0 : tap < a.kernel ? tap : a.kernel;
}

static __device__ __forceinline__ tap_range taps_of(const pool_span &a, int o)
{
    const int start = o * a.stride - a.before;
    return {taps_before(a, start, 0), taps_before(a, start, a.in), start};
}

/* Taps of output o that count: those inside the input, or inside the padded input. */
static __device__ __forceinline__ int tap_count(const pool_span &a, int o, int padded)
{
    const int start = o * a.stride - a.before;
    return taps_before(a, start, a.in + (padded ? a.after : 0)) - taps_before(a, start, padded ? -a.before : 0);
}

/* f(position in the plane) for each tap of the output, in row-major order. */
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

/* ---- maximum: the first of equal ones wins, NaN is a maximum ---- */

static __device__ __forceinline__ float lowest(float) { return -INFINITY; }
static __device__ __forceinline__ long long lowest(long long) { return LLONG_MIN; }

static __device__ __forceinline__ bool is_nan(float v) { return v != v; }
static __device__ __forceinline__ bool is_nan(long long) { return false; }

static __device__ __forceinline__ long long index_of(const pool_shape &s, long long plane, int at, int column_major)
{
    if (at < 0) return -1;
    if (!column_major) return plane * s.wide + at;
    const position p = position_of(at, s.axis[1].in, s.axis[2].in);
    return plane * s.wide + ((long long)p.w * s.axis[1].in + p.h) * s.axis[0].in + p.d;
}

template <typename C> static __device__ __forceinline__ void max_windows(const pool_args &a)
{
    const pool_shape &s = a.shape;
    elements_each(s.planes, s.narrow, [&](long long plane, int o) {
        C best = lowest(C());
        int found = -1;
        with_stored(C(), a.dtype, [&](auto type) {
            const auto *from = static_cast<const typename decltype(type)::type *>(a.from) + plane * s.wide;
            taps_each(s, position_of(o, s.axis[1].out, s.axis[2].out), [&](int at) {
                C v;
                to_carrier(&v, from[at]);
                if (!(v > best || is_nan(v) || found < 0)) return;
                best = v;
                found = at;
            });
        });
        element_store(a.to, a.dtype, plane * s.narrow + o, best);
        if (a.indices) a.indices[plane * s.narrow + o] = index_of(s, plane, found, a.column_major);
    });
}

extern "C" __global__ void __launch_bounds__(POOL_BLOCK) max_pool_float(pool_args a) { max_windows<float>(a); }
AMPC_KERNEL(max_pool_float)
extern "C" __global__ void __launch_bounds__(POOL_BLOCK) max_pool_integer(pool_args a) { max_windows<long long>(a); }
AMPC_KERNEL(max_pool_integer)

/* One gradient for each thread into the sums, in the order of the threads; target -1: none. All threads call it. */
static __device__ __forceinline__ void add_in_order(float *sums, int *next, int target, float value)
{
    bool waits = target >= 0;
    do {
        if (waits) atomicMin(&next[target % POOL_SLOTS], (int)threadIdx.x);
        __syncthreads();
        const bool mine = waits && next[target % POOL_SLOTS] == (int)threadIdx.x;
        __syncthreads();
        if (mine) {
            sums[target] += value;
            next[target % POOL_SLOTS] = INT_MAX;
            waits = false;
        }
    } while (__syncthreads_or(waits));
}

extern "C" __global__ void __launch_bounds__(POOL_BLOCK) max_pool_scatter(pool_scatter a)
{
    __shared__ float sums[POOL_SEGMENT];
    __shared__ int next[POOL_SLOTS];
    const long long ranges = (a.planes + a.block_planes - 1) / a.block_planes;
    for (int i = threadIdx.x; i < POOL_SLOTS; i += POOL_BLOCK) next[i] = INT_MAX;
    for (long long work = blockIdx.x; work < ranges * a.segments; work += gridDim.x) {
        const long long first = work / a.segments * a.block_planes;
        const long long planes = a.planes - first < a.block_planes ? a.planes - first : a.block_planes;
        const long long low = first * a.wide + work % a.segments * POOL_SEGMENT, end = (first + planes) * a.wide;
        const long long high = end - low < POOL_SEGMENT ? end : low + POOL_SEGMENT;
        for (int i = threadIdx.x; i < high - low; i += POOL_BLOCK) sums[i] = 0;
        __syncthreads();
        for (long long base = first * a.narrow; base < (first + planes) * a.narrow; base += POOL_BLOCK) {
            const long long i = base + threadIdx.x;
            int target = -1;
            float value = 0;
            if (i < (first + planes) * a.narrow) {
                const long long index = a.indices[i], plane = i / a.narrow;
                const bool in_plane = index >= plane * a.wide && index < (plane + 1) * a.wide;
                if (in_plane && index >= low && index < high) {
                    target = (int)(index - low);
                    value = element_load<float>(a.dy, a.dtype, i);
                }
            }
            add_in_order(sums, next, target, value);
        }
        /* a thread stores what it has set to 0, and may do so again at once */
        for (long long i = low + threadIdx.x; i < high; i += POOL_BLOCK)
            element_store(a.dx, a.dtype, i, sums[i - low]);
    }
}
AMPC_KERNEL(max_pool_scatter)

/* ---- average ---- */

extern "C" __global__ void __launch_bounds__(POOL_BLOCK) avg_pool_windows(pool_args a)
{
    const pool_shape &s = a.shape;
    elements_each(s.planes, s.narrow, [&](long long plane, int i) {
        const position o = position_of(i, s.axis[1].out, s.axis[2].out);
        float sum = 0;
        with_stored(sum, a.dtype, [&](auto type) {
            const auto *from = static_cast<const typename decltype(type)::type *>(a.from) + plane * s.wide;
            taps_each(s, o, [&](int at) {
                float v;
                to_carrier(&v, from[at]);
                sum += v;
            });
        });
        element_store(a.to, a.dtype, plane * s.narrow + i, sum / window_count(s, o, a.padded));
    });
}
AMPC_KERNEL(avg_pool_windows)

/* Outputs [low, high] whose windows may hold position i of an axis. */
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

/* Shares of all windows that hold position i. */
static __device__ __forceinline__ float shares(const pool_args &a, long long base, position i)
{
    const pool_shape &s = a.shape;
    const output_range d = outputs_of(s.axis[0], i.d), h = outputs_of(s.axis[1], i.h), w = outputs_of(s.axis[2], i.w);
    float sum = 0;
    position o;
    for (o.d = d.low; o.d <= d.high; o.d++)
        for (o.h = h.low; o.h <= h.high; o.h++)
            for (o.w = w.low; o.w <= w.high; o.w++) {
                if (!holds(s.axis[0], o.d, i.d) || !holds(s.axis[1], o.h, i.h) || !holds(s.axis[2], o.w, i.w)) continue;
                const long long at = base + ((long long)o.d * s.axis[1].out + o.h) * s.axis[2].out + o.w;
                sum += element_load<float>(a.from, a.dtype, at) / window_count(s, o, a.padded);
            }
    return sum;
}

extern "C" __global__ void __launch_bounds__(POOL_BLOCK) avg_pool_spread(pool_args a)
{
    const pool_shape &s = a.shape;
    elements_each(s.planes, s.wide, [&](long long plane, int i) {
        const position p = position_of(i, s.axis[1].in, s.axis[2].in);
        element_store(a.to, a.dtype, plane * s.wide + i, shares(a, plane * s.narrow, p));
    });
}
AMPC_KERNEL(avg_pool_spread)

/* ---- windows that are whole planes ---- */

template <typename G> static __device__ __forceinline__ void average_rows(const pool_args &a, const G &g)
{
    const cuda_rows rows = {a.shape.planes, a.shape.wide, 1};
    rows_each<G>(rows, [&](const row_part &p) {
        float v[TILE], sum = 0;
        tiles_each(p, [&](long long i, int n) {
            part_load<G>(a.from, a.dtype, p, i, n, v);
#pragma unroll
            for (int j = 0; j < TILE; j++) sum += v[j]; /* 0 behind the row */
        });
        sum = g.sum(sum) / (float)p.length;
        if (p.leads) element_store(a.to, a.dtype, p.item, sum);
    });
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) avg_pool_warp(pool_args a) { average_rows(a, by_warp()); }
AMPC_KERNEL(avg_pool_warp)

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) avg_pool_block(pool_args a)
{
    __shared__ float slots[WARP];
    average_rows(a, by_block{slots});
}
AMPC_KERNEL(avg_pool_block)
