/* mma.cuh - products of 16 x 16 and 16 x 8 matrices of f16 or bf16 by a warp, in tensor cores, with f32 sums.
 *
 * Each lane has a part of a matrix, its fragment. With g = lane / 4 and t = lane % 4, the numbers of a lane are:
 *
 *     left operand, 16 x 16    a[0]: (g, 2t), (g, 2t + 1)    a[1]: the same in row g + 8
 *                              a[2], a[3]: the same in columns 2t + 8, 2t + 9
 *     right operand, 16 x 8    b[0]: (2t, g), (2t + 1, g)    b[1]: (2t + 8, g), (2t + 9, g)
 *     result, 16 x 8           c[0], c[1]: (g, 2t), (g, 2t + 1)    c[2], c[3]: the same in row g + 8
 *
 * An `unsigned` has two of them, the first one in its lower bits. So sums c of two results side by side are, rounded,
 * the left operand of the next product. Each call needs all lanes of the warp. */
#pragma once

#include "kernels/cuda/device.cuh"

#ifndef AMPC_MMA /* a build may say how a warp multiplies, and loads four 8 x 8 matrices from shared memory */
#define AMPC_MMA(type, c, a, b0, b1)                                                                                   \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                          \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#define AMPC_LDMATRIX(suffix, to, row)                                                                                 \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" suffix ".shared.b16 {%0,%1,%2,%3}, [%4];"                             \
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                                  \
                 : "r"((unsigned)__cvta_generic_to_shared(row))                                                        \
                 : "memory")
/* Begins to copy 16 bytes to shared memory, of which only the first `bytes` are read and the others are 0. */
#define AMPC_COPY(to, from, bytes)                                                                                     \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"                                                       \
                 :                                                                                                     \
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes)                                  \
                 : "memory")
#define AMPC_COPIED() asm volatile("cp.async.wait_all;" : : : "memory")
#endif

template <typename T> struct mma;

template <> struct mma<__half> {
    /* c += a b */
    __device__ static __forceinline__ void add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
    {
        AMPC_MMA("f16", c, a, b0, b1);
    }
    /* Rounds two numbers. */
    __device__ static __forceinline__ unsigned pair(float first, float second)
    {
        const __half2 both = __floats2half2_rn(first, second);
        return *reinterpret_cast<const unsigned *>(&both);
    }
};

template <> struct mma<__nv_bfloat16> {
    __device__ static __forceinline__ void add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
    {
        AMPC_MMA("bf16", c, a, b0, b1);
    }
    __device__ static __forceinline__ unsigned pair(float first, float second)
    {
        const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
        return *reinterpret_cast<const unsigned *>(&both);
    }
};

/* Loads of 16 x 16 matrices from shared memory. `m` is their first element; rows are `step` elements apart and aligned
 * to 16 bytes. `crossed`: memory has the transposed matrix. A right operand is two fragments, of columns [0, 8) in
 * to[0], to[1] and of columns [8, 16) in to[2], to[3]. */
template <bool crossed>
__device__ __forceinline__ void mma_load_left(const unsigned short *m, int step, unsigned (&to)[4])
{
    const int lane = threadIdx.x % WARP;
    if (crossed) {
        const unsigned short *row = m + (lane % 8 + lane / 16 * 8) * step + lane / 8 % 2 * 8;
        AMPC_LDMATRIX(".trans", to, row);
    } else {
        const unsigned short *row = m + lane % 16 * step + lane / 16 * 8;
        AMPC_LDMATRIX("", to, row);
    }
}
template <bool crossed>
__device__ __forceinline__ void mma_load_right(const unsigned short *m, int step, unsigned (&to)[4])
{
    const int lane = threadIdx.x % WARP;
    if (crossed) {
        const unsigned short *row = m + (lane % 8 + lane / 16 * 8) * step + lane / 8 % 2 * 8;
        AMPC_LDMATRIX("", to, row);
    } else {
        const unsigned short *row = m + lane % 16 * step + lane / 16 * 8;
        AMPC_LDMATRIX(".trans", to, row);
    }
}

/* Begins to copy n <= 8 elements to shared memory, aligned to 16 bytes; the rest of the 8 is 0. */
__device__ __forceinline__ void mma_copy(const unsigned short *from, int n, unsigned short *to)
{
    if (reinterpret_cast<unsigned long long>(from) % 16 == 0) {
        AMPC_COPY(to, from, n * 2);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) to[i] = i < n ? from[i] : 0;
}
/* Waits for the copies that this thread has begun. */
__device__ __forceinline__ void mma_copied() { AMPC_COPIED(); }
