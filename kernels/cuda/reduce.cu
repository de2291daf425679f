/* reduce.cu - sums, means and the global norm, in f32, in an order that depends only on shapes.
 *
 * Rows (the innermost run is reduced): adjacent threads, or a whole block for long rows, share an output and read tiles
 * aligned to multiples of TILE in memory, wherever the row starts. Columns (the innermost run is kept): a thread sums a
 * tile of columns over every n-th row, and threads with the same columns combine their sums in shared memory. If there
 * are few outputs, the terms are cut into groups, whose sums are then reduced as rows. */
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/reduce.h"

/* The accumulator type of each carrier; integers wrap. */
template <typename C> struct summed { using type = C; };
template <> struct summed<long long> { using type = unsigned long long; };

__device__ __forceinline__ long long position(const reduce_positions &p, long long index)
{
    long long inner;
    return p.rank ? walk_offset(p.rank, p.dims, p.strides, index, &inner) : 0;
}

/* ---- rows ---- */

/* Returns the sum of thread `lane` of `lanes` for part `group` of the output whose run starts at `base`. */
template <typename C> __device__ __forceinline__ typename summed<C>::type row_sum(const reduce_shape &r, long long base,
                                                                                  long long group, int lane, int lanes)
{
    const long long tiles = row_tiles(r.length), all = tiles * r.reduced.count;
    typename summed<C>::type sum = 0;
    for (long long t = all * group / r.groups + lane; t < all * (group + 1) / r.groups; t += lanes) {
        long long tile = t;
        const long long row = r.reduced.count == 1 ? 0 : divide(t, tiles, &tile);
        const row_span span = row_span_of(base + position(r.reduced, row), r.length, tile);
        if (span.n <= 0) continue;
        C v[TILE];
        tile_load(r.x, r.x_dtype, span.first, span.n, v);
        sum += tile_sum<typename summed<C>::type>(v);
    }
    return sum;
}

template <typename C>
__device__ __forceinline__ void put_sum(const reduce_shape &r, long long unit, typename summed<C>::type sum)
{
    element_store<C>(r.y, r.y_dtype, unit, r.mean ? mean_of((C)sum, r.terms) : (C)sum);
}

/* Reduces with `lanes` threads of a warp per output. */
template <typename C> __device__ __forceinline__ void rows_by_lanes(const reduce_shape &r)
{
    const int lane = threadIdx.x % r.lanes;
    const long long each = REDUCE_BLOCK / r.lanes, units = r.kept.count * r.groups;
    for (long long first = blockIdx.x * each; first < units; first += gridDim.x * each) {
        const long long unit = first + threadIdx.x / r.lanes;
        typename summed<C>::type sum = 0;
        if (unit < units) {
            long long group;
            const long long output = divide(unit, r.groups, &group);
            sum = row_sum<C>(r, position(r.kept, output), group, lane, r.lanes);
        }
        sum = lanes_sum(sum, r.lanes);
        if (unit < units && lane == 0) put_sum<C>(r, unit, sum);
    }
}

/* Reduces with one block per output and group. */
template <typename C>
__device__ __forceinline__ void rows_by_block(const reduce_shape &r, typename summed<C>::type *slots)
{
    long long group;
    const long long output = divide(blockIdx.x, r.groups, &group);
    const auto sum = block_sum(row_sum<C>(r, position(r.kept, output), group, threadIdx.x, REDUCE_BLOCK), slots);
    if (threadIdx.x == 0) put_sum<C>(r, blockIdx.x, sum);
}

/* ---- columns ---- */

template <typename S, typename C> __device__ __forceinline__ void add_tile(S (&sum)[TILE], const C (&v)[TILE])
{
#pragma unroll
    for (int i = 0; i < TILE; i++) sum[i] += (S)v[i];
}

/* Adds rows low, low + step, ... below high of the n columns at `base`. If all rows allow aligned full tiles, unrolling
 * keeps several loads in flight. */
template <typename T, typename C, typename S>
__device__ __forceinline__ void add_rows(const reduce_shape &r, const T *base, int n, long long low, long long high,
                                         int step, S (&sum)[TILE])
{
    const long long stride = r.reduced.rank == 1 ? r.reduced.strides[0] : 0;
    if (r.reduced.rank <= 1 && stride % TILE == 0 && tile_is_full(base, n)) {
#pragma unroll 4
        for (long long row = low; row < high; row += step) {
            C v[TILE];
            load_full(base + row * stride, v);
            add_tile(sum, v);
        }
    } else {
        for (long long row = low; n > 0 && row < high; row += step) {
            C v[TILE];
            load_typed(base + position(r.reduced, row), n, v);
            add_tile(sum, v);
        }
    }
}

/* Reduces with one block per strip of columns and group. `slots`: shared memory, REDUCE_BLOCK * TILE sums. */
template <typename C> __device__ __forceinline__ void columns(const reduce_shape &r, typename summed<C>::type *slots)
{
    const int across = threadIdx.x % r.lanes, down = threadIdx.x / r.lanes, height = REDUCE_BLOCK / r.lanes;
    const long long wide = (long long)r.lanes * TILE, strips = (r.length + wide - 1) / wide;
    long long group, strip;
    const long long kept = divide(divide(blockIdx.x, r.groups, &group), strips, &strip);
    const long long column = strip * wide + across * TILE, base = position(r.kept, kept) + column;
    const int n = column < r.length ? tile_length(column, r.length) : 0;
    const long long low = r.reduced.count * group / r.groups + down;
    const long long high = r.reduced.count * (group + 1) / r.groups;
    typename summed<C>::type sum[TILE] = {};
    with_stored(C(), r.x_dtype, [&](auto s) {
        using T = typename decltype(s)::type;
        add_rows<T, C>(r, static_cast<const T *>(r.x) + base, n, low, high, height, sum);
    });
#pragma unroll
    for (int i = 0; i < TILE; i++) slots[i * REDUCE_BLOCK + threadIdx.x] = sum[i];
    for (int half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        if (down >= half) continue;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            slots[i * REDUCE_BLOCK + threadIdx.x] += slots[i * REDUCE_BLOCK + threadIdx.x + half * r.lanes];
    }
    if (down != 0) return;
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n)
            put_sum<C>(r, (kept * r.length + column + i) * r.groups + group, slots[i * REDUCE_BLOCK + threadIdx.x]);
}

#define KERNELS(carrier, C, S)                                                                                        \
    extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) reduce_lanes_##carrier(reduce_shape r)                 \
    {                                                                                                                 \
        rows_by_lanes<C>(r);                                                                                          \
    }                                                                                                                 \
    AMPC_KERNEL(reduce_lanes_##carrier)                                                                               \
    extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) reduce_block_##carrier(reduce_shape r)                 \
    {                                                                                                                 \
        __shared__ S slots[WARP];                                                                                     \
        rows_by_block<C>(r, slots);                                                                                   \
    }                                                                                                                 \
    AMPC_KERNEL(reduce_block_##carrier)                                                                               \
    extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK, 1) reduce_columns_##carrier(reduce_shape r)            \
    {                                                                                                                 \
        __shared__ S slots[REDUCE_BLOCK * TILE];                                                                      \
        columns<C>(r, slots);                                                                                         \
    }                                                                                                                 \
    AMPC_KERNEL(reduce_columns_##carrier)
KERNELS(float, float, float)
KERNELS(int64_t, long long, unsigned long long)

/* ---- the global norm: squares in f32, summed in f64, so that sums overflow no earlier than the result ---- */

extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) norm_squares(norm_table t)
{
    __shared__ double slots[WARP];
    const float inverse = t.scale ? 1 / *t.scale : 1;
    double sum = 0;
    int s = 0;
    for (int unit = blockIdx.x; unit < t.units; unit += gridDim.x) {
        while (s + 1 < t.spans && t.span[s + 1].first <= unit) s++;
        const long long begin = (long long)(unit - t.span[s].first) * NORM_UNIT,
                        end = min(t.span[s].count, begin + NORM_UNIT);
        for (long long first = begin + threadIdx.x * TILE; first < end; first += REDUCE_BLOCK * TILE) {
            float v[TILE];
            tile_load(t.span[s].x, t.span[s].dtype, first, tile_length(first, end), v);
#pragma unroll
            for (int i = 0; i < TILE; i++) {
                v[i] = __fmul_rn(v[i], inverse); /* rounds like the unscaled gradient */
                v[i] *= v[i];
            }
            sum += (double)tile_sum<float>(v);
        }
    }
    sum = block_sum(sum, slots);
    if (threadIdx.x == 0) t.partial[blockIdx.x] = sum;
}
AMPC_KERNEL(norm_squares)

extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) norm_root(const double *partial, long long n, float *y)
{
    __shared__ double slots[WARP];
    double sum = 0;
    for (long long i = threadIdx.x; i < n; i += REDUCE_BLOCK) sum += partial[i];
    sum = block_sum(sum, slots);
    if (threadIdx.x == 0) *y = (float)sqrt(sum);
}
AMPC_KERNEL(norm_root)
