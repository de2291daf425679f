/* device.cuh - common device code: kernel macros, warp and block reductions, the fault word.
 *
 * Kernels contain no host code and compile unchanged for the device and for the CPU simulator (tests/cuda/sim), which
 * defines the macros itself. Rules: block sizes are multiples of 32 and __launch_bounds__ equals the largest launch;
 * all threads of the block or warp reach every __syncthreads and warp operation; shared memory is declared in the
 * kernel itself; no float atomics; 64-bit offsets. */
#pragma once

#include "kernels/fault.h"

#ifdef __CUDACC_RTC__
/* NVRTC (generate.c) compiles with our headers only, because the target machine may have no CUDA headers. */
typedef signed char int8_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned uint32_t;
typedef unsigned long uint64_t;
struct __half {
    unsigned short bits;
};
struct __nv_bfloat16 {
    unsigned short bits;
};
__device__ __forceinline__ float __half2float(__half v)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(v.bits));
    return wide;
}
__device__ __forceinline__ __half __float2half_rn(float v)
{
    __half narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(v));
    return narrow;
}
__device__ __forceinline__ float __bfloat162float(__nv_bfloat16 v)
{
    return __uint_as_float((unsigned)v.bits << 16);
}
__device__ __forceinline__ __nv_bfloat16 __float2bfloat16_rn(float v)
{
    __nv_bfloat16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(v));
    return narrow;
}
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#ifndef AMPC_KERNEL /* a build may say how kernels are registered and get shared memory */
/* Follows each kernel definition, with its name. */
#define AMPC_KERNEL(name)
/* Declares dynamic shared memory as a 16-byte aligned array. */
#define AMPC_DYN_SHARED(type, name)                                                                \
    extern __shared__ __align__(16) unsigned char cuda_dynamic_shared[];                           \
    type *name = reinterpret_cast<type *>(cuda_dynamic_shared)
#endif

#define K_FORMULA __device__ __forceinline__

enum : int { WARP = 32 };
#define WHOLE_WARP 0xffffffffu

/* First item of this thread, and number of threads in the grid, for grid-stride loops. */
__device__ __forceinline__ long long grid_first() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long grid_step() { return (long long)gridDim.x * blockDim.x; }

/* Sum and maximum over a warp. Every lane gets the result, always computed in the same order. */
template <typename T> __device__ __forceinline__ T warp_sum(T v)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(WHOLE_WARP, v, distance);
    return v;
}
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; } /* propagates NaN */
__device__ __forceinline__ float warp_max(float v)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        v = larger(v, __shfl_xor_sync(WHOLE_WARP, v, distance));
    return v;
}

/* Sum and maximum over a block of up to 1024 threads. Every thread gets the result. `slots`: 32 values in shared
 * memory, reusable after the call. */
template <typename T> __device__ __forceinline__ T block_sum(T v, T *slots)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_sum(v);
    if (lane == 0) slots[warp] = v;
    __syncthreads();
    T total = warp_sum(lane < warps ? slots[lane] : T(0));
    __syncthreads();
    return total;
}
__device__ __forceinline__ float block_max(float v, float *slots)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    v = warp_max(v);
    if (lane == 0) slots[warp] = v;
    __syncthreads();
    float total = warp_max(lane < warps ? slots[lane] : slots[0]);
    __syncthreads();
    return total;
}

/* Records a fault of step `step`. The earliest step wins, so that every run reports the same fault. */
__device__ __forceinline__ void fault_set(int *fault, int step, k_fault kind)
{
    atomicMin(fault, step << K_FAULT_BITS | kind);
}
/* Whether storage may be written: no fault so far in this step of the session. */
__device__ __forceinline__ bool fault_none(const int *fault) { return *fault == K_NO_FAULT; }
