/* scatter.cu - gathers and scatters by coordinates (kernels/places.h).
 *
 * A scatter that replaces first finds the last item of each row, which alone then writes it, so the result does not
 * depend on the order in which threads run. A scatter that reduces sorts its items (gather.cu) and reduces the updates
 * of each row (row_sums.cuh) together with the row's old value. */
#include "kernels/cuda/scatter.h"
#include "kernels/cuda/places.cuh"
#include "kernels/cuda/row_sums.cuh"
#include "ir/ops/words.h"

template <typename T> __device__ __forceinline__ void gather_places_of(const scatter_rows &s)
{
    for (long long k = grid_first(); k < s.places.count * s.places.inner; k += grid_step()) {
        long long at;
        const long long row = place_of(s.places, divide(k, s.places.inner, &at));
        T v = {};
        if (row >= 0) v = static_cast<const T *>(s.from)[row * s.places.inner + at];
        static_cast<T *>(s.to)[k] = v;
    }
}

template <typename T> __device__ __forceinline__ void replace_rows(const scatter_rows &s)
{
    for (long long k = grid_first(); k < s.places.count * s.places.inner; k += grid_step()) {
        long long at;
        const long long item = divide(k, s.places.inner, &at), row = place_of(s.places, item);
        if (row >= 0 && s.winners[row] == item)
            static_cast<T *>(s.to)[row * s.places.inner + at] = static_cast<const T *>(s.from)[k];
    }
}

#define ROWS(size, T) \
    extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) scatter_read_##size(scatter_rows s) \
    { \
        gather_places_of<T>(s); \
    } \
    AMPC_KERNEL(scatter_read_##size) \
    extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) scatter_write_##size(scatter_rows s) \
    { \
        replace_rows<T>(s); \
    } \
    AMPC_KERNEL(scatter_write_##size)
ROWS(1, unsigned char)
ROWS(2, unsigned short)
ROWS(4, unsigned)
ROWS(8, unsigned long long)
ROWS(16, uint4)

/* Also checks all indices. */
extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) scatter_claim(scatter_rows s)
{
    for (long long item = grid_first(); item < s.places.count; item += grid_step()) {
        const long long row = place_of(s.places, item);
        if (row >= 0 && s.winners) atomicMax(&s.winners[row], (int)item);
    }
}
AMPC_KERNEL(scatter_claim)

/* ---- reductions ---- */

__device__ __forceinline__ float lowest(float) { return -INFINITY; }
__device__ __forceinline__ float highest(float) { return INFINITY; }
__device__ __forceinline__ long long lowest(long long) { return -0x7fffffffffffffff - 1; }
__device__ __forceinline__ long long highest(long long) { return 0x7fffffffffffffff; }
__device__ __forceinline__ unsigned long long lowest(unsigned long long) { return 0; }
__device__ __forceinline__ unsigned long long highest(unsigned long long) { return 0xffffffffffffffff; }
__device__ __forceinline__ float sum_of(float a, float b) { return a + b; }
__device__ __forceinline__ float product_of(float a, float b) { return a * b; }
__device__ __forceinline__ long long sum_of(long long a, long long b)
{
    return (long long)((unsigned long long)a + (unsigned long long)b);
}
__device__ __forceinline__ long long product_of(long long a, long long b)
{
    return (long long)((unsigned long long)a * (unsigned long long)b);
}

__device__ __forceinline__ unsigned long long sum_of(unsigned long long a, unsigned long long b) { return a + b; }
__device__ __forceinline__ unsigned long long product_of(unsigned long long a, unsigned long long b) { return a * b; }

template <typename C> struct reduce_into_row {
    using carrier = C;
    static constexpr bool reads_row = true;
    int mode;
    __device__ __forceinline__ C start() const
    {
        return mode == IR_WORD(scatter, max)   ? lowest(C())
               : mode == IR_WORD(scatter, min) ? highest(C())
                                       : (C)(mode == IR_WORD(scatter, mul));
    }
    __device__ __forceinline__ C operator()(C a, C b) const
    {
        switch (mode) {
        case IR_WORD(scatter, add): return sum_of(a, b);
        case IR_WORD(scatter, mul): return product_of(a, b);
        case IR_WORD(scatter, max): return b > a || b != b ? b : a;
        default: return b < a || b != b ? b : a;
        }
    }
};

#define REDUCE(name, C) \
    extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) scatter_sum_##name(row_sums g) \
    { \
        sum_rows(g, reduce_into_row<C>{g.mode}); \
    } \
    AMPC_KERNEL(scatter_sum_##name) \
    extern "C" __global__ void __launch_bounds__(GATHER_BLOCK) scatter_join_##name(row_sums g) \
    { \
        join_rows(g, reduce_into_row<C>{g.mode}); \
    } \
    AMPC_KERNEL(scatter_join_##name)
REDUCE(float, float)
REDUCE(integer, long long)
REDUCE(unsigned, unsigned long long)
