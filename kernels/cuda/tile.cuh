/* tile.cuh - tiles of eight consecutive elements in registers, converted from any stored type to the carrier type.
 *
 * The dtype is a kernel argument: all threads branch alike, so one kernel serves all stored types at full bandwidth.
 * Whole tiles of a 16-byte aligned array move in 128-bit accesses (64-bit for 1-byte types); the last, short tile moves
 * element by element. The carrier is float for floats, long long for integers and bool, and unsigned long long for u64
 * alone. Conversions follow ir/ops/dtype.h. */
#pragma once

#include "ir/ops/dtype.h"
#include "kernels/cuda/element.cuh"

/* ---- a tile of stored type T ---- */

template <typename T> __device__ __forceinline__ bool tile_is_full(const T *p, int n)
{
    return n == TILE &&
           reinterpret_cast<unsigned long long>(p) % sizeof(typename tile_chunk<sizeof(T) * TILE>::type) == 0;
}

/* Load and store a whole tile at an aligned address. */
template <typename T, typename C> __device__ __forceinline__ void load_full(const T *p, C (&v)[TILE])
{
    using chunk = typename tile_chunk<sizeof(T) * TILE>::type;
    constexpr int each = sizeof(chunk) / sizeof(T);
#pragma unroll
    for (int i = 0; i < TILE / each; i++) {
        const chunk raw = reinterpret_cast<const chunk *>(p)[i];
#pragma unroll
        for (int j = 0; j < each; j++) to_carrier(&v[i * each + j], reinterpret_cast<const T *>(&raw)[j]);
    }
}

template <typename T, typename C> __device__ __forceinline__ void load_typed(const T *p, int n, C (&v)[TILE])
{
    if (tile_is_full(p, n)) return load_full(p, v);
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        v[i] = 0;
        if (i < n) to_carrier(&v[i], p[i]);
    }
}

template <typename T, typename C> __device__ __forceinline__ void store_full(T *p, const C (&v)[TILE])
{
    using chunk = typename tile_chunk<sizeof(T) * TILE>::type;
    constexpr int each = sizeof(chunk) / sizeof(T);
#pragma unroll
    for (int i = 0; i < TILE / each; i++) {
        chunk raw;
#pragma unroll
        for (int j = 0; j < each; j++) from_carrier(&reinterpret_cast<T *>(&raw)[j], v[i * each + j]);
        reinterpret_cast<chunk *>(p)[i] = raw;
    }
}

template <typename T, typename C> __device__ __forceinline__ void store_typed(T *p, int n, const C (&v)[TILE])
{
    if (tile_is_full(p, n)) return store_full(p, v);
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n) from_carrier(&p[i], v[i]);
}

/* ---- dispatch by dtype: the stored types of each carrier ---- */

template <typename T> struct stored {
    using type = T;
};

template <typename F> __device__ __forceinline__ void with_stored(float, int dtype, F f)
{
    switch (dtype) {
    case IR_f16: f(stored<__half>()); break;
    case IR_bf16: f(stored<__nv_bfloat16>()); break;
    default: f(stored<float>()); break;
    }
}
template <typename F> __device__ __forceinline__ void with_stored(long long, int dtype, F f)
{
    switch (dtype) {
    case IR_i32: f(stored<int>()); break;
    case IR_i16: f(stored<short>()); break;
    case IR_i8: f(stored<signed char>()); break;
    case IR_u32: f(stored<unsigned>()); break;
    case IR_u16: f(stored<unsigned short>()); break;
    case IR_u8: f(stored<unsigned char>()); break;
    case IR_bool: f(stored<flag>()); break;
    default: f(stored<long long>()); break;
    }
}

template <typename F> __device__ __forceinline__ void with_stored(unsigned long long, int, F f)
{
    f(stored<unsigned long long>());
}

/* Load and store elements [first, first + n) of an array, n <= TILE. Loads set the rest of v to 0. */
template <typename C>
__device__ __forceinline__ void tile_load(const void *array, int dtype, long long first, int n, C (&v)[TILE])
{
    with_stored(C(), dtype, [&](auto s) {
        load_typed(static_cast<const typename decltype(s)::type *>(array) + first, n, v);
    });
}
template <typename C>
__device__ __forceinline__ void tile_store(void *array, int dtype, long long first, int n, const C (&v)[TILE])
{
    with_stored(C(), dtype,
                [&](auto s) { store_typed(static_cast<typename decltype(s)::type *>(array) + first, n, v); });
}

/* Load and store one element. */
template <typename C> __device__ __forceinline__ C element_load(const void *array, int dtype, long long at)
{
    C c = 0;
    with_stored(c, dtype,
                [&](auto s) { to_carrier(&c, static_cast<const typename decltype(s)::type *>(array)[at]); });
    return c;
}
template <typename C> __device__ __forceinline__ void element_store(void *array, int dtype, long long at, C c)
{
    with_stored(c, dtype,
                [&](auto s) { from_carrier(&static_cast<typename decltype(s)::type *>(array)[at], c); });
}
