/* spans.cuh - launches over a table of tensors, divided into units that blocks process in turn. */
#pragma once

#include "kernels/cuda/tile.cuh"

/* Returns the span that contains a unit: the last one that starts at or before it. */
template <typename T> static __device__ __forceinline__ int span_of(const T &table, int unit)
{
    int low = 0, high = table.spans;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (table.span[middle].first <= unit) low = middle;
        else high = middle;
    }
    return low;
}

/* Calls f(span, first, n) for the elements [first, first + n) of spans that this thread processes. */
template <typename T, typename F> static __device__ __forceinline__ void spans_each(const T &table, F f)
{
    for (int unit = blockIdx.x; unit < table.units; unit += gridDim.x) {
        const auto &s = table.span[span_of(table, unit)];
        const long long first = ((long long)(unit - s.first) * blockDim.x + threadIdx.x) * TILE;
        if (first < s.count) f(s, first, tile_length(first, s.count));
    }
}
