/* resample.cu - resizing along up to three axes at a time, one result per thread, with tables that a first launch
 * fills. The gradient is resizing with transposed tables. */
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/resample.h"

/* ---- tables ---- */

static __device__ __forceinline__ void fill_entry(const resample_axis &axis, const resample_taps &t, long long o)
{
    const resample_range r = resample_range_of(&axis, o);
    const double divisor = resample_divisor(&axis, &r);
    t.starts[o] = (int)r.start;
    t.counts[o] = r.clear ? 0 : r.count;
    for (int k = 0; k < r.count; k++) t.weights[o * t.taps + k] = (float)resample_weight(&axis, &r, divisor, k);
}

static __device__ __forceinline__ void fill_users(const resample_axis &axis, const resample_taps &forward,
                                                  const resample_taps &t, long long i)
{
    int count;
    const long long first = resample_users(&axis, forward.starts, i, &count);
    t.starts[i] = (int)first;
    t.counts[i] = count;
    for (int k = 0; k < count; k++) {
        const long long o = first + k, tap = i - forward.starts[o];
        t.weights[i * t.taps + k] = tap < forward.counts[o] ? forward.weights[o * forward.taps + tap] : 0;
    }
}

/* Calls f(axis, entry) for all entries of all axes. */
template <typename F>
static __device__ __forceinline__ void entries_each(const resample_tables &t, const resample_taps *tables, F f)
{
    long long at = grid_first();
    for (int axis = 0; axis < t.n; axis++) {
        for (; at < tables[axis].out; at += grid_step()) f(axis, at);
        at -= tables[axis].out;
    }
}

extern "C" __global__ void __launch_bounds__(RESAMPLE_BLOCK) resample_fill(resample_tables t)
{
    entries_each(t, t.forward, [&](int axis, long long o) { fill_entry(t.axes[axis], t.forward[axis], o); });
}
AMPC_KERNEL(resample_fill)

extern "C" __global__ void __launch_bounds__(RESAMPLE_BLOCK) resample_transpose(resample_tables t)
{
    entries_each(t, t.users,
                 [&](int axis, long long i) { fill_users(t.axes[axis], t.forward[axis], t.users[axis], i); });
}
AMPC_KERNEL(resample_transpose)

/* ---- results ---- */

/* The taps of one result along one axis. */
struct tap_list {
    const float *weights; /* NULL: one tap */
    long long offset;     /* of the first tap in x */
    int count;
};

/* Splits off the coordinates along axis d, with this stride, and along the copied axes after it, whose offset is added
 * to *base. */
static __device__ __forceinline__ tap_list taps_at(const resample_dim &d, long long inner_stride, long long stride,
                                                   long long *index, long long *base)
{
    long long inner, o;
    *index = divide(*index, d.inner, &inner);
    *index = divide(*index, d.taps.out, &o);
    *base += inner * inner_stride;
    if (!d.taps.starts) return {nullptr, o * stride, 1};
    return {d.taps.weights + o * d.taps.taps, d.taps.starts[o] * stride, d.taps.counts[o]};
}

struct tap_lists {
    tap_list t[RESAMPLE_GROUP];
    long long stride[RESAMPLE_GROUP];
    long long base;
    bool clear;
};

static __device__ __forceinline__ tap_lists lists_of(const resample_pass &a, long long index)
{
    tap_lists l;
    long long stride = 1;
    l.base = 0;
    l.clear = false;
#pragma unroll
    for (int i = RESAMPLE_GROUP - 1; i >= 0; i--) {
        const long long inner_stride = stride;
        stride *= a.dims[i].inner;
        l.t[i] = taps_at(a.dims[i], inner_stride, stride, &index, &l.base);
        l.clear |= l.t[i].count == 0;
        l.stride[i] = stride;
        stride *= a.dims[i].in;
    }
    l.base += index * stride;
    return l;
}

static __device__ __forceinline__ float weight_of(const tap_list &t, int k) { return t.weights ? t.weights[k] : 1; }

template <typename T> static __device__ __forceinline__ float weighted_sum(const T *x, const tap_lists &l)
{
    float all = 0;
    for (int i = 0; i < l.t[0].count; i++) {
        const long long slice = l.base + l.t[0].offset + i * l.stride[0];
        float rows = 0;
        for (int j = 0; j < l.t[1].count; j++) {
            const long long row = slice + l.t[1].offset + j * l.stride[1] + l.t[2].offset;
            float sum = 0;
            for (int k = 0; k < l.t[2].count; k++) {
                float v;
                to_carrier(&v, x[row + k * l.stride[2]]);
                sum += weight_of(l.t[2], k) * v;
            }
            rows += weight_of(l.t[1], j) * sum;
        }
        all += weight_of(l.t[0], i) * rows;
    }
    return all;
}

extern "C" __global__ void __launch_bounds__(RESAMPLE_BLOCK) resample_float(resample_pass a)
{
    for (long long index = grid_first(); index < a.count; index += grid_step()) {
        const tap_lists l = lists_of(a, index);
        float v = a.outside;
        if (!l.clear)
            with_stored(0.0f, a.x_dtype, [&](auto type) {
                v = weighted_sum(static_cast<const typename decltype(type)::type *>(a.x), l);
            });
        element_store(a.y, a.y_dtype, index, v);
    }
}
AMPC_KERNEL(resample_float)

/* Each result is one element. */
extern "C" __global__ void __launch_bounds__(RESAMPLE_BLOCK) resample_integer(resample_pass a)
{
    for (long long index = grid_first(); index < a.count; index += grid_step()) {
        const tap_lists l = lists_of(a, index);
        const long long at = l.base + l.t[0].offset + l.t[1].offset + l.t[2].offset;
        const long long v = l.clear ? a.outside_integer : element_load<long long>(a.x, a.x_dtype, at);
        element_store(a.y, a.y_dtype, index, v);
    }
}
AMPC_KERNEL(resample_integer)
