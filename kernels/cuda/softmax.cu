/* softmax.cu - softmax and log_softmax along one axis, and their gradients.
 *
 * A formula first collects numbers of a row (maximum and sum of exponentials, in one pass: a new maximum rescales the
 * sum), joins what the threads of the row collected, and then makes each result from its operands. A row that a block
 * or a lane takes is read twice. A row of -infinity gives NaN, as the formula says. */
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/softmax.h"

/* ---- formulas ---- */

/* exp(a - most), where nothing but -infinity was seen 0 */
static __device__ __forceinline__ float rescale(float sum, float most, float new_most)
{
    return most == -INFINITY ? 0 : sum * m_exp_float(most - new_most);
}

struct exponentials {
    float most = -INFINITY, sum = 0;
    enum : bool { two = false };
    __device__ void collect(const float (&a)[TILE], const float (&)[TILE], int n)
    {
        float now = most;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) now = larger(now, a[i]);
        sum = rescale(sum, most, now);
        most = now;
        if (most == -INFINITY) return;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) sum += m_exp_float(a[i] - most);
    }
    template <typename G> __device__ void join(const G &g)
    {
        const float all = g.max(most);
        sum = g.sum(rescale(sum, most, all));
        most = all;
    }
};

struct softmax_formula : exponentials {
    template <typename G> __device__ void join(const G &g)
    {
        exponentials::join(g);
        sum = 1 / sum;
    }
    __device__ float result(float a, float) const { return m_exp_float(a - most) * sum; }
};

struct log_softmax_formula : exponentials {
    template <typename G> __device__ void join(const G &g)
    {
        exponentials::join(g);
        sum = m_log_float(sum);
    }
    __device__ float result(float a, float) const { return a - most - sum; }
};

struct softmax_grad_formula {
    float sum = 0;
    enum : bool { two = true };
    __device__ void collect(const float (&a)[TILE], const float (&b)[TILE], int n)
    {
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) sum += a[i] * b[i];
    }
    template <typename G> __device__ void join(const G &g) { sum = g.sum(sum); }
    __device__ float result(float a, float b) const { return b * (a - sum); }
};

struct log_softmax_grad_formula : softmax_grad_formula {
    __device__ void collect(const float (&a)[TILE], const float (&)[TILE], int n)
    {
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) sum += a[i];
    }
    __device__ float result(float a, float b) const { return a - m_exp_float(b) * sum; }
};

template <typename F> static __device__ __forceinline__ void make(const F &f, const float (&a)[TILE],
                                                                  const float (&b)[TILE], float (&y)[TILE])
{
#pragma unroll
    for (int i = 0; i < TILE; i++) y[i] = f.result(a[i], b[i]);
}

/* ---- rows ---- */

template <typename F> static __device__ __forceinline__ void rows_by_warp(const softmax_rows &r)
{
    const int length = (int)r.rows.length;
    for (long long row = (long long)blockIdx.x * ROW_WARPS + threadIdx.x / WARP; row < r.rows.outer;
         row += (long long)gridDim.x * ROW_WARPS) {
        float a[ROW_TILES][TILE], b[ROW_TILES][TILE] = {};
        F f;
        load_row(r.a, r.in_dtype, row, length, a);
        if (F::two) load_row(r.b, r.in_dtype, row, length, b);
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            if (row_tile(t) < length) f.collect(a[t], b[t], tile_length(row_tile(t), length));
        f.join(by_warp());
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) make(f, a[t], b[t], a[t]);
        store_row(r.y, r.out_dtype, row, length, a);
    }
}

template <typename F> static __device__ __forceinline__ void rows_by_block(const softmax_rows &r, float *slots)
{
    for (long long row = blockIdx.x; row < r.rows.outer; row += gridDim.x) {
        float a[TILE], b[TILE] = {}, y[TILE];
        F f;
        for (long long i = threadIdx.x * TILE; i < r.rows.length; i += ROW_BLOCK * TILE) {
            const int n = tile_length(i, r.rows.length);
            tile_load(r.a, r.in_dtype, row * r.rows.length + i, n, a);
            if (F::two) tile_load(r.b, r.in_dtype, row * r.rows.length + i, n, b);
            f.collect(a, b, n);
        }
        f.join(by_block{slots});
        for (long long i = threadIdx.x * TILE; i < r.rows.length; i += ROW_BLOCK * TILE) {
            const int n = tile_length(i, r.rows.length);
            tile_load(r.a, r.in_dtype, row * r.rows.length + i, n, a);
            if (F::two) tile_load(r.b, r.in_dtype, row * r.rows.length + i, n, b);
            make(f, a, b, y);
            tile_store(r.y, r.out_dtype, row * r.rows.length + i, n, y);
        }
    }
}

template <typename F> static __device__ __forceinline__ void rows_by_lane(const softmax_rows &r, float *slots)
{
    const long long groups = (r.rows.inner + WARP - 1) / WARP; /* of 32 rows, for each outer index */
    for (long long group = blockIdx.x; group < r.rows.outer * groups; group += gridDim.x) {
        const long long inner = group % groups * WARP + threadIdx.x % WARP;
        const long long first = group / groups * r.rows.length * r.rows.inner + inner;
        const long long length = inner < r.rows.inner ? r.rows.length : 0; /* lanes behind the last row have nothing to do */
        float a[TILE], b[TILE] = {}, y[TILE];
        F f;
        for (long long i = threadIdx.x / WARP * TILE; i < length; i += ROW_WARPS * TILE) {
            const int n = tile_length(i, length);
            load_apart(r.a, r.in_dtype, first + i * r.rows.inner, r.rows.inner, n, a);
            if (F::two) load_apart(r.b, r.in_dtype, first + i * r.rows.inner, r.rows.inner, n, b);
            f.collect(a, b, n);
        }
        f.join(by_lane{slots});
        for (long long i = threadIdx.x / WARP * TILE; i < length; i += ROW_WARPS * TILE) {
            const int n = tile_length(i, length);
            load_apart(r.a, r.in_dtype, first + i * r.rows.inner, r.rows.inner, n, a);
            if (F::two) load_apart(r.b, r.in_dtype, first + i * r.rows.inner, r.rows.inner, n, b);
            make(f, a, b, y);
            store_apart(r.y, r.out_dtype, first + i * r.rows.inner, r.rows.inner, n, y);
        }
    }
}

/* ---- kernels ---- */

#define SOFTMAX_KERNELS(op)                                                                                            \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) op##_warp(softmax_rows r)                              \
    {                                                                                                                  \
        rows_by_warp<op##_formula>(r);                                                                                 \
    }                                                                                                                  \
    AMPC_KERNEL(op##_warp)                                                                                             \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) op##_block(softmax_rows r)                             \
    {                                                                                                                  \
        __shared__ float slots[WARP];                                                                                  \
        rows_by_block<op##_formula>(r, slots);                                                                         \
    }                                                                                                                  \
    AMPC_KERNEL(op##_block)                                                                                            \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) op##_lane(softmax_rows r)                              \
    {                                                                                                                  \
        __shared__ float slots[ROW_BLOCK];                                                                         \
        rows_by_lane<op##_formula>(r, slots);                                                                          \
    }                                                                                                                  \
    AMPC_KERNEL(op##_lane)

SOFTMAX_KERNELS(softmax)
SOFTMAX_KERNELS(softmax_grad)
SOFTMAX_KERNELS(log_softmax)
SOFTMAX_KERNELS(log_softmax_grad)
