/* select.cu - arg_max and top_k along one axis.
 *
 * The elements of a row are found one after the other: each pass over the row finds the first element, in the order of
 * the op, of those after the one found before. A row is processed by one thread if its elements are not adjacent, which
 * makes the accesses of adjacent rows coalesce, and by a warp or a block otherwise. */
#include "kernels/cuda/select.h"
#include "kernels/cuda/tile.cuh"

template <typename C> struct candidate {
    C value;
    long long at; /* position in the row; -1: none */
};

/* Whether a comes before b in the order. Without branches, whose nesting would need local memory. */
template <typename C>
__device__ __forceinline__ bool precedes(const select_rows &r, const candidate<C> &a, const candidate<C> &b)
{
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value, tie = (a.value == b.value) | (a_nan & b_nan);
    const bool earlier = (r.last ? b.at : a.at) < (r.last ? a.at : b.at);
    const bool beyond = a_nan != b_nan ? a_nan == (r.nan_first != 0) : (a.value > b.value) == (r.largest != 0);
    return (tie & earlier) | (!tie & beyond);
}

template <typename C>
__device__ __forceinline__ candidate<C> first_of(const select_rows &r, const candidate<C> &a, const candidate<C> &b)
{
    const bool first = (b.at < 0) | ((a.at >= 0) & precedes(r, a, b));
    return {first ? a.value : b.value, first ? a.at : b.at};
}

/* The first candidate of the threads of a warp that share a row. */
template <typename C> __device__ __forceinline__ candidate<C> join_lanes(const select_rows &r, candidate<C> best)
{
    const int lanes = r.lanes < WARP ? r.lanes : WARP;
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        const candidate<C> other = {__shfl_xor_sync(WHOLE_WARP, best.value, distance),
                                    __shfl_xor_sync(WHOLE_WARP, best.at, distance)};
        best = first_of(r, best, other);
    }
    return best;
}

template <typename C>
__device__ __forceinline__ candidate<C> join_block(const select_rows &r, candidate<C> best, candidate<C> *slots)
{
    best = join_lanes(r, best);
    if (r.lanes <= WARP) return best;
    if (threadIdx.x % WARP == 0) slots[threadIdx.x / WARP] = best;
    __syncthreads();
    best = slots[0];
    for (int w = 1; w < ROW_WARPS; w++) best = first_of(r, best, slots[w]);
    __syncthreads();
    return best;
}

/* The first element of this thread's part of the row that comes after `before`. */
template <typename C>
__device__ __forceinline__ candidate<C> scan_row(const select_rows &r, long long base, const candidate<C> &before)
{
    candidate<C> best = {C(0), -1};
    for (long long i = threadIdx.x % r.lanes; i < r.rows.length; i += r.lanes) {
        const candidate<C> c = {element_load<C>(r.x, r.x_dtype, base + i * r.rows.inner), i};
        if (before.at < 0 || precedes(r, before, c)) best = first_of(r, best, c);
    }
    return best;
}

template <typename C>
__device__ __forceinline__ void put(const select_rows &r, long long at, const candidate<C> &c)
{
    if (r.values) element_store(r.values, r.x_dtype, at, c.value);
    if (r.indices) element_store(r.indices, r.index_dtype, at, c.at);
}

template <typename C> __device__ __forceinline__ void select_each(const select_rows &r, candidate<C> *slots)
{
    const long long each = ROW_BLOCK / r.lanes, count = r.rows.outer * r.rows.inner;
    for (long long first = blockIdx.x * each; first < count; first += gridDim.x * each) {
        const long long row = first + threadIdx.x / r.lanes;
        const bool exists = row < count;
        const long long outer = exists ? row / r.rows.inner : 0, inner = exists ? row % r.rows.inner : 0;
        candidate<C> found = {C(0), -1};
        for (long long k = 0; k < r.count; k++) {
            found = join_block(r, scan_row(r, outer * r.rows.length * r.rows.inner + inner, found), slots);
            if (exists && threadIdx.x % r.lanes == 0) put(r, (outer * r.count + k) * r.rows.inner + inner, found);
        }
    }
}

#define KERNEL(carrier, C)                                                                                            \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) select_##carrier(select_rows r)                           \
    {                                                                                                                 \
        __shared__ candidate<C> slots[ROW_WARPS];                                                                     \
        select_each(r, slots);                                                                                        \
    }                                                                                                                 \
    AMPC_KERNEL(select_##carrier)
KERNEL(float, float)
KERNEL(int64_t, long long)
KERNEL(uint64_t, unsigned long long)
