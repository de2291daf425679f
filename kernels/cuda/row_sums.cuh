/* row_sums.cuh - reduces rows that are sorted by the row of the result they belong to, in a fixed order.
 *
 * The sorted list is cut into runs of equal length, which balances the load even if one row dominates. A group of
 * threads reduces the rows of one run. Result rows within a single run are written immediately. Those of a row that
 * spans several runs are combined, in order, by the run in which it starts. A reduction R has a carrier type, a start
 * value, and says whether the row's old value is included. */
#pragma once

#include "kernels/cuda/gather.h"
#include "kernels/cuda/operand.cuh"

struct sum_into_zero {
    using carrier = float;
    static constexpr bool reads_row = false;
    __device__ __forceinline__ float start() const { return 0; }
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

/* Work of a group of threads: run `run` of outer index `outer`, with one tile of columns per thread. */
struct row_work {
    long long outer, run, column, begin, end;
    int n; /* columns */
};

__device__ __forceinline__ row_work work_of(const row_sums &g, long long unit)
{
    row_work w;
    long long strip;
    const long long wide = (long long)g.lanes * TILE, strips = (g.inner + wide - 1) / wide;
    w.outer = divide(divide(unit, strips, &strip), g.runs, &w.run);
    w.column = strip * wide + (long long)(threadIdx.x % g.lanes) * TILE;
    w.n = w.outer < g.outer && w.column < g.inner ? tile_length(w.column, g.inner) : 0;
    w.begin = w.run * GATHER_RUN;
    w.end = min(w.begin + GATHER_RUN, g.count);
    return w;
}

__device__ __forceinline__ long long units_of(const row_sums &g)
{
    const long long wide = (long long)g.lanes * TILE;
    return g.outer * g.runs * ((g.inner + wide - 1) / wide);
}

template <typename C>
__device__ __forceinline__ C *partial_of(const row_sums &g, const row_work &w, long long run, int slot)
{
    return static_cast<C *>(g.partial) + ((w.outer * g.runs + run) * 2 + slot) * g.inner + w.column;
}

template <typename R>
__device__ __forceinline__ void put_row(const row_sums &g, const row_work &w, const R &reduce, unsigned key,
                                        typename R::carrier (&sum)[TILE])
{
    const long long at = (w.outer * g.entries + key) * g.inner + w.column;
    if (R::reads_row) {
        typename R::carrier row[TILE];
        tile_load(g.dx, g.dx_dtype, at, w.n, row);
#pragma unroll
        for (int i = 0; i < TILE; i++) sum[i] = reduce(row[i], sum[i]);
    }
    tile_store(g.dx, g.dx_dtype, at, w.n, sum);
}

/* Writes the sum of sorted indices [from, to), all equal to `key`. */
template <typename R>
__device__ __forceinline__ void put_sum(const row_sums &g, const row_work &w, const R &reduce, unsigned key,
                                        long long from, long long to, typename R::carrier (&sum)[TILE])
{
    const bool before = from == w.begin && from > 0 && g.keys[from - 1] == key;
    const bool after = to == w.end && to < g.count && g.keys[to] == key;
    if (before || after)
        store_typed(partial_of<typename R::carrier>(g, w, w.run, before ? 0 : 1), w.n, sum);
    else
        put_row(g, w, reduce, key, sum);
}

/* Loads some rows of dy at a time to overlap their latency, then adds them in order. A reduction that reads the rows of
 * the result loads fewer: its code for each row of the batch is large, and with fewer registers more blocks are
 * resident. */
template <typename T, typename R>
__device__ __forceinline__ void sum_run(const row_sums &g, const row_work &w, const R &reduce)
{
    using C = typename R::carrier;
    constexpr int BATCH = !R::reads_row ? GATHER_BATCH : sizeof(C) > 4 ? 1 : 2;
    const T *column = static_cast<const T *>(g.dy) + w.outer * g.count * g.inner + w.column;
    const bool whole = g.inner % TILE == 0 && tile_is_full(column, w.n);
    C sum[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) sum[i] = reduce.start();
    long long from = w.begin;
    unsigned key = g.keys[from];
    for (long long first = w.begin; first < w.end; first += BATCH) {
        C v[BATCH][TILE];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const T *row = column + g.positions[min(first + k, w.end - 1)] * g.inner;
            if (whole)
                load_full(row, v[k]);
            else
                load_typed(row, w.n, v[k]);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (first + k == w.end) break;
            if (g.keys[first + k] != key) {
                put_sum(g, w, reduce, key, from, first + k, sum);
                from = first + k, key = g.keys[from];
#pragma unroll
                for (int i = 0; i < TILE; i++) sum[i] = reduce.start();
            }
#pragma unroll
            for (int i = 0; i < TILE; i++) sum[i] = reduce(sum[i], v[k][i]);
        }
    }
    put_sum(g, w, reduce, key, from, w.end, sum);
}

template <typename R> __device__ __forceinline__ void sum_rows(const row_sums &g, const R &reduce)
{
    const int each = GATHER_BLOCK / g.lanes;
    for (long long first = blockIdx.x * (long long)each; first < units_of(g); first += gridDim.x * (long long)each) {
        const row_work w = work_of(g, first + threadIdx.x / g.lanes);
        if (w.n == 0) continue;
        with_stored(typename R::carrier(), g.dy_dtype,
                    [&](auto s) { sum_run<typename decltype(s)::type>(g, w, reduce); });
    }
}

/* Returns the first sorted index at or after `from` that is not `key`. */
__device__ __forceinline__ long long end_of(const row_sums &g, unsigned key, long long from)
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

template <typename R> __device__ __forceinline__ void join_rows(const row_sums &g, const R &reduce)
{
    using C = typename R::carrier;
    const int each = GATHER_BLOCK / g.lanes;
    for (long long first = blockIdx.x * (long long)each; first < units_of(g); first += gridDim.x * (long long)each) {
        const row_work w = work_of(g, first + threadIdx.x / g.lanes);
        if (w.n == 0 || w.end == g.count) continue;
        const unsigned key = g.keys[w.end - 1];
        if (g.keys[w.end] != key) continue;
        if (w.begin > 0 && g.keys[w.begin - 1] == key) continue; /* the row starts in an earlier run */
        const long long last = (end_of(g, key, w.end) - 1) / GATHER_RUN;
        C sum[TILE];
        load_typed(partial_of<C>(g, w, w.run, 1), w.n, sum);
        for (long long run = w.run + 1; run <= last; run++) {
            C v[TILE];
            load_typed(partial_of<C>(g, w, run, 0), w.n, v);
#pragma unroll
            for (int k = 0; k < TILE; k++) sum[k] = reduce(sum[k], v[k]);
        }
        put_row(g, w, reduce, key, sum);
    }
}
