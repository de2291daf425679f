/* cudasim.h - a CPU simulator of the CUDA execution model, for kernels compiled as C++.
 *
 * A .cu file that contains only kernels compiles unchanged with
 *     g++ -x c++ -std=c++17 -include tests/cuda/sim/cudasim.h -ffp-contract=off -fno-strict-aliasing
 *         -Wno-unknown-pragmas
 * or clang++, including NVIDIA's headers of vector and half types. Each thread of a block runs on its own fiber; barriers and warp
 * operations are calls into cudasim.cc, which documents the model. Features that kernels must not use (float atomics, __activemask,
 * printf, __constant__) do not compile. */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <math.h>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <vector_types.h>
#include <vector_functions.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

#include "tests/cuda/sim/cudasim_host.h"

/* ---- kernels ---- */

/* One per AMPC_KERNEL, registered when its program or module starts. */
struct cudasim_kernel {
    const char *name, *file;
    const void *function;
    void (*call)(void *const *arguments);
    int arguments;
    const size_t *sizes;
    char *shared, *shared_end;               /* static shared memory of its .cu file */
    void *const *bounds, *const *bounds_end; /* see __launch_bounds__ */
    const cudasim_kernel *older;
};

struct cudasim_thread {
    uint3 thread, block;
    dim3 threads, blocks;
};

/* Where a kernel waits. `counter` distinguishes two calls on one line. */
struct cudasim_site {
    const char *file, *what;
    int line, counter;
};
#define CUDASIM_SITE(what) (cudasim_site{__FILE__, what, __LINE__, __COUNTER__})

enum cudasim_vote { CUDASIM_AND, CUDASIM_OR, CUDASIM_COUNT };
enum cudasim_lanes {
    CUDASIM_SHUFFLE,
    CUDASIM_BALLOT,
    CUDASIM_SYNC,
    CUDASIM_MULTIPLY_F16,
    CUDASIM_MULTIPLY_BF16,
    CUDASIM_LOAD,
    CUDASIM_LOAD_CROSSED,
    CUDASIM_ADD,
    CUDASIM_MIN,
    CUDASIM_MAX,
    CUDASIM_UMIN,
    CUDASIM_UMAX,
    CUDASIM_BIT_AND,
    CUDASIM_BIT_OR,
    CUDASIM_BIT_XOR
};
enum cudasim_shift { CUDASIM_INDEX, CUDASIM_UP, CUDASIM_DOWN, CUDASIM_XOR };

extern "C" {
void cudasim_register(cudasim_kernel *kernel);
void cudasim_unregister(cudasim_kernel *kernel);
/* const: the result does not change during a thread's life, so the compiler may cache it. */
__attribute__((const)) const cudasim_thread *cudasim_self(void);
int cudasim_barrier(cudasim_site site, int vote, int value);
unsigned long long cudasim_meet(cudasim_site site, unsigned mask, int what, unsigned long long value, int source);
void cudasim_multiply(cudasim_site site, int what, float *c, const unsigned *a, unsigned b0, unsigned b1);
void cudasim_load(cudasim_site site, int what, unsigned *to, const uint4 *row);
int cudasim_source(cudasim_site site, int shift, int argument, int width);
void *cudasim_dynamic_shared(void);
void cudasim_atomic_begin(void *p);
void cudasim_fence(void);
__attribute__((noreturn)) void cudasim_trap(cudasim_site site);
}

/* ---- language keywords ---- */

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __launch_bounds__
#undef __grid_constant__
#undef __forceinline__
#undef __noinline__
#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline)) /* only defined here because the library's headers use this word */
#define __constant__ static_assert(false, "kernel data must be passed as arguments");
#define __managed__ __constant__

/* Static shared memory is in a section with known bounds, which is filled with 0xFF before every block. A program with several .cu
 * files uses a separate section for each. */
#ifndef CUDASIM_SECTION
#define CUDASIM_SECTION cudasim_shared
#endif
#define CUDASIM_TEXT_(text) #text
#define CUDASIM_TEXT(text) CUDASIM_TEXT_(text)
#define CUDASIM_JOIN_(a, b) a##b
#define CUDASIM_JOIN(a, b) CUDASIM_JOIN_(a, b)
#define __shared__ static __attribute__((section(CUDASIM_TEXT(CUDASIM_SECTION))))

/* Emits `threads` patchable instructions before the function, which never run. The compiler lists their start, and the distance
 * from there to the function is the bound. sizeof produces the literal that the attribute requires. */
#define __launch_bounds__(threads, ...) \
    __attribute__((patchable_function_entry(sizeof(char[threads]), sizeof(char[threads]))))

extern "C" {
#define CUDASIM_LINKER extern __attribute__((weak, visibility("hidden")))
CUDASIM_LINKER char CUDASIM_JOIN(__start_, CUDASIM_SECTION)[], CUDASIM_JOIN(__stop_, CUDASIM_SECTION)[];
CUDASIM_LINKER void *const __start___patchable_function_entries[];
CUDASIM_LINKER void *const __stop___patchable_function_entries[];
}

template <typename... A> struct cudasim_signature {
    static_assert((std::is_trivially_copyable_v<A> && ...), "arguments are copied as bytes");
    static_assert((!std::is_reference_v<A> && ...), "arguments are values");
    static constexpr int count = sizeof...(A);
    static constexpr size_t sizes[sizeof...(A) + 1] = {sizeof(A)...};

    template <void (*kernel)(A...)> static void call(void *const *arguments)
    {
        spread<kernel>(arguments, std::make_index_sequence<sizeof...(A)>());
    }
    template <void (*kernel)(A...), size_t... i> static void spread(void *const *arguments, std::index_sequence<i...>)
    {
        (void)arguments;
        kernel(*static_cast<std::remove_cv_t<A> *>(arguments[i])...);
    }
};
template <typename... A> cudasim_signature<A...> cudasim_signature_of(void (*)(A...));

struct cudasim_registration {
    cudasim_kernel *kernel;
    explicit cudasim_registration(cudasim_kernel *k) : kernel(k) { cudasim_register(k); }
    ~cudasim_registration() { cudasim_unregister(kernel); }
};

#define AMPC_KERNEL(kernel) \
    extern "C" cudasim_kernel cudasim_kernel_##kernel; \
    cudasim_kernel cudasim_kernel_##kernel = {#kernel, \
                                              __FILE__, \
                                              reinterpret_cast<const void *>(kernel), \
                                              decltype(cudasim_signature_of(kernel))::template call<kernel>, \
                                              decltype(cudasim_signature_of(kernel))::count, \
                                              decltype(cudasim_signature_of(kernel))::sizes, \
                                              CUDASIM_JOIN(__start_, CUDASIM_SECTION), \
                                              CUDASIM_JOIN(__stop_, CUDASIM_SECTION), \
                                              __start___patchable_function_entries, \
                                              __stop___patchable_function_entries, \
                                              nullptr}; \
    static cudasim_registration cudasim_registration_##kernel(&cudasim_kernel_##kernel);

#define AMPC_DYN_SHARED(type, name) type *const name = static_cast<type *>(cudasim_dynamic_shared())
#define AMPC_RAISE(flag) __atomic_store_n(flag, (unsigned char)1, __ATOMIC_RELAXED)

#define threadIdx (cudasim_self()->thread)
#define blockIdx (cudasim_self()->block)
#define blockDim (cudasim_self()->threads)
#define gridDim (cudasim_self()->blocks)
#define warpSize 32

/* ---- barriers and warps ---- */

#define __syncthreads() ((void)cudasim_barrier(CUDASIM_SITE("__syncthreads"), CUDASIM_COUNT, 0))
#define __syncthreads_and(value) cudasim_barrier(CUDASIM_SITE("__syncthreads_and"), CUDASIM_AND, (value) != 0)
#define __syncthreads_or(value) cudasim_barrier(CUDASIM_SITE("__syncthreads_or"), CUDASIM_OR, (value) != 0)
#define __syncthreads_count(value) cudasim_barrier(CUDASIM_SITE("__syncthreads_count"), CUDASIM_COUNT, (value) != 0)

#define __syncwarp(...) cudasim_syncwarp(CUDASIM_SITE("__syncwarp") __VA_OPT__(, ) __VA_ARGS__)
#define __ballot_sync(mask, value) cudasim_ballot(CUDASIM_SITE("__ballot_sync"), mask, (value) != 0)
#define __any_sync(mask, value) (cudasim_ballot(CUDASIM_SITE("__any_sync"), mask, (value) != 0) != 0)
#define __all_sync(mask, value) (cudasim_ballot(CUDASIM_SITE("__all_sync"), mask, (value) != 0) == (mask))
#define __shfl_sync(...) cudasim_shuffle(CUDASIM_SITE("__shfl_sync"), CUDASIM_INDEX, __VA_ARGS__)
#define __shfl_up_sync(...) cudasim_shuffle(CUDASIM_SITE("__shfl_up_sync"), CUDASIM_UP, __VA_ARGS__)
#define __shfl_down_sync(...) cudasim_shuffle(CUDASIM_SITE("__shfl_down_sync"), CUDASIM_DOWN, __VA_ARGS__)
#define __shfl_xor_sync(...) cudasim_shuffle(CUDASIM_SITE("__shfl_xor_sync"), CUDASIM_XOR, __VA_ARGS__)
#define __reduce_add_sync(...) cudasim_reduce(CUDASIM_SITE("__reduce_add_sync"), CUDASIM_ADD, CUDASIM_ADD, __VA_ARGS__)
#define __reduce_min_sync(...) cudasim_reduce(CUDASIM_SITE("__reduce_min_sync"), CUDASIM_MIN, CUDASIM_UMIN, __VA_ARGS__)
#define __reduce_max_sync(...) cudasim_reduce(CUDASIM_SITE("__reduce_max_sync"), CUDASIM_MAX, CUDASIM_UMAX, __VA_ARGS__)
#define __reduce_and_sync(...) \
    cudasim_reduce(CUDASIM_SITE("__reduce_and_sync"), CUDASIM_BIT_AND, CUDASIM_BIT_AND, __VA_ARGS__)
#define __reduce_or_sync(...) \
    cudasim_reduce(CUDASIM_SITE("__reduce_or_sync"), CUDASIM_BIT_OR, CUDASIM_BIT_OR, __VA_ARGS__)
#define __reduce_xor_sync(...) \
    cudasim_reduce(CUDASIM_SITE("__reduce_xor_sync"), CUDASIM_BIT_XOR, CUDASIM_BIT_XOR, __VA_ARGS__)

/* Products of matrices, and loads of matrices (kernels/cuda/mma.cuh). A lane reads the row that it is given. */
#define AMPC_MMA(type, c, a, b0, b1) \
    cudasim_multiply(CUDASIM_SITE("mma"), type[0] == 'b' ? CUDASIM_MULTIPLY_BF16 : CUDASIM_MULTIPLY_F16, c, a, b0, b1)
#define AMPC_LDMATRIX(suffix, to, row) \
    cudasim_load_row(CUDASIM_SITE("ldmatrix"), suffix[0] ? CUDASIM_LOAD_CROSSED : CUDASIM_LOAD, to, row)
static inline void cudasim_load_row(cudasim_site site, int what, unsigned *to, const void *row)
{
    const uint4 *p = static_cast<const uint4 *>(row);
    const uint4 bits = {p->x, p->y, p->z, p->w}; /* ThreadSanitizer does not see the copy of a struct */
    cudasim_load(site, what, to, &bits);
}

/* A copy is complete when it begins. */
#define AMPC_COPY(to, from, bytes) cudasim_copy(to, from, bytes)
#define AMPC_COPIED() ((void)0)
static inline void cudasim_copy(unsigned short *to, const unsigned short *from, int bytes)
{
    for (int i = 0; i < 8; i++) to[i] = i < bytes / 2 ? from[i] : (unsigned short)0;
}

static inline void cudasim_syncwarp(cudasim_site site, unsigned mask = 0xffffffffu)
{
    cudasim_meet(site, mask, CUDASIM_SYNC, 0, 0);
}
static inline unsigned cudasim_ballot(cudasim_site site, unsigned mask, bool value)
{
    return (unsigned)cudasim_meet(site, mask, CUDASIM_BALLOT, value, 0);
}
template <typename T>
static inline T cudasim_shuffle(cudasim_site site, int shift, unsigned mask, T value, int argument, int width = 32)
{
    static_assert(sizeof(T) <= sizeof(unsigned long long) && std::is_trivially_copyable_v<T>,
                  "a shuffle moves 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, static_cast<const void *>(&value), sizeof value);
    bits = cudasim_meet(site, mask, CUDASIM_SHUFFLE, bits, cudasim_source(site, shift, argument, width));
    memcpy(static_cast<void *>(&value), &bits, sizeof value);
    return value;
}
template <typename T>
static inline T cudasim_reduce(cudasim_site site, int as_signed, int as_unsigned, unsigned mask, T value)
{
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>, "warp reductions are for int and unsigned");
    return (T)cudasim_meet(site, mask, std::is_signed_v<T> ? as_signed : as_unsigned, (unsigned)value, 0);
}

/* ---- atomics: integers only, because the order of float additions would affect the result ----
 *
 * As on the device, atomics alone do not order other accesses. For one block to see what another wrote, there must be a
 * __threadfence between the writes and the atomic of the writer, and between the atomic and the reads of the reader. */

template <typename T, typename F> static inline T cudasim_update(T *p, F f)
{
    static_assert(std::is_integral_v<T> && sizeof(T) >= 4, "float atomics are not deterministic");
    cudasim_atomic_begin(p);
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, f(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
/* Prevents deduction from the second argument, like CUDA's overloads: atomicAdd(&counter, 1). */
template <typename T> struct cudasim_same {
    using type = T;
};
#define CUDASIM_ATOMIC(name, expression) \
    template <typename T> static inline T name(T *p, typename cudasim_same<T>::type v) \
    { \
        return cudasim_update(p, [v](T old) -> T { return expression; }); \
    }
CUDASIM_ATOMIC(atomicAdd, (T)((unsigned long long)old + (unsigned long long)v))
CUDASIM_ATOMIC(atomicSub, (T)((unsigned long long)old - (unsigned long long)v))
CUDASIM_ATOMIC(atomicMin, old < v ? old : v)
CUDASIM_ATOMIC(atomicMax, old > v ? old : v)
CUDASIM_ATOMIC(atomicAnd, old &v)
CUDASIM_ATOMIC(atomicOr, old | v)
CUDASIM_ATOMIC(atomicXor, old ^ v)
CUDASIM_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
CUDASIM_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
CUDASIM_ATOMIC(atomicExch, ((void)old, v))
template <typename T>
static inline T atomicCAS(T *p, typename cudasim_same<T>::type expected, typename cudasim_same<T>::type v)
{
    return cudasim_update(p, [expected, v](T old) -> T { return old == expected ? v : old; });
}
#define __threadfence() cudasim_fence()
#define __threadfence_block() ((void)0) /* orders a block, for which our kernels use barriers */
#define __threadfence_system() cudasim_fence()

#define __trap() cudasim_trap(CUDASIM_SITE("__trap"))

#include "tests/cuda/sim/cudasim_math.h"

#endif
