/* softmax.cu - softmax and log_softmax along one axis, and their gradients.
 *
 * A formula first collects sums over elements of a row, then joins them with those of the row's other threads, and
 * finally computes each result. Rows held in the registers of a warp are read once, others twice. A row of -infinity
 * yields NaN, as the formula does. Its gradient is 0 if none arrives: masked rows are replaced, as by
 * Where(IsNaN(y), 0, y). */
#include "kernels/cuda/exponentials.cuh"
#include "kernels/cuda/softmax.h"

/* ---- formulas; `two`: operand b is read ---- */

struct softmax_formula {
    enum : bool { two = false };
    exponentials e;
    float inverse;
    __device__ void collect(const float (&a)[TILE], const float (&)[TILE], int n) { e.collect(a, n); }
    template <typename G> __device__ void join(const G &g)
    {
        e.join(g);
        inverse = 1 / e.sum;
    }
    __device__ float result(float a, float) const { return m_exp_float(a - e.max_value) * inverse; }
};

struct log_softmax_formula {
    enum : bool { two = false };
    exponentials e;
    float rest;
    __device__ void collect(const float (&a)[TILE], const float (&)[TILE], int n) { e.collect(a, n); }
    template <typename G> __device__ void join(const G &g)
    {
        e.join(g);
        rest = e.log_sum();
    }
    __device__ float result(float a, float) const { return a - e.max_value - rest; }
};

struct softmax_grad_formula {
    enum : bool { two = true };
    float dot = 0;
    __device__ void collect(const float (&a)[TILE], const float (&b)[TILE], int n)
    {
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n && a[i] != 0) dot += a[i] * b[i];
    }
    template <typename G> __device__ void join(const G &g) { dot = g.sum(dot); }
    __device__ float result(float a, float b) const { return a - dot == 0 ? 0 : b * (a - dot); }
};

struct log_softmax_grad_formula {
    enum : bool { two = true };
    float sum = 0;
    __device__ void collect(const float (&a)[TILE], const float (&)[TILE], int n)
    {
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < n) sum += a[i];
    }
    template <typename G> __device__ void join(const G &g) { sum = g.sum(sum); }
    __device__ float result(float a, float b) const { return sum == 0 ? a : a - m_exp_float(b) * sum; }
};

/* Replaces a by the results. */
template <typename F>
static __device__ __forceinline__ void make(const F &f, float (&a)[TILE], const float (&b)[TILE])
{
#pragma unroll
    for (int i = 0; i < TILE; i++) a[i] = f.result(a[i], b[i]);
}

/* ---- rows ---- */

template <typename F> static __device__ __forceinline__ void rows_in_registers(const softmax_rows &r)
{
    rows_each<by_warp>(r.rows, [&](const row_part &p) {
        const int length = (int)p.length;
        float a[ROW_TILES][TILE], b[ROW_TILES][TILE] = {};
        F f;
        row_load(r.a, r.in_dtype, p, a);
        if (F::two) row_load(r.b, r.in_dtype, p, b);
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            if (row_tile(t) < length) f.collect(a[t], b[t], tile_length(row_tile(t), length));
        f.join(by_warp());
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) make(f, a[t], b[t]);
        row_store(r.y, r.out_dtype, p, a);
    });
}

template <typename F, typename G>
static __device__ __forceinline__ void rows_in_memory(const softmax_rows &r, const G &g)
{
    rows_each<G>(r.rows, [&](const row_part &p) {
        float a[TILE], b[TILE] = {};
        F f;
        tiles_each(p, [&](long long i, int n) {
            part_load<G>(r.a, r.in_dtype, p, i, n, a);
            if (F::two) part_load<G>(r.b, r.in_dtype, p, i, n, b);
            f.collect(a, b, n);
        });
        f.join(g);
        tiles_each(p, [&](long long i, int n) {
            part_load<G>(r.a, r.in_dtype, p, i, n, a);
            if (F::two) part_load<G>(r.b, r.in_dtype, p, i, n, b);
            make(f, a, b);
            part_store<G>(r.y, r.out_dtype, p, i, n, a);
        });
    });
}

#define SOFTMAX_KERNELS(op)                                                                                            \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) op##_warp(softmax_rows r)                                  \
    {                                                                                                                  \
        rows_in_registers<op##_formula>(r);                                                                            \
    }                                                                                                                  \
    AMPC_KERNEL(op##_warp)                                                                                             \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) op##_block(softmax_rows r)                                 \
    {                                                                                                                  \
        __shared__ float slots[WARP];                                                                                  \
        rows_in_memory<op##_formula>(r, by_block{slots});                                                              \
    }                                                                                                                  \
    AMPC_KERNEL(op##_block)                                                                                            \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) op##_lane(softmax_rows r)                                  \
    {                                                                                                                  \
        __shared__ float slots[ROW_BLOCK];                                                                             \
        rows_in_memory<op##_formula>(r, by_lane{slots});                                                               \
    }                                                                                                                  \
    AMPC_KERNEL(op##_lane)

SOFTMAX_KERNELS(softmax)
SOFTMAX_KERNELS(softmax_grad)
SOFTMAX_KERNELS(log_softmax)
SOFTMAX_KERNELS(log_softmax_grad)
