/* gather.cu - gathers rows of a table by index; the gradient sums rows back into the table.
 *
 * The gradient is deterministic: the indices are sorted by a stable radix sort, and row_sums.cuh adds up the sorted
 * rows. */
#include "kernels/cuda/places.cuh"
#include "kernels/cuda/row_sums.cuh"

template <typename T> __device__ __forceinline__ void gather_elements(const gather_rows &g)
{
    const T *table = static_cast<const T *>(g.table);
    for (long long k = grid_first(); k < g.outer * g.count * g.inner; k += grid_step()) {
        long long i, at;
        const long long outer = divide(divide(k, g.inner, &at), g.count, &i);
        const long long row = index_of(g.indices, g.dtype, i, g.entries, g.fault, g.step);
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
    if (!s.is_first) return s.keys[i];
    const long long row = place_of(s.places, i);
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
            s.sorted_positions[place] = s.is_first ? (unsigned)i : s.positions[i];
        }
        __syncthreads();
        if (mine && after == 0) places[digit] += before + 1; /* read only after the next turn's first barrier */
    }
}
AMPC_KERNEL(gather_place)

/* ---- summation ---- */

extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_sum(row_sums g) { sum_rows(g, sum_into_zero()); }
AMPC_KERNEL(gather_sum)

extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) gather_join(row_sums g) { join_rows(g, sum_into_zero()); }
AMPC_KERNEL(gather_join)
