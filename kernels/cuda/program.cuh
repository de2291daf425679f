/* program.cuh - the words in which program_text.c writes kernels.
 *
 * Operands and results are held as they are stored; a value becomes its carrier where it is used, and what an
 * instruction gives is stored at once, as if in memory. */
#pragma once

#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/program.h"

#define REAL_IS_FLOAT
#define REAL float
#include "ir/formulas_body.h"
#undef REAL
#undef REAL_IS_FLOAT
#define REAL int64_t
#include "ir/formulas_body.h"
#undef REAL

/* ---- one element ---- */

template <typename T> struct carrier_of {
    using type = long long;
};
template <> struct carrier_of<float> {
    using type = float;
};
template <> struct carrier_of<__half> {
    using type = float;
};
template <> struct carrier_of<__nv_bfloat16> {
    using type = float;
};

template <typename T> __device__ __forceinline__ typename carrier_of<T>::type value(T stored)
{
    typename carrier_of<T>::type c;
    to_carrier(&c, stored);
    return c;
}
template <typename T> __device__ __forceinline__ T as(typename carrier_of<T>::type c)
{
    T stored;
    from_carrier(&stored, c);
    return stored;
}

/* ---- neighbouring elements in registers ---- */

template <typename T, int N> struct elements {
    T v[N];
};

/* Every array begins where 16 bytes may be moved at a time. */
template <typename... P> __device__ __forceinline__ bool aligned(P... p)
{
    return (0ull | ... | reinterpret_cast<unsigned long long>(p)) % 16 == 0;
}

/* n elements at p, n <= N, the rest 0; `whole`: all N, and p allows it to move them in chunks. */
template <int N, typename T> __device__ __forceinline__ elements<T, N> load_run(const T *p, int n, bool whole)
{
    using chunk = typename tile_chunk<sizeof(T) * N>::type;
    constexpr int each = sizeof(chunk) / sizeof(T);
    elements<T, N> e;
    if (whole) {
#pragma unroll
        for (int i = 0; i < N / each; i++) {
            const chunk raw = reinterpret_cast<const chunk *>(p)[i];
#pragma unroll
            for (int j = 0; j < each; j++) e.v[i * each + j] = reinterpret_cast<const T *>(&raw)[j];
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) e.v[i] = i < n ? p[i] : T();
    }
    return e;
}

/* The same, where element i is at p[at(i)]. */
template <int N, typename T, typename F> __device__ __forceinline__ elements<T, N> load_each(const T *p, int n, F at)
{
    elements<T, N> e;
#pragma unroll
    for (int i = 0; i < N; i++) e.v[i] = i < n ? p[at(i)] : T();
    return e;
}

template <int N, typename T>
__device__ __forceinline__ void store_run(T *p, int n, bool whole, const elements<T, N> &e)
{
    using chunk = typename tile_chunk<sizeof(T) * N>::type;
    constexpr int each = sizeof(chunk) / sizeof(T);
    if (whole) {
#pragma unroll
        for (int i = 0; i < N / each; i++) {
            chunk raw;
#pragma unroll
            for (int j = 0; j < each; j++) reinterpret_cast<T *>(&raw)[j] = e.v[i * each + j];
            reinterpret_cast<chunk *>(p)[i] = raw;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < n) p[i] = e.v[i];
    }
}

/* As queues: the first becomes the last; one more at the end. Code that is long is there once, for the first, and no
 * index is needed that is not constant. */
template <typename T, int N> __device__ __forceinline__ void turn(elements<T, N> &e)
{
    elements<T, N> turned; /* within itself it would be a move of bytes, and those need an address */
#pragma unroll
    for (int i = 0; i < N; i++) turned.v[i] = e.v[(i + 1) % N];
    e = turned;
}
template <typename T, int N> __device__ __forceinline__ void put(elements<T, N> &e, T last)
{
    e.v[0] = last;
    turn(e);
}

/* Which of N elements from `first` on a dropout keeps. */
template <int N>
__device__ __forceinline__ elements<flag, N> draw(const dropout_source &s, unsigned long long threshold,
                                                  long long first)
{
    elements<flag, N> e;
    if (N % PHILOX_WORDS == 0 && first % PHILOX_WORDS == 0) {
        dropout_blocks<N>(s, threshold, first, e.v, [](bool stays) -> flag { return {stays}; });
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            e.v[i] = {philox_word(s.key, s.stream, (unsigned long long)first + i) >= threshold};
    }
    return e;
}
