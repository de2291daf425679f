/* grid_sample.cu - samples of images at the positions of a grid, and their gradients.
 *
 * Each thread computes one result, or one point of the gradient of the grid. For the gradient of x, a block adds the
 * shares of all points to a segment of an image channel in shared memory, in order. */
#include "ir/ops/real.h"
#include "kernels/cuda/grid_sample.h"
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/ordered.cuh"

#define REAL float
#include "kernels/grid_body.h"

/* The places of a point on the three axes. */
struct point {
    grid_place_float z, y, x;
};

static __device__ __forceinline__ point point_of(const grid_args &a, long long index)
{
    const grid_shape &s = a.shape;
    const long long at = index * s.axes;
    point p = {{0, 0}, {0, 0}, {0, 0}};
    p.x = grid_place_of_float(&s.rule, s.size[2], element_load<float>(a.grid, a.grid_dtype, at));
    if (s.axes > 1) p.y = grid_place_of_float(&s.rule, s.size[1], element_load<float>(a.grid, a.grid_dtype, at + 1));
    if (s.axes > 2) p.z = grid_place_of_float(&s.rule, s.size[0], element_load<float>(a.grid, a.grid_dtype, at + 2));
    return p;
}

/* A tap along one axis, or the only one of an axis that x does not have. */
struct axis_tap {
    long long at;
    float weight, slope;
};

static __device__ __forceinline__ axis_tap tap_of(const grid_shape &s, int axis, const grid_place_float &p, int k)
{
    axis_tap t = {0, 1, 0};
    if (axis >= GRID_AXES - s.axes) t.at = grid_tap_float(&s.rule, s.size[axis], p, k, &t.weight, &t.slope);
    return t;
}

/* Calls f(element of the image, z, y, x) for each tap of a point inside the image. */
template <typename F> static __device__ __forceinline__ void taps_each(const grid_shape &s, const point &p, F f)
{
#pragma unroll 1
    for (int i = 0; i < s.taps[0]; i++) {
        const axis_tap z = tap_of(s, 0, p.z, i);
#pragma unroll 1
        for (int j = 0; j < s.taps[1] && z.at >= 0; j++) {
            const axis_tap y = tap_of(s, 1, p.y, j);
#pragma unroll 1
            for (int k = 0; k < s.taps[2] && y.at >= 0; k++) {
                const axis_tap x = tap_of(s, 2, p.x, k);
                if (x.at >= 0) f((z.at * s.size[1] + y.at) * s.size[2] + x.at, z, y, x);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(GRID_BLOCK) grid_sample(grid_args a)
{
    const grid_shape &s = a.shape;
    for (long long i = grid_first(); i < s.images * s.channels * s.points; i += grid_step()) {
        long long at, channel;
        const long long plane = divide(i, s.points, &at), image = divide(plane, s.channels, &channel);
        const point p = point_of(a, image * s.points + at);
        float sum = 0;
        with_stored(0.0f, a.dtype, [&](auto type) {
            const auto *x = static_cast<const typename decltype(type)::type *>(a.x) + plane * s.plane;
            taps_each(s, p, [&](long long element, const axis_tap &z, const axis_tap &y, const axis_tap &w) {
                float v;
                to_carrier(&v, x[element]);
                sum += z.weight * y.weight * w.weight * v;
            });
        });
        element_store(a.to, a.dtype, i, sum);
    }
}
AMPC_KERNEL(grid_sample)

/* The sum over the channels of dy at a point times x at an element. */
static __device__ __forceinline__ float channel_sum(const grid_args &a, long long image, long long at,
                                                   long long element)
{
    const grid_shape &s = a.shape;
    float sum = 0;
#pragma unroll 1
    for (long long plane = image * s.channels; plane < (image + 1) * s.channels; plane++)
        sum += element_load<float>(a.dy, a.dtype, plane * s.points + at) *
               element_load<float>(a.x, a.dtype, plane * s.plane + element);
    return sum;
}

extern "C" __global__ void __launch_bounds__(GRID_BLOCK) grid_sample_slopes(grid_args a)
{
    const grid_shape &s = a.shape;
    for (long long i = grid_first(); i < s.images * s.points; i += grid_step()) {
        long long at;
        const long long image = divide(i, s.points, &at);
        const point p = point_of(a, i);
        float dx = 0, dy = 0, dz = 0;
        taps_each(s, p, [&](long long element, const axis_tap &z, const axis_tap &y, const axis_tap &x) {
            const float v = channel_sum(a, image, at, element);
            dx += z.weight * y.weight * x.slope * v;
            dy += z.weight * y.slope * x.weight * v;
            dz += z.slope * y.weight * x.weight * v;
        });
        element_store(a.to, a.grid_dtype, i * s.axes, dx);
        if (s.axes > 1) element_store(a.to, a.grid_dtype, i * s.axes + 1, dy);
        if (s.axes > 2) element_store(a.to, a.grid_dtype, i * s.axes + 2, dz);
    }
}
AMPC_KERNEL(grid_sample_slopes)

/* Adds tap k of a point, if it is in the segment; all threads must call it. */
static __device__ __forceinline__ void add_tap(const grid_args &a, const point &p, float share, bool valid, int k,
                                               long long low, int span, float *sums, int *next)
{
    const grid_shape &s = a.shape;
    const int yx = s.taps[1] * s.taps[2];
    const axis_tap z = tap_of(s, 0, p.z, k / yx), y = tap_of(s, 1, p.y, k % yx / s.taps[2]),
                   x = tap_of(s, 2, p.x, k % s.taps[2]);
    const bool inside = valid && z.at >= 0 && y.at >= 0 && x.at >= 0;
    const long long element = (z.at * s.size[1] + y.at) * s.size[2] + x.at - low;
    const int target = inside && element >= 0 && element < span ? (int)element : -1;
    add_in_order<GRID_SLOTS>(sums, next, target, z.weight * y.weight * x.weight * share);
}

extern "C" __global__ void __launch_bounds__(GRID_BLOCK) grid_sample_spread(grid_args a)
{
    __shared__ float sums[GRID_SEGMENT];
    __shared__ int next[GRID_SLOTS];
    const grid_shape &s = a.shape;
    const long long segments = (s.plane + a.span - 1) / a.span;
    for (int i = threadIdx.x; i < GRID_SLOTS; i += GRID_BLOCK) next[i] = INT_MAX;
    for (long long work = blockIdx.x; work < s.images * s.channels * segments; work += gridDim.x) {
        const long long plane = work / segments, image = plane / s.channels, low = work % segments * a.span;
        const int span = s.plane - low < a.span ? (int)(s.plane - low) : a.span;
        for (int i = threadIdx.x; i < span; i += GRID_BLOCK) sums[i] = 0;
        for (long long first = 0; first < s.points; first += GRID_BLOCK) {
            const bool valid = first + threadIdx.x < s.points;
            const long long at = valid ? first + threadIdx.x : 0;
            const point p = point_of(a, image * s.points + at);
            const float share = element_load<float>(a.dy, a.dtype, plane * s.points + at);
            for (int k = 0; k < s.taps[0] * s.taps[1] * s.taps[2]; k++)
                add_tap(a, p, share, valid, k, low, span, sums, next);
        }
        /* a thread stores the elements that it sets to 0 for the next segment, and add_in_order has barriers */
        for (int i = threadIdx.x; i < span; i += GRID_BLOCK)
            element_store(a.to, a.dtype, plane * s.plane + low + i, sums[i]);
    }
}
AMPC_KERNEL(grid_sample_spread)
