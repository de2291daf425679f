/* reduce.cu - the reductions of reductions.def and the global norm, in f32, in an order that depends only on shapes.
 *
 * Rows (the innermost run is reduced): adjacent threads, or a whole block for long rows, share an output and read tiles
 * aligned to multiples of TILE in memory, wherever the row starts. Columns (the innermost run is kept): a thread
 * combines a tile of columns over every n-th row, and threads with the same columns join their results in shared
 * memory. If there are few outputs, the terms are cut into groups, whose results are then reduced as rows. */
#include "ir/ops/reductions.h"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/reduce.h"

#define WITH_REDUCTIONS
#define WITH_FLOAT
#include "ir/ops/formulas_each.h"

/* One type per row of the table, with its functions for each carrier. */
#define COMBINE(name, ...)                                                                                            \
    struct combine_##name {                                                                                           \
        __device__ __forceinline__ static float map(float a) { return map_##name##_float(a); }                        \
        __device__ __forceinline__ static long long map(long long a) { return map_##name##_int64_t(a); }              \
        __device__ __forceinline__ static float join(float s, float t) { return join_##name##_float(s, t); }          \
        __device__ __forceinline__ static long long join(long long s, long long t)                                    \
        {                                                                                                             \
            return join_##name##_int64_t(s, t);                                                                       \
        }                                                                                                             \
        __device__ __forceinline__ static unsigned long long map(unsigned long long a)                                \
        {                                                                                                             \
            return map_##name##_uint64_t(a);                                                                          \
        }                                                                                                             \
        __device__ __forceinline__ static unsigned long long join(unsigned long long s, unsigned long long t)         \
        {                                                                                                             \
            return join_##name##_uint64_t(s, t);                                                                      \
        }                                                                                                             \
    };
#include "ir/ops/reductions.def"

__device__ __forceinline__ float start_of(const reduce_shape &r, float) { return r.start; }
__device__ __forceinline__ long long start_of(const reduce_shape &r, long long) { return r.start_integer; }
__device__ __forceinline__ unsigned long long start_of(const reduce_shape &r, unsigned long long)
{
    return (unsigned long long)r.start_integer;
}

__device__ __forceinline__ float finish(int how, float s, long long terms)
{
    switch (how) {
#define FINISH(name, ...)                                                                                             \
    case IR_FINISH_##name: return finish_##name##_float(s, (float)terms);
#include "ir/ops/reductions.def"
    default: return s;
    }
}
__device__ __forceinline__ long long finish(int how, long long s, long long terms)
{
    return how == IR_FINISH_mean ? finish_mean_int64_t(s, terms) : s;
}
__device__ __forceinline__ unsigned long long finish(int how, unsigned long long s, long long terms)
{
    return how == IR_FINISH_mean ? finish_mean_uint64_t(s, (unsigned long long)terms) : s;
}

__device__ __forceinline__ long long position(const reduce_positions &p, long long index)
{
    long long inner;
    return p.rank ? walk_offset(p.rank, p.dims, p.strides, index, &inner) : 0;
}

/* ---- rows ---- */

template <typename F, typename C>
__device__ __forceinline__ C tile_combine(const C (&v)[TILE], int n, C start)
{
    C half[TILE / 2];
#pragma unroll
    for (int i = 0; i < TILE / 2; i++)
        half[i] = F::join(F::map(i < n ? v[i] : start), F::map(i + TILE / 2 < n ? v[i + TILE / 2] : start));
    return F::join(F::join(half[0], half[2]), F::join(half[1], half[3]));
}

/* Joins over `lanes` adjacent threads of a warp; `lanes` is a power of two. */
template <typename F, typename C> __device__ __forceinline__ C lanes_join(C v, int lanes)
{
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        v = F::join(v, __shfl_xor_sync(WHOLE_WARP, v, distance));
    return v;
}

/* Joins over the block, whose threads all get the result. `slots`: 32 values in shared memory, used once. */
template <typename F, typename C> __device__ __forceinline__ C block_join(C v, C start, C *slots)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = lanes_join<F>(v, WARP);
    if (lane == 0) slots[warp] = v;
    __syncthreads();
    return lanes_join<F>(lane < warps ? slots[lane] : start, WARP);
}

/* Returns the result of thread `lane` of `lanes` for part `group` of the output whose run starts at `base`. */
template <typename F, typename C>
__device__ __forceinline__ C row_combine(const reduce_shape &r, long long base, long long group, int lane, int lanes)
{
    const long long tiles = row_tiles(r.length), all = tiles * r.reduced.count;
    const C start = start_of(r, C());
    C s = start;
    for (long long t = all * group / r.groups + lane; t < all * (group + 1) / r.groups; t += lanes) {
        long long tile = t;
        const long long row = r.reduced.count == 1 ? 0 : divide(t, tiles, &tile);
        const row_span span = row_span_of(base + position(r.reduced, row), r.length, tile);
        if (span.n <= 0) continue;
        C v[TILE];
        tile_load(r.x, r.x_dtype, span.first, span.n, v);
        s = F::join(s, tile_combine<F>(v, span.n, start));
    }
    return s;
}

template <typename C> __device__ __forceinline__ void put_result(const reduce_shape &r, long long unit, C s)
{
    element_store<C>(r.y, r.y_dtype, unit, finish(r.finish, s, r.terms));
}

/* Reduces with `lanes` threads of a warp per output. */
template <typename F, typename C> __device__ __forceinline__ void rows_by_lanes(const reduce_shape &r)
{
    const int lane = threadIdx.x % r.lanes;
    const long long each = REDUCE_BLOCK / r.lanes, units = r.kept.count * r.groups;
    for (long long first = blockIdx.x * each; first < units; first += gridDim.x * each) {
        const long long unit = first + threadIdx.x / r.lanes;
        C s = start_of(r, C());
        if (unit < units) {
            long long group;
            const long long output = divide(unit, r.groups, &group);
            s = row_combine<F, C>(r, position(r.kept, output), group, lane, r.lanes);
        }
        s = lanes_join<F>(s, r.lanes);
        if (unit < units && lane == 0) put_result(r, unit, s);
    }
}

/* Reduces with one block per output and group. */
template <typename F, typename C> __device__ __forceinline__ void rows_by_block(const reduce_shape &r, C *slots)
{
    long long group;
    const long long output = divide(blockIdx.x, r.groups, &group);
    const C s = block_join<F>(row_combine<F, C>(r, position(r.kept, output), group, threadIdx.x, REDUCE_BLOCK),
                              start_of(r, C()), slots);
    if (threadIdx.x == 0) put_result(r, blockIdx.x, s);
}

/* ---- columns ---- */

template <typename F, typename C> __device__ __forceinline__ void join_tile(C (&s)[TILE], const C (&v)[TILE])
{
#pragma unroll
    for (int i = 0; i < TILE; i++) s[i] = F::join(s[i], F::map(v[i]));
}

/* Joins rows low, low + step, ... below high of the n columns at `base`. If all rows allow aligned full tiles,
 * unrolling keeps several loads in flight. */
template <typename F, typename T, typename C>
__device__ __forceinline__ void join_rows(const reduce_shape &r, const T *base, int n, long long low, long long high,
                                          int step, C (&s)[TILE])
{
    const long long stride = r.reduced.rank == 1 ? r.reduced.strides[0] : 0;
    if (r.reduced.rank <= 1 && stride % TILE == 0 && tile_is_full(base, n)) {
#pragma unroll 4
        for (long long row = low; row < high; row += step) {
            C v[TILE];
            load_full(base + row * stride, v);
            join_tile<F>(s, v);
        }
    } else {
        for (long long row = low; n > 0 && row < high; row += step) {
            C v[TILE];
            load_typed(base + position(r.reduced, row), n, v);
            join_tile<F>(s, v);
        }
    }
}

/* Reduces with one block per strip of columns and group. `slots`: shared memory, REDUCE_BLOCK * TILE values. */
template <typename F, typename C> __device__ __forceinline__ void columns(const reduce_shape &r, C *slots)
{
    const int across = threadIdx.x % r.lanes, down = threadIdx.x / r.lanes, height = REDUCE_BLOCK / r.lanes;
    const long long wide = (long long)r.lanes * TILE, strips = (r.length + wide - 1) / wide;
    long long group, strip;
    const long long kept = divide(divide(blockIdx.x, r.groups, &group), strips, &strip);
    const long long column = strip * wide + across * TILE, base = position(r.kept, kept) + column;
    const int n = column < r.length ? tile_length(column, r.length) : 0;
    const long long low = r.reduced.count * group / r.groups + down;
    const long long high = r.reduced.count * (group + 1) / r.groups;
    C s[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) s[i] = start_of(r, C());
    with_stored(C(), r.x_dtype, [&](auto stored) {
        using T = typename decltype(stored)::type;
        join_rows<F, T>(r, static_cast<const T *>(r.x) + base, n, low, high, height, s);
    });
#pragma unroll
    for (int i = 0; i < TILE; i++) slots[i * REDUCE_BLOCK + threadIdx.x] = s[i];
    for (int half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        if (down >= half) continue;
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            C *slot = &slots[i * REDUCE_BLOCK + threadIdx.x];
            *slot = F::join(*slot, slot[half * r.lanes]);
        }
    }
    if (down != 0) return;
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n)
            put_result(r, (kept * r.length + column + i) * r.groups + group, slots[i * REDUCE_BLOCK + threadIdx.x]);
}

#define KERNELS(name, carrier, C)                                                                                     \
    extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) reduce_lanes_##name##_##carrier(reduce_shape r)        \
    {                                                                                                                 \
        rows_by_lanes<combine_##name, C>(r);                                                                          \
    }                                                                                                                 \
    AMPC_KERNEL(reduce_lanes_##name##_##carrier)                                                                      \
    extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) reduce_block_##name##_##carrier(reduce_shape r)        \
    {                                                                                                                 \
        __shared__ C slots[WARP];                                                                                     \
        rows_by_block<combine_##name>(r, slots);                                                                      \
    }                                                                                                                 \
    AMPC_KERNEL(reduce_block_##name##_##carrier)                                                                      \
    extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK, 1) reduce_columns_##name##_##carrier(reduce_shape r)   \
    {                                                                                                                 \
        __shared__ C slots[REDUCE_BLOCK * TILE];                                                                      \
        columns<combine_##name>(r, slots);                                                                            \
    }                                                                                                                 \
    AMPC_KERNEL(reduce_columns_##name##_##carrier)

#define COMBINE(name, ...)                                                                                            \
    KERNELS(name, float, float) KERNELS(name, int64_t, long long) KERNELS(name, uint64_t, unsigned long long)
#include "ir/ops/reductions.def"

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
