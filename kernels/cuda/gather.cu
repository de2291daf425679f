/* gather.cu - gathers rows of a table by index; the gradient sums rows back into the table.
 *
 * The gradient is deterministic. The indices are sorted by a stable radix sort and the sorted list is cut into runs of
 * equal length, which balances the load even if one index dominates. A group of threads sums the rows of one run. Table
 * rows within a single run are written immediately. Sums of a row that spans several runs are combined, in order, by
 * the run in which it starts. */
#include "kernels/cuda/gather.h"
#include "kernels/cuda/operand.cuh"

/* Returns the table row of index `i`, or -1 and sets a fault if it is out of range. */
__device__ __forceinline__ long long row_of(const void *indices, int dtype, long long i, long long entries, int *fault,
                                            int step)
{
    long long row = element_load<long long>(indices, dtype, i);
    if (row < 0) row += entries;
    if (row >= 0 && row < entries) return row;
    fault_set(fault, step, K_FAULT_INDEX);
    return -1;
}

template <typename T> __device__ __forceinline__ void gather_elements(const gather_rows &g)
{
    const T *table = static_cast<const T *>(g.table);
    for (long long k = grid_first(); k < g.outer * g.count * g.inner; k += grid_step()) {
        long long i, at;
        const long long outer = divide(divide(k, g.inner, &at), g.count, &i);
        const long long row = row_of(g.indices, g.dtype, i, g.entries, g.fault, g.step);
        T v = {};
        if (row >= 0) v = table[(outer * g.entries + row) * g.inner + at];
        static_cast<T *>(g.y)[k] = v;
    }
}

#define GATHER(size, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_##size(gather_rows g) { gather_elements<T>(g); } \
    AMPC_KERNEL(gather_##size)
GATHER(1, unsigned char)
GATHER(2, unsigned short)
GATHER(4, unsigned)
GATHER(8, unsigned long long)
GATHER(16, uint4)

/* ---- radix sort: count digits, convert counts to offsets, scatter ---- */

__device__ __forceinline__ unsigned key_of(const gather_sort &s, long long i)
{
    if (!s.indices) return s.keys[i];
    const long long row = row_of(s.indices, s.dtype, i, s.entries, s.fault, s.step);
    return row < 0 ? 0 : (unsigned)row;
}

__device__ __forceinline__ int digit_of(const gather_sort &s, unsigned key)
{
    return key >> s.shift & (SORT_DIGITS - 1);
}

extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_count(gather_sort s)
{
    __shared__ unsigned counts[SORT_DIGITS];
    const long long begin = blockIdx.x * s.each, end = min(begin + s.each, s.count);
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (long long i = begin + threadIdx.x; i < end; i += GATHER_BLOCK)
        atomicAdd(&counts[digit_of(s, key_of(s, i))], 1u);
    __syncthreads();
    s.counts[threadIdx.x * s.blocks + blockIdx.x] = counts[threadIdx.x];
}
AMPC_KERNEL(gather_count)

/* Converts the counts to start offsets by a prefix sum. Runs as one block. */
extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_places(unsigned *counts, int each)
{
    __shared__ unsigned sums[GATHER_BLOCK];
    unsigned *own = counts + (long long)threadIdx.x * each, sum = 0;
    for (int i = 0; i < each; i++) sum += own[i];
    sums[threadIdx.x] = sum;
    for (int distance = 1; distance < GATHER_BLOCK; distance *= 2) {
        __syncthreads();
        const unsigned before = (int)threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    unsigned place = sums[threadIdx.x] - sum;
    for (int i = 0; i < each; i++) {
        const unsigned count = own[i];
        own[i] = place;
        place += count;
    }
}
AMPC_KERNEL(gather_places)

extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_place(gather_sort s)
{
    __shared__ unsigned places[SORT_DIGITS];
    __shared__ int digits[SORT_TURN];
    const long long begin = blockIdx.x * s.each, end = min(begin + s.each, s.count);
    places[threadIdx.x] = s.counts[threadIdx.x * s.blocks + blockIdx.x];
    for (long long turn = begin; turn < end; turn += SORT_TURN) {
        const long long i = turn + threadIdx.x;
        const bool mine = i < end;
        const unsigned key = mine ? key_of(s, i) : 0;
        const int digit = mine ? digit_of(s, key) : -1;
        digits[threadIdx.x] = digit;
        __syncthreads();
        int before = 0, after = 0; /* threads with the same digit */
        for (int t = 0; t < SORT_TURN; t++) {
            before += digits[t] == digit && t < (int)threadIdx.x;
            after += digits[t] == digit && t > (int)threadIdx.x;
        }
        if (mine) {
            const unsigned place = places[digit] + before;
            s.sorted_keys[place] = key;
            s.sorted_positions[place] = s.indices ? (unsigned)i : s.positions[i];
        }
        __syncthreads();
        if (mine && after == 0) places[digit] += before + 1; /* read only after the next turn's first barrier */
    }
}
AMPC_KERNEL(gather_place)

/* ---- summation ---- */

/* Work of a group of threads: run `run` of outer index `outer`, with one tile of columns per thread. */
struct gather_work {
    long long outer, run, column, begin, end;
    int n; /* columns */
};

__device__ __forceinline__ gather_work work_of(const gather_sums &g, long long unit)
{
    gather_work w;
    long long strip;
    const long long wide = (long long)g.lanes * TILE, strips = (g.inner + wide - 1) / wide;
    w.outer = divide(divide(unit, strips, &strip), g.runs, &w.run);
    w.column = strip * wide + (long long)(threadIdx.x % g.lanes) * TILE;
    w.n = w.outer < g.outer && w.column < g.inner ? tile_length(w.column, g.inner) : 0;
    w.begin = w.run * GATHER_RUN;
    w.end = min(w.begin + GATHER_RUN, g.count);
    return w;
}

__device__ __forceinline__ long long units_of(const gather_sums &g)
{
    const long long wide = (long long)g.lanes * TILE;
    return g.outer * g.runs * ((g.inner + wide - 1) / wide);
}

__device__ __forceinline__ float *partial_of(const gather_sums &g, const gather_work &w, long long run, int slot)
{
    return g.partial + ((w.outer * g.runs + run) * 2 + slot) * g.inner + w.column;
}

__device__ __forceinline__ void put_row(const gather_sums &g, const gather_work &w, unsigned key,
                                        const float (&sum)[TILE])
{
    tile_store(g.dx, g.dx_dtype, (w.outer * g.entries + key) * g.inner + w.column, w.n, sum);
}

/* Writes the sum of sorted indices [from, to), all equal to `key`. */
__device__ __forceinline__ void put_sum(const gather_sums &g, const gather_work &w, unsigned key, long long from,
                                        long long to, const float (&sum)[TILE])
{
    const bool before = from == w.begin && from > 0 && g.keys[from - 1] == key;
    const bool after = to == w.end && to < g.count && g.keys[to] == key;
    if (before || after)
        store_typed(partial_of(g, w, w.run, before ? 0 : 1), w.n, sum);
    else
        put_row(g, w, key, sum);
}

/* Loads GATHER_BATCH rows of dy at a time to overlap their latency, then adds them in order. */
template <typename T> __device__ __forceinline__ void sum_run(const gather_sums &g, const gather_work &w)
{
    const T *column = static_cast<const T *>(g.dy) + w.outer * g.count * g.inner + w.column;
    const bool whole = g.inner % TILE == 0 && tile_is_full(column, w.n);
    float sum[TILE] = {};
    long long from = w.begin;
    unsigned key = g.keys[from];
    for (long long first = w.begin; first < w.end; first += GATHER_BATCH) {
        float v[GATHER_BATCH][TILE];
#pragma unroll
        for (int k = 0; k < GATHER_BATCH; k++) {
            const T *row = column + g.positions[min(first + k, w.end - 1)] * g.inner;
            if (whole)
                load_full(row, v[k]);
            else
                load_typed(row, w.n, v[k]);
        }
#pragma unroll
        for (int k = 0; k < GATHER_BATCH; k++) {
            if (first + k == w.end) break;
            if (g.keys[first + k] != key) {
                put_sum(g, w, key, from, first + k, sum);
                from = first + k, key = g.keys[from];
#pragma unroll
                for (int i = 0; i < TILE; i++) sum[i] = 0;
            }
#pragma unroll
            for (int i = 0; i < TILE; i++) sum[i] += v[k][i];
        }
    }
    put_sum(g, w, key, from, w.end, sum);
}

extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_sum(gather_sums g)
{
    const int each = GATHER_BLOCK / g.lanes;
    for (long long first = blockIdx.x * (long long)each; first < units_of(g); first += gridDim.x * (long long)each) {
        const gather_work w = work_of(g, first + threadIdx.x / g.lanes);
        if (w.n == 0) continue;
        with_stored(0.0f, g.dy_dtype, [&](auto s) { sum_run<typename decltype(s)::type>(g, w); });
    }
}
AMPC_KERNEL(gather_sum)

/* Returns the first sorted index at or after `from` that is not `key`. */
__device__ __forceinline__ long long end_of(const gather_sums &g, unsigned key, long long from)
{
    long long low = from, high = g.count;
    while (low < high) {
        const long long middle = low + (high - low) / 2;
        if (g.keys[middle] == key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_join(gather_sums g)
{
    const int each = GATHER_BLOCK / g.lanes;
    for (long long first = blockIdx.x * (long long)each; first < units_of(g); first += gridDim.x * (long long)each) {
        const gather_work w = work_of(g, first + threadIdx.x / g.lanes);
        if (w.n == 0 || w.end == g.count) continue;
        const unsigned key = g.keys[w.end - 1];
        if (g.keys[w.end] != key) continue;
        if (w.begin > 0 && g.keys[w.begin - 1] == key) continue; /* the row starts in an earlier run */
        const long long last = (end_of(g, key, w.end) - 1) / GATHER_RUN;
        float sum[TILE];
        load_typed(partial_of(g, w, w.run, 1), w.n, sum);
        for (long long run = w.run + 1; run <= last; run++) {
            float v[TILE];
            load_typed(partial_of(g, w, run, 0), w.n, v);
#pragma unroll
            for (int k = 0; k < TILE; k++) sum[k] += v[k];
        }
        put_row(g, w, key, sum);
    }
}
AMPC_KERNEL(gather_join)
