/* optimizer.cu - the update steps, what a flag selects, and the loss scaler: single passes over memory, safe in place,
 * with what kernels/update.h adds to them.
 *
 * A launch has a table of tensors, cut into units that blocks take in turn. Rate, step number, scale and the flag that
 * skips the step are read on the device, so that one recorded launch serves all steps. The factors of Adam's bias
 * corrections are made in f64, once for each block. Updates and selects write nothing when a fault was found earlier in
 * the step: results may be storage itself. */
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/tile.cuh"

#ifndef CUDASIM_H
/* Sets a flag of a byte that other threads may be setting, too. */
#define AMPC_RAISE(flag) (*static_cast<volatile unsigned char *>(flag) = 1)
#endif

/* ---- tables ---- */

/* The span that a unit belongs to: the last one that begins at or before it. */
template <typename T> static __device__ __forceinline__ int span_of(const T &table, int unit)
{
    int low = 0, high = table.spans;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (table.span[middle].first <= unit) low = middle;
        else high = middle;
    }
    return low;
}

/* f(span, first, n): elements [first, first + n) of the span are this thread's. */
template <typename T, typename F> static __device__ __forceinline__ void spans_each(const T &table, F f)
{
    for (int unit = blockIdx.x; unit < table.units; unit += gridDim.x) {
        const auto &s = table.span[span_of(table, unit)];
        const long long first = (long long)(unit - s.first) * OPTIMIZER_UNIT + (long long)threadIdx.x * TILE;
        if (first < s.count) f(s, first, tile_length(first, s.count));
    }
}

/* ---- gradients ---- */

static __device__ __forceinline__ bool is_finite(float v) { return fabsf(v) < INFINITY; }
/* The factor of a loss of this scale, and a gradient times it: a product that is rounded whatever it goes into. */
static __device__ __forceinline__ float inverse_of(const float *scale) { return scale ? 1 / *scale : 1; }
static __device__ __forceinline__ float unscaled(float gradient, float inverse) { return __fmul_rn(gradient, inverse); }

/* ---- updates ---- */

/* The states of each element, updated by `formula(states, gradient)`; kept as they are when the step is skipped. */
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
#pragma unroll
            for (int i = 0; i < TILE; i++) {
                float one[states];
#pragma unroll
                for (int s = 0; s < states; s++) one[s] = v[s][i];
                formula(one, unscaled(g[i], inverse));
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

extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) sgd(const __grid_constant__ update_table u)
{
    const float lr = *u.lr, decay = (float)u.decay;
    update_tensors<1>(u, [=](float(&s)[1], float g) { s[0] -= lr * (g + decay * s[0]); });
}
AMPC_KERNEL(sgd)

extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) momentum(const __grid_constant__ update_table u)
{
    const float lr = *u.lr, decay = (float)u.decay, mu = u.mu;
    const float own = u.variant ? 1.0f : 0.0f, share = u.variant ? mu : 1.0f; /* update = own g + share v */
    update_tensors<2>(u, [=](float(&s)[2], float grad) {
        const float g = grad + decay * s[0];
        s[1] = mu * s[1] + g;
        s[0] -= lr * (own * g + share * s[1]);
    });
}
AMPC_KERNEL(momentum)

extern "C" __global__ void __launch_bounds__(OPTIMIZER_BLOCK) adamw(const __grid_constant__ update_table u)
{
    __shared__ float corrected[2]; /* lr / (1 - beta1^t), sqrt(1 - beta2^t) */
    if (threadIdx.x == 0) {
        const double t = (double)element_load<long long>(u.step, u.step_dtype, 0) + 1;
        corrected[0] = (float)((double)*u.lr / (1 - pow(u.beta1, t)));
        corrected[1] = (float)sqrt(1 - pow(u.beta2, t));
    }
    __syncthreads();
    const float size = corrected[0], root = corrected[1], eps = u.eps;
    const float l2 = u.variant ? 0.0f : (float)u.decay, shrink = u.variant ? (float)((double)*u.lr * u.decay) : 0.0f;
    const float b1 = (float)u.beta1, c1 = (float)(1 - u.beta1), b2 = (float)u.beta2, c2 = (float)(1 - u.beta2);
    update_tensors<3>(u, [=](float(&s)[3], float grad) {
        const float g = grad + l2 * s[0], kept = s[0] - shrink * s[0];
        s[1] = b1 * s[1] + c1 * g;
        s[2] = b2 * s[2] + c2 * g * g;
        s[0] = kept - size * s[1] / (sqrtf(s[2]) / root + eps);
    });
}
AMPC_KERNEL(adamw)

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

/* ---- the check alone ----
 *
 * Numbers without their sign are ordered like the integers that they are stored as. So there is one largest integer
 * that is finite and stays so when it is unscaled, and an element is larger exactly when its sum with the distance of
 * that integer from the largest of all reaches the sign. A word has one element or two: sums do not carry over. */

static __device__ __forceinline__ float value_of(int magnitude, int dtype)
{
    switch (dtype) {
    case IR_f16: return __half2float(__ushort_as_half((unsigned short)magnitude));
    case IR_bf16: return __uint_as_float((unsigned)magnitude << 16);
    default: return __uint_as_float((unsigned)magnitude);
    }
}

/* -1: not even 0 stays finite. */
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

/* What a thread knows of elements: the signs of `sums` are of those that are too large. */
struct magnitudes {
    unsigned mask, distance, sums;
    __device__ void take(unsigned word) { sums |= (word & mask) + distance; }
    __device__ void take(const uint4 &w) { take(w.x), take(w.y), take(w.z), take(w.w); }
};

/* Of gradients of t's type. */
static __device__ __forceinline__ magnitudes magnitudes_of(const unscale_table &t)
{
    const unsigned largest = (unsigned)largest_finite(t.dtype, inverse_of(t.scale));
    if (t.dtype == IR_f32) return {0x7fffffff, 0x7fffffff - largest, 0};
    return {0x7fff7fff, (0x7fff - largest) * 0x10001, 0};
}

/* The bytes [begin, end) of a gradient, at most a unit; addresses of gradients and units are multiples of a chunk. What
 * the thread reads also goes to f(data, bytes): chunks, and of what is left less than a chunk single elements. */
template <typename F>
static __device__ __forceinline__ void check_unit(const char *grad, long long begin, long long end, int size,
                                                  magnitudes &m, F f)
{
    const long long chunks_end = end / CHECK_CHUNK * CHECK_CHUNK;
    uint4 chunk[CHECK_CHUNKS];
#pragma unroll
    for (int k = 0; k < CHECK_CHUNKS; k++) {
        const long long at = begin + (k * OPTIMIZER_BLOCK + threadIdx.x) * CHECK_CHUNK;
        chunk[k] = make_uint4(0, 0, 0, 0); /* too large only if all elements are */
        if (at < chunks_end) chunk[k] = *reinterpret_cast<const uint4 *>(grad + at);
    }
#pragma unroll
    for (int k = 0; k < CHECK_CHUNKS; k++) {
        m.take(chunk[k]);
        if (begin + (k * OPTIMIZER_BLOCK + threadIdx.x) * CHECK_CHUNK < chunks_end) f(&chunk[k], CHECK_CHUNK);
    }
    const long long at = chunks_end + threadIdx.x * size; /* of the rest, less than a chunk */
    if (at >= end) return;
    const unsigned rest = size == 2 ? *reinterpret_cast<const unsigned short *>(grad + at)
                                    : *reinterpret_cast<const unsigned *>(grad + at);
    m.take(rest);
    f(&rest, size);
}

/* The units of a block. */
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

/* ---- the check, and the sums of squares of the unscaled gradients: squares in f32, sums of them in f64 ---- */

template <typename T> static __device__ __forceinline__ float unscaled_square(const void *element, float inverse)
{
    float v;
    to_carrier(&v, *static_cast<const T *>(element));
    v = unscaled(v, inverse);
    return v * v;
}

/* Of a chunk, pairwise. */
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

/* A sum for each block; those beyond the blocks get nothing added. */
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

/* A chunk a thread; addresses are aligned. A result may be any operand (the condition: one byte). */
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

/* ---- the scale ---- */

/* Counts one more of its kind; true when the counter fires, which resets it. */
static __device__ bool count_up(long long *counter, long long every, int late)
{
    *counter += 1;
    if (late ? *counter <= every : *counter != every) return false;
    *counter = 0;
    return true;
}

/* PaddlePaddle 3 (and 1.8 when `late`): a step of one kind resets the counter of the other. One thread works. */
extern "C" __global__ void __launch_bounds__(WARP) update_loss_scaling(loss_scaling a)
{
    if (threadIdx.x != 0 || !fault_none(a.fault)) return;
    double scale = *a.scale;
    long long good = element_load<long long>(a.good, a.good_dtype, 0);
    long long bad = element_load<long long>(a.bad, a.bad_dtype, 0);
    if (*a.found) {
        good = 0;
        if (count_up(&bad, a.decr_every, a.late)) scale = fmax(a.min, scale * a.decr_ratio);
    } else {
        bad = 0;
        const double grown = scale * a.incr_ratio;
        if (count_up(&good, a.incr_every, a.late) && is_finite((float)grown)) scale = grown;
    }
    if (a.scale_out) *a.scale_out = (float)scale;
    if (a.good_out) element_store(a.good_out, a.good_dtype, 0, good);
    if (a.bad_out) element_store(a.bad_out, a.bad_dtype, 0, bad);
}
AMPC_KERNEL(update_loss_scaling)
