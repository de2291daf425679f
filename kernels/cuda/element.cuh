/* element.cuh - elements of stored types known at compile time, and their carriers: float for floats, long long for
 * integers and bool (u64 wraps), unsigned long long for arithmetic on u64. Conversions follow ir/ops/dtype.h. */
#pragma once

#include "kernels/cuda/device.cuh"

enum : int { TILE = 8 }; /* elements per thread and iteration */

__device__ __forceinline__ void to_carrier(float *c, float v) { *c = v; }
__device__ __forceinline__ void to_carrier(float *c, __half v) { *c = __half2float(v); }
__device__ __forceinline__ void to_carrier(float *c, __nv_bfloat16 v) { *c = __bfloat162float(v); }
__device__ __forceinline__ void from_carrier(float *v, float c) { *v = c; }
__device__ __forceinline__ void from_carrier(__half *v, float c) { *v = __float2half_rn(c); }
__device__ __forceinline__ void from_carrier(__nv_bfloat16 *v, float c) { *v = __float2bfloat16_rn(c); }
template <typename T> __device__ __forceinline__ void to_carrier(float *c, T v) { *c = (float)v; }
template <typename T> __device__ __forceinline__ void to_carrier(long long *c, T v) { *c = (long long)v; }
template <typename T> __device__ __forceinline__ void from_carrier(T *v, long long c) { *v = (T)c; }
__device__ __forceinline__ void to_carrier(unsigned long long *c, unsigned long long v) { *c = v; }
__device__ __forceinline__ void from_carrier(unsigned long long *v, unsigned long long c) { *v = c; }
/* A stored bool: any byte but 0 is true. */
struct flag {
    unsigned char byte;
};
__device__ __forceinline__ void to_carrier(long long *c, flag v) { *c = v.byte != 0; }
__device__ __forceinline__ void from_carrier(flag *v, long long c) { v->byte = c != 0; }

/* The access type for this many adjacent bytes: at most 16 bytes per access. */
template <int bytes> struct tile_chunk {
    using type = uint4;
};
template <> struct tile_chunk<8> {
    using type = uint2;
};
template <> struct tile_chunk<4> {
    using type = unsigned;
};
template <> struct tile_chunk<2> {
    using type = unsigned short;
};
template <> struct tile_chunk<1> {
    using type = unsigned char;
};

/* Length of the tile at `first` in an array of n elements. */
__device__ __forceinline__ int tile_length(long long first, long long n)
{
    return n - first < TILE ? (int)(n - first) : TILE;
}

/* ---- conversions between carriers ---- */

/* Converts to a float that will be stored as f32 or, if `low`, in fewer bits. In that case integers of more than 24
 * bits are rounded to odd, which avoids double rounding. */
__device__ __forceinline__ float integer_to_float(long long v, bool low)
{
    unsigned long long size = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
    const int lost = low ? 40 - __clzll((long long)size) : 0;
    if (lost <= 0) return (float)v;
    size = (size >> lost | ((size & ((1ull << lost) - 1)) != 0)) << lost;
    return v < 0 ? -(float)size : (float)size;
}

/* Likewise for u64. */
__device__ __forceinline__ float unsigned_to_float(unsigned long long v, bool low)
{
    const int lost = low ? 40 - __clzll((long long)v) : 0;
    if (lost <= 0) return (float)v;
    return (float)((v >> lost | ((v & ((1ull << lost) - 1)) != 0)) << lost);
}

/* Truncates and saturates; NaN becomes 0. */
__device__ __forceinline__ unsigned long long float_to_unsigned(float v)
{
    return v >= 0x1p64f ? 0xffffffffffffffffull : v > 0 ? (unsigned long long)v : 0;
}

/* Truncates and saturates; NaN becomes 0. */
__device__ __forceinline__ long long float_to_integer(float v, long long lowest, long long highest)
{
    constexpr long long longest = 0x7fffffffffffffff;
    const long long rounded = v >= 0x1p63f ? longest : v > -0x1p63f ? (long long)v : v != v ? 0 : -longest - 1;
    return rounded > highest ? highest : rounded < lowest ? lowest : rounded;
}
