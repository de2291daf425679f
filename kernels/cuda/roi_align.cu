/* roi_align.cu - averages and maxima of samples in regions of images, one result per thread, and the gradient: a block
 * adds the shares of all cells to a segment of an image channel in shared memory, in order. */
#include "ir/ops/real.h"
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/ordered.cuh"
#include "kernels/cuda/roi_align.h"

#define REAL float
#include "kernels/roi_body.h"

static __device__ __forceinline__ roi_float region_of(const roi_args &a, long long region)
{
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = element_load<float>(a.rois, a.dtype, 4 * region + i);
    return roi_of_float(&a.shape, v[0], v[1], v[2], v[3]);
}

/* The image of a region; -1 after recording that there is none. */
static __device__ __forceinline__ long long image_of(const roi_args &a, long long region)
{
    const long long image = element_load<long long>(a.batch, a.batch_dtype, region);
    if (image >= 0 && image < a.shape.images) return image;
    fault_set(a.fault, a.step, K_FAULT_INDEX);
    return -1;
}

/* The value of a cell; for maxima, NaN before numbers, also the element that it is from (-1: none, or outside) and its
 * weight. */
struct cell_value {
    float value, weight;
    long long from;
};

static __device__ __forceinline__ cell_value value_of(const roi_args &a, const roi_float &r, const roi_cell_float &c,
                                                      long long plane)
{
    const long long samples = (long long)r.rows * r.columns, base = plane * a.shape.height * a.shape.width;
    cell_value v = {0, 0, -1};
    bool is_first = !roi_has_others_float(&r, &c);
    for (long long k = 0; k < 4 * (long long)c.rows * c.columns; k++) {
        float weight;
        const long long at = roi_corner_float(&a.shape, &r, &c, k / 4, (int)(k % 4), &weight);
        const float product = at < 0 ? 0 : weight * element_load<float>(a.x, a.dtype, base + at);
        if (!a.shape.max) v.value += product;
        else if (is_first || product > v.value || product != product) v = {product, weight, at};
        is_first = false;
    }
    if (!a.shape.max && samples > 0) v.value /= (float)samples;
    return v;
}

extern "C" __global__ void __launch_bounds__(ROI_BLOCK) roi_align(roi_args a)
{
    const roi_shape &s = a.shape;
    for (long long i = grid_first(); i < s.regions * s.channels * s.rows * s.columns; i += grid_step()) {
        long long column, row, channel;
        const long long line = divide(i, s.columns, &column), plane = divide(line, s.rows, &row);
        const long long region = divide(plane, s.channels, &channel), image = image_of(a, region);
        float v = 0;
        if (image >= 0) {
            const roi_float r = region_of(a, region);
            const roi_cell_float c = roi_cell_of_float(&s, &r, row, column);
            v = value_of(a, r, c, image * s.channels + channel).value;
        }
        element_store(a.to, a.dtype, i, v);
    }
}
AMPC_KERNEL(roi_align)

/* A cell of the thread: what it adds, in turns, to the image. */
struct share {
    roi_float region;
    roi_cell_float cell;
    cell_value largest;
    long long turns;
    float dy;
};

static __device__ __forceinline__ share share_of(const roi_args &a, long long cell, long long plane)
{
    const roi_shape &s = a.shape;
    long long rest, column, channel;
    const long long region = divide(cell, s.rows * s.columns, &rest), row = divide(rest, s.columns, &column);
    const long long image = divide(plane, s.channels, &channel);
    share h = {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, -1}, 0, 0};
    if (region >= s.regions || image_of(a, region) != image) return h;
    h.region = region_of(a, region);
    h.cell = roi_cell_of_float(&s, &h.region, row, column);
    h.dy = element_load<float>(a.dy, a.dtype, (region * s.channels + channel) * s.rows * s.columns + rest);
    const long long samples = (long long)h.region.rows * h.region.columns;
    if (s.max) {
        h.largest = value_of(a, h.region, h.cell, plane);
        h.turns = h.largest.from >= 0;
    } else {
        h.turns = 4 * (long long)h.cell.rows * h.cell.columns;
        h.dy /= (float)samples;
    }
    return h;
}

extern "C" __global__ void __launch_bounds__(ROI_BLOCK) roi_align_spread(roi_args a)
{
    __shared__ float sums[ROI_SEGMENT];
    __shared__ int next[ROI_SLOTS];
    const roi_shape &s = a.shape;
    const long long area = s.height * s.width, segments = (area + a.span - 1) / a.span;
    for (int i = threadIdx.x; i < ROI_SLOTS; i += ROI_BLOCK) next[i] = INT_MAX;
    for (long long work = blockIdx.x; work < s.images * s.channels * segments; work += gridDim.x) {
        const long long plane = work / segments, low = work % segments * a.span;
        const int span = area - low < a.span ? (int)(area - low) : a.span;
        for (int i = threadIdx.x; i < span; i += ROI_BLOCK) sums[i] = 0;
        for (long long cell = 0; cell < s.regions * s.rows * s.columns; cell += ROI_BLOCK) {
            const share h = share_of(a, cell + threadIdx.x, plane);
            for (long long turn = 0; __syncthreads_or(turn < h.turns); turn++) {
                float weight = h.largest.weight;
                long long at = h.largest.from;
                if (!s.max && turn < h.turns)
                    at = roi_corner_float(&s, &h.region, &h.cell, turn / 4, (int)(turn % 4), &weight);
                const bool inside = turn < h.turns && at >= low && at - low < span;
                add_in_order<ROI_SLOTS>(sums, next, inside ? (int)(at - low) : -1, weight * h.dy);
            }
        }
        /* a thread stores the elements that it sets to 0 for the next segment, and add_in_order has barriers */
        for (int i = threadIdx.x; i < span; i += ROI_BLOCK)
            element_store(a.to, a.dtype, plane * area + low + i, sums[i]);
    }
}
AMPC_KERNEL(roi_align_spread)
