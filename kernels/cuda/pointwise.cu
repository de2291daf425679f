/* pointwise.cu - all elementwise ops: pointwise_FORMULA_CARRIER for each formula of ir/ops/formulas.def and each of its
 * carriers, and cast_FROM_TO for each pair of carriers.
 *
 * A thread computes one tile of the result at a time: it loads the operands with broadcasting, computes in the carrier
 * type and stores once. Results may overwrite operands of the same shape in place. */
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/pointwise.h"

#define WITH_FLOAT
#include "ir/ops/formulas_each.h"

enum formula_size { SHORT, LONG };
enum formula_numbers { NONE, BOUNDS, COUNT, PARAMS };

/* Computes y = formula(a, b, low, high), one tile per thread and iteration. */
template <int operands, typename R, typename C, typename F>
__device__ __forceinline__ void by_tile(const cuda_pointwise &p, C low, C high, F formula)
{
    for (long long first = grid_first() * TILE; first < p.count; first += grid_step() * TILE) {
        const int n = tile_length(first, p.count);
        C a[TILE], b[TILE];
        R y[TILE];
        if (operands == 1) {
            tile_load(p.a.data, p.a.dtype, first, n, a);
        } else {
            operand_load(p.a, first, n, a);
            operand_load(p.b, first, n, b);
        }
#pragma unroll
        for (int i = 0; i < TILE; i++) y[i] = formula(a[i], operands == 1 ? a[i] : b[i], low, high);
        tile_store(p.y, p.y_dtype, first, n, y);
    }
}

/* Likewise, one element per thread and iteration. */
template <int operands, typename R, typename C, typename F>
__device__ __forceinline__ void by_element(const cuda_pointwise &p, C low, C high, F formula)
{
    for (long long i = grid_first(); i < p.count; i += grid_step()) {
        long long run;
        const C a = element_load<C>(p.a.data, p.a.dtype, operand_at(p.a, i, &run));
        const C b = operands == 1 ? a : element_load<C>(p.b.data, p.b.dtype, operand_at(p.b, i, &run));
        element_store<R>(p.y, p.y_dtype, i, formula(a, b, low, high));
    }
}

__device__ __forceinline__ void bounds_none(float *low, float *high) { *low = -INFINITY, *high = INFINITY; }
__device__ __forceinline__ void bounds_none(long long *low, long long *high) { *low = INT64_MIN, *high = INT64_MAX; }
__device__ __forceinline__ void bounds_none(unsigned long long *low, unsigned long long *high)
{
    *low = 0, *high = UINT64_MAX;
}

/* Only float formulas use tiles; integers and bool are rare. */
template <typename C, typename R, int operands, formula_numbers numbers, bool tiles, typename F>
__device__ __forceinline__ void pointwise(const cuda_pointwise &p, F formula)
{
    C low, high;
    if (grid_first() >= p.count) return; /* first, because the result may overwrite a bound */
    bounds_none(&low, &high);
    if (numbers == BOUNDS && p.low) low = element_load<C>(p.low, p.a.dtype, 0);
    if (numbers == BOUNDS && p.high) high = element_load<C>(p.high, p.a.dtype, 0);
    if constexpr (numbers == COUNT || numbers == PARAMS) low = p.p, high = p.q;
    if constexpr (tiles)
        by_tile<operands, R>(p, low, high, formula);
    else
        by_element<operands, R>(p, low, high, formula);
}

#define KERNEL(name, carrier, C, R, operands, numbers, tiles)                                                          \
    extern "C" __global__ void __launch_bounds__(POINTWISE_BLOCK) pointwise_##name##_##carrier(cuda_pointwise p)      \
    {                                                                                                                 \
        pointwise<C, R, operands, numbers, tiles>(                                                                    \
            p, [](C a, C b, C low, C high) -> R { return f_##name##_##carrier(a, b, low, high); });                   \
    }                                                                                                                 \
    AMPC_KERNEL(pointwise_##name##_##carrier)

/* clang-format off */
#define STORED_SAME float
#define STORED_TRUTH long long
#define FLOAT_FORMULA(name, size, result, operands, numbers, ...)                                                     \
    KERNEL(name, float, float, STORED_##result, operands, numbers, size == SHORT)
#define INTEGER_FORMULA(name, size, result, operands, numbers, ...)                                                   \
    KERNEL(name, int64_t, long long, long long, operands, numbers, false)
#define MADE_SAME unsigned long long
#define MADE_TRUTH long long
#define UNSIGNED_FORMULA(name, size, result, operands, numbers, ...)                                                  \
    KERNEL(name, uint64_t, unsigned long long, MADE_##result, operands, numbers, false)
#define SPECIAL(...)
#include "ir/ops/formulas.def"
/* clang-format on */

/* ---- cast ---- */

/* Converts to the carrier of a stored type. */
__device__ __forceinline__ void convert(float *to, long long v, int from, int dtype)
{
    const bool low = dtype != IR_f32;
    *to = from == IR_u64 ? unsigned_to_float((unsigned long long)v, low) : integer_to_float(v, low);
}
__device__ __forceinline__ void convert(float *to, float v, int, int) { *to = v; }
__device__ __forceinline__ void convert(long long *to, long long v, int, int) { *to = v; }
__device__ __forceinline__ void convert(long long *to, float v, int, int dtype)
{
    const int bits = dtype == IR_i32 || dtype == IR_u32   ? 32
                     : dtype == IR_i16 || dtype == IR_u16 ? 16
                     : dtype == IR_i8 || dtype == IR_u8   ? 8
                                                          : 64;
    const bool positive = dtype == IR_u8 || dtype == IR_u16 || dtype == IR_u32;
    const long long highest = positive ? (1ll << (bits & 63)) - 1 : INT64_MAX >> (64 - bits);
    const long long lowest = positive ? 0 : -highest - 1;
    *to = dtype == IR_bool  ? v != 0
          : dtype == IR_u64 ? (long long)float_to_unsigned(v)
                            : float_to_integer(v, lowest, highest);
}

#define CAST(name, From, To)                                                                                          \
    extern "C" __global__ void __launch_bounds__(POINTWISE_BLOCK)                                                     \
        name(const void *x, int from, void *y, int to, long long count)                                               \
    {                                                                                                                 \
        for (long long first = grid_first() * TILE; first < count; first += grid_step() * TILE) {                     \
            const int n = tile_length(first, count);                                                                  \
            From a[TILE];                                                                                             \
            To b[TILE];                                                                                               \
            tile_load(x, from, first, n, a);                                                                          \
            _Pragma("unroll") for (int i = 0; i < TILE; i++) convert(&b[i], a[i], from, to);                          \
            tile_store(y, to, first, n, b);                                                                           \
        }                                                                                                             \
    }                                                                                                                 \
    AMPC_KERNEL(name)
CAST(cast_float_float, float, float)
CAST(cast_float_int64_t, float, long long)
CAST(cast_int64_t_float, long long, float)
CAST(cast_int64_t_int64_t, long long, long long)
