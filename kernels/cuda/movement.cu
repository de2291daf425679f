/* movement.cu - ops that move elements without interpreting them.
 *
 * move_copy_SIZE is a strided copy: each thread computes both offsets of one element. The host chooses the widest
 * element size that both sides allow. move_transpose_SIZE goes through square tiles in shared memory, so that reads and
 * writes are both coalesced. */
#include "kernels/cuda/movement.h"
#include "kernels/cuda/operand.cuh"

#include "kernels/padding.h"

/* ---- strided copies ---- */

/* Computes the offsets of position `index` in source and destination. */
__device__ __forceinline__ void copy_offsets(const move_copy &c, long long index, long long *src, long long *dst)
{
    *src = 0, *dst = 0;
#pragma unroll 1
    for (int i = c.rank - 1; i >= 0; i--) {
        long long at = index;
        if (i > 0) index = divide(index, c.dims[i], &at);
        *src += at * c.src_strides[i];
        *dst += at * c.dst_strides[i];
    }
}

template <typename T> __device__ __forceinline__ void copy_elements(const move_copy &c)
{
    for (long long i = grid_first(); i < c.count; i += grid_step()) {
        long long src, dst;
        copy_offsets(c, i, &src, &dst);
        static_cast<T *>(c.dst)[dst] = static_cast<const T *>(c.src)[src];
    }
}

/* Each block transposes one square. `square`: shared memory, side * (side + pad) elements; the padding avoids bank
 * conflicts in columns. */
template <typename T, int side, int pad>
__device__ __forceinline__ void transpose_square(const move_transpose &t, T *square)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = MOVE_BLOCK / WARP;
    const long long down = (t.rows + side - 1) / side, across = (t.columns + side - 1) / side;
    long long column, row, src, dst;
    copy_offsets(t.outer, divide(divide(blockIdx.x, across, &column), down, &row), &src, &dst);
    row *= side, column *= side;
    const T *from = static_cast<const T *>(t.outer.src) + src + row + column * t.src_stride;
    T *to = static_cast<T *>(t.outer.dst) + dst + row * t.dst_stride + column;
    const int height = (int)min(t.rows - row, (long long)side), width = (int)min(t.columns - column, (long long)side);
#pragma unroll
    for (int k = 0; k < side; k += warps) {
        const int j = k + warp;
#pragma unroll
        for (int i = lane; i < side; i += WARP)
            if (i < height && j < width) square[j * (side + pad) + i] = from[i + j * t.src_stride];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < side; k += warps) {
        const int i = k + warp;
#pragma unroll
        for (int j = lane; j < side; j += WARP)
            if (i < height && j < width) to[i * t.dst_stride + j] = square[j * (side + pad) + i];
    }
}

/* Each thread processes positions of the padded shape. */
template <typename T> __device__ __forceinline__ void pad_elements(const move_pad &p, T value)
{
    if (p.value) value = *static_cast<const T *>(p.value);
    for (long long k = grid_first(); k < p.count; k += grid_step()) {
        long long rest = k, offset = 0;
        bool inside = true;
#pragma unroll 1
        for (int a = p.rank - 1; a >= 0; a--) {
            long long at;
            rest = divide(rest, p.padded[a], &at);
            const long long source = k_pad_source(at - p.before[a], p.plain[a], p.mode);
            inside &= source >= 0;
            offset += source * p.strides[a];
        }
        static_cast<T *>(p.dst)[k] = inside ? static_cast<const T *>(p.src)[offset] : value;
    }
}

#define COPIES(size, T, zero)                                                                                         \
    extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_copy_##size(move_copy c) { copy_elements<T>(c); }   \
    AMPC_KERNEL(move_copy_##size)                                                                                     \
    extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_pad_##size(move_pad p) { pad_elements<T>(p, zero); } \
    AMPC_KERNEL(move_pad_##size)
COPIES(1, unsigned char, 0)
COPIES(2, unsigned short, 0)
COPIES(4, unsigned, 0)
COPIES(8, unsigned long long, 0)
COPIES(16, uint4, make_uint4(0, 0, 0, 0))

#define TRANSPOSE(size, T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_transpose_##size(move_transpose t)                  \
    {                                                                                                                 \
        constexpr int side = TRANSPOSE_SIDE(size), pad = size < 4 ? 4 / size : 1;                                     \
        __shared__ T square[side * (side + pad)];                                                                     \
        transpose_square<T, side, pad>(t, square);                                                                   \
    }                                                                                                                 \
    AMPC_KERNEL(move_transpose_##size)
TRANSPOSE(1, unsigned char)
TRANSPOSE(2, unsigned short)
TRANSPOSE(4, unsigned)
TRANSPOSE(8, unsigned long long)

/* ---- the gradient of padding, one axis at a time ---- */

/* Returns the sum over positions first, first + step, ... below `end`. */
__device__ __forceinline__ float sum_positions(const move_unpad &p, long long base, long long first, long long step,
                                               long long end)
{
    float sum = 0;
    for (long long at = first; at < end; at += step) sum += element_load<float>(p.x, p.x_dtype, base + at * p.inner);
    return sum;
}

__device__ __forceinline__ long long remainder_of(long long v, long long period)
{
    return (v % period + period) % period;
}

extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_pad_grad_axis(move_unpad p)
{
    const long long d = p.plain, end = p.padded, period = p.mode == IR_WORD(pad, wrap) || d == 1 ? d : 2 * (d - 1);
    for (long long k = grid_first(); k < p.outer * d * p.inner; k += grid_step()) {
        long long i, j;
        const long long outer = divide(divide(k, p.inner, &i), d, &j), base = outer * end * p.inner + i,
                        inner = j + p.before;
        float sum = 0;
        if (p.mode == IR_WORD(pad, constant) || p.mode == IR_WORD(pad, edge)) {
            const bool edge = p.mode == IR_WORD(pad, edge);
            const long long low = edge && j == 0 ? 0 : max(inner, 0ll),
                            high = edge && j == d - 1 ? end : min(inner + 1, end);
            sum = sum_positions(p, base, low, 1, high);
        } else {
            sum = sum_positions(p, base, remainder_of(inner, period), period, end);
            if (p.mode == IR_WORD(pad, reflect) && j > 0 && j < d - 1)
                sum += sum_positions(p, base, remainder_of(p.before - j, period), period, end);
        }
        element_store<float>(p.y, p.y_dtype, k, sum);
    }
}
AMPC_KERNEL(move_pad_grad_axis)

/* ---- other ops ---- */

extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_expand(move_choice w)
{
    for (long long first = grid_first() * TILE; first < w.count; first += grid_step() * TILE) {
        const int n = tile_length(first, w.count);
        long long v[TILE];
        operand_load(w.a, first, n, v);
        tile_store(w.y, w.dtype, first, n, v);
    }
}
AMPC_KERNEL(move_expand)

extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_where(move_choice w)
{
    for (long long first = grid_first() * TILE; first < w.count; first += grid_step() * TILE) {
        const int n = tile_length(first, w.count);
        long long c[TILE], a[TILE], b[TILE];
        operand_load(w.cond, first, n, c);
        unsigned chosen = 0;
#pragma unroll
        for (int i = 0; i < TILE; i++) chosen |= (c[i] != 0) << i;
        operand_load(w.a, first, n, a);
        operand_load(w.b, first, n, b);
#pragma unroll
        for (int i = 0; i < TILE; i++) a[i] = chosen >> i & 1 ? a[i] : b[i];
        tile_store(w.y, w.dtype, first, n, a);
    }
}
AMPC_KERNEL(move_where)

extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_trilu(move_triangle t)
{
    for (long long k = grid_first(); k < t.count; k += grid_step()) {
        long long row, column;
        divide(divide(k, t.columns, &column), t.rows, &row);
        const bool inside = t.upper ? column - row >= t.k : column - row <= t.k;
        element_store<long long>(t.y, t.dtype, k, inside ? element_load<long long>(t.x, t.dtype, k) : 0);
    }
}
AMPC_KERNEL(move_trilu)

extern "C" __global__ void __launch_bounds__(MOVE_BLOCK) move_iota(void *y, int dtype, long long count)
{
    for (long long i = grid_first(); i < count; i += grid_step()) element_store<long long>(y, dtype, i, i);
}
AMPC_KERNEL(move_iota)

extern "C" __global__ void __launch_bounds__(WARP) move_dims(move_values d)
{
    if ((int)threadIdx.x < d.count) element_store<long long>(d.y, d.dtype, threadIdx.x, d.values[threadIdx.x]);
}
AMPC_KERNEL(move_dims)
