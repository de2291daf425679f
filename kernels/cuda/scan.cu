/* scan.cu - sums of the elements before each element of a row.
 *
 * A row of adjacent elements is processed by a warp, 32 elements at a time; otherwise each thread has a row, so that
 * the accesses of adjacent rows coalesce. What precedes the 32 elements is summed in f64 for floats. */
#include "kernels/cuda/scan.h"
#include "kernels/cuda/tile.cuh"

template <typename C> struct carried {
    using type = double;
};
template <> struct carried<long long> {
    using type = unsigned long long;
};

/* Returns the sum of v over this lane and the lanes below; the sum is over `lanes` lanes, 1 or 32. */
template <typename S> __device__ __forceinline__ S sum_below(S v, int lanes)
{
    const int lane = threadIdx.x % WARP;
    for (int distance = 1; distance < lanes; distance *= 2) {
        const S other = __shfl_up_sync(WHOLE_WARP, v, distance);
        if (lane >= distance) v += other;
    }
    return v;
}

/* The sum of the lane below; not a difference, because an element may be infinite. */
template <typename S> __device__ __forceinline__ S sum_before(S sum, int lanes)
{
    if (lanes == 1) return 0;
    const S below = __shfl_up_sync(WHOLE_WARP, sum, 1);
    return threadIdx.x % WARP ? below : (S)0;
}

template <typename C> __device__ __forceinline__ void scan_each(const scan_rows &r)
{
    using S = typename carried<C>::type;
    const long long each = ROW_BLOCK / r.lanes, count = r.rows.outer * r.rows.inner, length = r.rows.length;
    const int lane = threadIdx.x % r.lanes;
    for (long long first = blockIdx.x * each; first < count; first += gridDim.x * each) {
        const long long row = first + threadIdx.x / r.lanes;
        const bool exists = row < count;
        const long long base = exists ? row / r.rows.inner * length * r.rows.inner + row % r.rows.inner : 0;
        S before = 0;
        for (long long start = 0; start < length; start += r.lanes) {
            const bool inside = exists && start + lane < length;
            const long long i = r.reverse ? length - 1 - start - lane : start + lane;
            const long long at = inside ? base + i * r.rows.inner : 0;
            const S v = inside ? (S)element_load<C>(r.x, r.x_dtype, at) : (S)0;
            const S sum = sum_below(v, r.lanes);
            const S below = sum_before(sum, r.lanes);
            if (inside) element_store<C>(r.y, r.y_dtype, at, (C)(before + (r.exclusive ? below : sum)));
            before += r.lanes == 1 ? sum : __shfl_sync(WHOLE_WARP, sum, WARP - 1);
        }
    }
}

#define KERNEL(carrier, C)                                                                                            \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) scan_##carrier(scan_rows r) { scan_each<C>(r); }          \
    AMPC_KERNEL(scan_##carrier)
KERNEL(float, float)
KERNEL(int64_t, long long)
