/* optimizer.cu - optimizer updates, select and the loss scaler, with the fused operations of kernels/update.h. Each
 * kernel is a single pass over memory and works in place.
 *
 * A launch has a table of tensors, divided into units that blocks process in turn. Learning rate, step number, loss
 * scale and the skip flag are read on the device, so one captured launch serves all steps. The formulas are in
 * ir/ops/updates.def; what is the same for all elements is computed in f64, once per block. Updates and selects write
 * nothing after an earlier fault in the step, because their results may be storage. */
#include "kernels/cuda/spans.cuh"

#define UPDATE_FN static K_FORMULA
#include "kernels/cuda/optimizer.h"

#ifndef AMPC_RAISE
/* Sets a byte that other threads may also be setting. */
#define AMPC_RAISE(flag) (*static_cast<volatile unsigned char *>(flag) = 1)
#endif

/* ---- gradients ---- */

static __device__ __forceinline__ bool is_finite(float v) { return fabsf(v) < INFINITY; }
/* Unscaling: the factor 1 / scale, and the product, rounded explicitly so that it is never contracted to an FMA. */
static __device__ __forceinline__ float inverse_of(const float *scale) { return scale ? 1 / *scale : 1; }
static __device__ __forceinline__ float unscaled(float gradient, float inverse) { return __fmul_rn(gradient, inverse); }

/* ---- updates ---- */

/* Updates the states of each element by `formula(states, gradient, ratio)`; copies them if the step is skipped. */
template <int states, typename F>
static __device__ __forceinline__ void update_tensors(const update_table &table, F formula)
{
    const bool moving = !(table.skip && *table.skip);
    const float inverse = inverse_of(table.scale);
    if (!fault_none(table.fault)) return;
    spans_each(table, [&](const update_span &u, long long first, int n) {
        float v[states][TILE], g[TILE];
#pragma unroll
        for (int s = 0; s < states; s++) load_typed(u.old[s] + first, n, v[s]);
        if (moving) {
            tile_load(u.grad, table.grad_dtype, first, n, g);
            const float ratio = u.ratio ? *u.ratio : 1;
#pragma unroll
            for (int i = 0; i < TILE; i++) {
                float one[states];
#pragma unroll
                for (int s = 0; s < states; s++) one[s] = v[s][i];
                formula(one, unscaled(g[i], inverse), ratio);
#pragma unroll
                for (int s = 0; s < states; s++) v[s][i] = one[s];
            }
        }
#pragma unroll
        for (int s = 0; s < states; s++)
            if (u.made[s] && (moving || u.made[s] != u.old[s])) store_typed(u.made[s] + first, n, v[s]);
        if (u.low && (moving || u.made[0] != u.old[0])) tile_store(u.low, table.low_dtype, first, n, v[0]);
    });
}

/* The numbers of an update, rounded to f32. */
struct numbers {
#define FIELD(name) float name;
    UPDATE_NUMBERS(FIELD)
#undef FIELD
};

/* Computes the numbers in one thread; all threads of the block call it. */
template <typename F>
static __device__ __forceinline__ numbers numbers_of(const update_table &u, numbers *shared, F once)
{
    if (threadIdx.x == 0) {
        update_numbers n = {};
        once(&n, u.attr, u.lr ? (double)*u.lr : 0,
             u.step ? (double)element_load<long long>(u.step, u.step_dtype, 0) + 1 : 1);
#define FIELD(name) shared->name = (float)n.name;
        UPDATE_NUMBERS(FIELD)
#undef FIELD
    }
    __syncthreads();
    return *shared;
}

#define REAL float
#define SQRT(x) sqrtf(x)
#define UPDATE(op, n_states, rate, step_, ratio_, once, ...)                                                         \
    extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) op(const __grid_constant__ update_table u)         \
    {                                                                                                                \
        __shared__ numbers shared;                                                                                   \
        const numbers k = numbers_of(u, &shared, update_once_##op);                                                  \
        update_tensors<n_states>(u, [=](float(&s)[n_states], float g, float ratio) {                                 \
            float none = 0;                                                                                          \
            float &p = s[0], &a = n_states > 1 ? s[1 % n_states] : none, &b = n_states > 2 ? s[2 % n_states] : none, \
                  &c = n_states > 3 ? s[3 % n_states] : none;                                                        \
            (void)a, (void)b, (void)c, (void)ratio;                                                                  \
            __VA_ARGS__                                                                                              \
        });                                                                                                          \
    }                                                                                                                \
    AMPC_KERNEL(op)
#include "ir/ops/updates.def"
#undef REAL
#undef SQRT

/* ---- the loss scaler ---- */

extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) unscale(const __grid_constant__ unscale_table t)
{
    const float inverse = inverse_of(t.scale);
    int bad = 0;
    spans_each(t, [&](const unscale_span &s, long long first, int n) {
        float v[TILE];
        tile_load(s.grad, t.dtype, first, n, v);
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            const float scaled = unscaled(v[i], inverse);
            bad |= i < n && !(is_finite(v[i]) && is_finite(scaled));
            v[i] = scaled;
        }
        if (s.to) store_typed(s.to + first, n, v);
    });
    bad = __syncthreads_or(bad);
    if (threadIdx.x == 0 && bad && t.found) AMPC_RAISE(t.found);
}
AMPC_KERNEL(unscale)

/* ---- check_finite ----
 *
 * The bits of floats without their sign are ordered like integers. So there is a largest integer whose float is finite
 * and stays finite when unscaled. An element is too large if and only if adding the distance between that integer and
 * the largest positive one carries into the sign bit. A word has one or two elements, and their sums cannot carry into
 * each other. */

static __device__ __forceinline__ float value_of(int magnitude, int dtype)
{
    switch (dtype) {
    case IR_f16: return __half2float(__ushort_as_half((unsigned short)magnitude));
    case IR_bf16: return __uint_as_float((unsigned)magnitude << 16);
    default: return __uint_as_float((unsigned)magnitude);
    }
}

/* Returns -1 if not even 0 stays finite. */
static __device__ int largest_finite(int dtype, float inverse)
{
    int bad = dtype == IR_f16 ? 0x7c00 : dtype == IR_bf16 ? 0x7f80 : 0x7f800000; /* infinity */
    int good = -1, next = bad - 1; /* nearly always good */
    while (bad - good > 1) {
        if (is_finite(unscaled(value_of(next, dtype), inverse))) good = next;
        else bad = next;
        next = good + (bad - good) / 2;
    }
    return good;
}

/* State of a thread: a sign bit in `sums` is set if any element was too large. */
struct magnitudes {
    unsigned mask, distance, sums;
    __device__ void add(unsigned word) { sums |= (word & mask) + distance; }
    __device__ void add(const uint4 &w) { add(w.x), add(w.y), add(w.z), add(w.w); }
};

/* For gradients of t's type. */
static __device__ __forceinline__ magnitudes magnitudes_of(const unscale_table &t)
{
    const unsigned largest = (unsigned)largest_finite(t.dtype, inverse_of(t.scale));
    if (t.dtype == IR_f32) return {0x7fffffff, 0x7fffffff - largest, 0};
    return {0x7fff7fff, (0x7fff - largest) * 0x10001, 0};
}

/* Checks bytes [begin, end) of a gradient, at most one unit. Gradients and units are aligned to chunks. Also calls
 * f(data, bytes) for everything that the thread reads: chunks and, at the end, single elements. */
template <typename F>
static __device__ __forceinline__ void check_unit(const char *grad, long long begin, long long end, int size,
                                                  magnitudes &m, F f)
{
    const long long chunks_end = end / CHECK_CHUNK * CHECK_CHUNK;
    uint4 chunk[CHECK_CHUNKS];
#pragma unroll
    for (int k = 0; k < CHECK_CHUNKS; k++) {
        const long long at = begin + (k * OPTIMIZER_BLOCK + threadIdx.x) * CHECK_CHUNK;
        chunk[k] = make_uint4(0, 0, 0, 0); /* zeros are too large only if all elements are */
        if (at < chunks_end) chunk[k] = *reinterpret_cast<const uint4 *>(grad + at);
    }
#pragma unroll
    for (int k = 0; k < CHECK_CHUNKS; k++) {
        m.add(chunk[k]);
        if (begin + (k * OPTIMIZER_BLOCK + threadIdx.x) * CHECK_CHUNK < chunks_end) f(&chunk[k], CHECK_CHUNK);
    }
    const long long at = chunks_end + threadIdx.x * size; /* the remainder, less than a chunk */
    if (at >= end) return;
    const unsigned rest = size == 2 ? *reinterpret_cast<const unsigned short *>(grad + at)
                                    : *reinterpret_cast<const unsigned *>(grad + at);
    m.add(rest);
    f(&rest, size);
}

/* Checks the units of a block. */
template <typename F>
static __device__ __forceinline__ void check_units(const unscale_table &t, int size, magnitudes &m, F f)
{
    for (int unit = blockIdx.x; unit < t.units; unit += gridDim.x) {
        const unscale_span &s = t.span[span_of(t, unit)];
        const long long begin = (long long)(unit - s.first) * CHECK_UNIT, bytes = s.count * size;
        const long long end = begin + CHECK_UNIT < bytes ? begin + CHECK_UNIT : bytes;
        check_unit(static_cast<const char *>(s.grad), begin, end, size, m, f);
    }
}

static __device__ __forceinline__ void raise_found(const unscale_table &t, const magnitudes &m)
{
    const int bad = __syncthreads_or((m.sums & ~m.mask) != 0);
    if (threadIdx.x == 0 && bad && t.found) AMPC_RAISE(t.found);
}

extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) check_finite(const __grid_constant__ unscale_table t)
{
    magnitudes m = magnitudes_of(t);
    check_units(t, t.dtype == IR_f32 ? 4 : 2, m, [](const void *, int) {});
    raise_found(t, m);
}
AMPC_KERNEL(check_finite)

/* ---- check_finite, plus sums of squares of the unscaled gradients: squares in f32, summed in f64 ---- */

template <typename T> static __device__ __forceinline__ float unscaled_square(const void *element, float inverse)
{
    float v;
    to_carrier(&v, *static_cast<const T *>(element));
    v = unscaled(v, inverse);
    return v * v;
}

/* Returns the sum of squares of a chunk, added pairwise. */
template <typename T> static __device__ __forceinline__ float chunk_squares(const void *chunk, float inverse)
{
    constexpr int n = CHECK_CHUNK / sizeof(T);
    float v[n];
#pragma unroll
    for (int i = 0; i < n; i++) v[i] = unscaled_square<T>(static_cast<const T *>(chunk) + i, inverse);
#pragma unroll
    for (int half = n / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++) v[i] += v[i + half];
    return v[0];
}

/* Each block adds to one sum; surplus sums keep their previous value. */
extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) check_and_square(const __grid_constant__ unscale_table t)
{
    __shared__ double slots[WARP];
    const float inverse = inverse_of(t.scale);
    magnitudes m = magnitudes_of(t);
    double sum = 0;
    with_stored(0.0f, t.dtype, [&](auto s) {
        using T = typename decltype(s)::type;
        check_units(t, sizeof(T), m, [&](const void *data, int bytes) {
            sum += bytes == CHECK_CHUNK ? chunk_squares<T>(data, inverse) : unscaled_square<T>(data, inverse);
        });
    });
    raise_found(t, m);
    sum = block_sum(sum, slots);
    for (int i = blockIdx.x + threadIdx.x * gridDim.x; i < t.sums; i += (int)(blockDim.x * gridDim.x))
        t.squares[i] = (t.before ? t.before[i] : 0) + (i == (int)blockIdx.x ? sum : 0);
}
AMPC_KERNEL(check_and_square)

/* ---- select ---- */

/* One chunk per thread; addresses are aligned. A result may alias any operand (the condition: only a one-byte
 * result). */
extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) select_tensors(const __grid_constant__ select_table t)
{
    if (!fault_none(t.fault)) return;
    for (int unit = blockIdx.x; unit < t.units; unit += gridDim.x) {
        const select_span &s = t.span[span_of(t, unit)];
        const long long at = (long long)(unit - s.first) * SELECT_UNIT + (long long)threadIdx.x * SELECT_CHUNK;
        if (at >= s.count) continue;
        const char *from = *t.cond ? s.a : s.b;
        if (from == s.y) continue;
        if (s.count - at >= SELECT_CHUNK) {
            *reinterpret_cast<uint4 *>(s.y + at) = *reinterpret_cast<const uint4 *>(from + at);
        } else {
            for (long long i = at; i < s.count; i++) s.y[i] = from[i];
        }
    }
}
AMPC_KERNEL(select_tensors)

/* ---- loss scale ---- */

/* Increments a counter. Returns true, and resets it, when it reaches its limit. */
static __device__ bool count_up(long long *counter, long long every, int late)
{
    *counter += 1;
    if (late ? *counter <= every : *counter != every) return false;
    *counter = 0;
    return true;
}

/* Counts a bad step. With hysteresis the counter stays at its limit until a good step resets it. */
static __device__ bool count_bad(long long *counter, const loss_scaling &a)
{
    if (!a.hysteresis) return count_up(counter, a.decr_every, a.late);
    *counter += *counter < a.decr_every;
    return *counter == a.decr_every;
}

/* As in PaddlePaddle 3 (with `late`, 1.8): a good step resets the counter of bad steps and vice versa. Uses one
 * thread. */
extern "C" __global__ void __launch_bounds__(WARP) update_loss_scaling(loss_scaling a)
{
    if (threadIdx.x != 0 || !fault_none(a.fault)) return;
    double scale = *a.scale;
    long long good = element_load<long long>(a.good, a.good_dtype, 0);
    long long bad = element_load<long long>(a.bad, a.bad_dtype, 0);
    if (good < 0) { /* switched off */
    } else if (*a.found) {
        good = 0;
        if (count_bad(&bad, a)) scale = fmax(a.min, scale * a.decr_ratio);
    } else {
        bad = 0;
        const double grown = scale * a.incr_ratio;
        if (count_up(&good, a.incr_every, a.late) && is_finite((float)grown)) scale = fmin(a.max, grown);
    }
    if (a.scale_out) *a.scale_out = (float)scale;
    if (a.good_out) element_store(a.good_out, a.good_dtype, 0, good);
    if (a.bad_out) element_store(a.bad_out, a.bad_dtype, 0, bad);
}
AMPC_KERNEL(update_loss_scaling)
