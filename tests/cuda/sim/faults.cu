/* faults.cu - kernels for test_sim.c: correct ones, and variants named after the single fault that they contain.
 *
 * A kernel and its faulty variant share a body whose template argument enables the fault. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"

/* Defines a kernel: name, maximum threads per block, parameters, body. */
#define KERNEL(name, threads, ...)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__);                                 \
    AMPC_KERNEL(name)                                                                                        \
    extern "C" __global__ void name(__VA_ARGS__)

/* ---- barriers ---- */

/* out[i] = in[n - 1 - i], n = blockDim.x, one segment per block. */
template <bool faulty> static __device__ void reverse_body(const float *in, float *out, float *buffer)
{
    long long first = (long long)blockIdx.x * blockDim.x;
    buffer[threadIdx.x] = in[first + threadIdx.x];
    if (!faulty) __syncthreads();
    out[first + threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}
KERNEL(reverse, 1024, const float *in, float *out)
{
    __shared__ float buffer[1024];
    reverse_body<false>(in, out, buffer);
}
KERNEL(reverse_without_barrier, 1024, const float *in, float *out)
{
    __shared__ float buffer[1024];
    reverse_body<true>(in, out, buffer);
}
KERNEL(reverse_dynamic, 1024, const float *in, float *out)
{
    AMPC_DYN_SHARED(float, buffer);
    reverse_body<false>(in, out, buffer);
}

/* out[i] = sum of the block's in + maximum of the block's in, using the same slots twice. */
template <bool faulty> static __device__ void sums_body(const float *in, float *out, float *slots)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    float v = warp_sum(in[i]);
    if (lane == 0) slots[warp] = v;
    __syncthreads();
    float sum = warp_sum(lane < warps ? slots[lane] : 0.0f);
    if (!faulty) __syncthreads(); /* the slots are reused */
    out[i] = sum + block_max(in[i], slots);
}
KERNEL(sums, 1024, const float *in, float *out)
{
    __shared__ float slots[32];
    sums_body<false>(in, out, slots);
}
KERNEL(sums_reusing_slots, 1024, const float *in, float *out)
{
    __shared__ float slots[32];
    sums_body<true>(in, out, slots);
}

KERNEL(divergent_barrier, 1024, const float *in, float *out)
{
    if (threadIdx.x < 40) {
        __syncthreads();
        out[threadIdx.x] = in[threadIdx.x];
    } else {
        __syncthreads();
    }
}
KERNEL(return_before_barrier, 1024, const float *in, float *out)
{
    if (threadIdx.x == blockDim.x - 1) return;
    __syncthreads();
    out[threadIdx.x] = in[threadIdx.x];
}
KERNEL(barrier_in_one_warp, 1024, const float *in, float *out)
{
    float v = in[threadIdx.x];
    if (threadIdx.x % WARP < 16)
        __syncthreads();
    else
        v = warp_sum(v);
    out[threadIdx.x] = v;
}

/* ---- warps ---- */

template <bool faulty> static __device__ void neighbours_body(const float *in, float *out, float *buffer)
{
    buffer[threadIdx.x] = in[grid_first()];
    if (!faulty) __syncwarp();
    out[grid_first()] = buffer[threadIdx.x ^ 1];
}
KERNEL(neighbours, 1024, const float *in, float *out)
{
    __shared__ float buffer[1024];
    neighbours_body<false>(in, out, buffer);
}
KERNEL(neighbours_without_syncwarp, 1024, const float *in, float *out)
{
    __shared__ float buffer[1024];
    neighbours_body<true>(in, out, buffer);
}
KERNEL(shuffle_as_fence, 1024, const float *in, float *out)
{
    __shared__ float buffer[1024];
    buffer[threadIdx.x] = in[threadIdx.x];
    float v = __shfl_sync(WHOLE_WARP, in[threadIdx.x], 0);
    out[threadIdx.x] = buffer[threadIdx.x ^ 1] + 0 * v;
}
KERNEL(half_a_warp, 1024, const float *in, float *out)
{
    float v = in[threadIdx.x];
    if (threadIdx.x % WARP < 16) v += __shfl_xor_sync(0x0000ffffu, v, 1);
    out[threadIdx.x] = v;
}
KERNEL(lanes_returned, 1024, const float *in, float *out)
{
    if (threadIdx.x % WARP >= 30) return;
    out[threadIdx.x] = warp_sum(in[threadIdx.x]);
}
KERNEL(wrong_width, 1024, const float *in, float *out)
{
    out[threadIdx.x] = __shfl_down_sync(WHOLE_WARP, in[threadIdx.x], 1, 12);
}

/* ---- memory ---- */

/* Hides the access from the compiler and UBSan, so that AddressSanitizer has to find the fault. */
static __device__ __attribute__((noipa)) float element(const float *p, unsigned i) { return p[i]; }
KERNEL(shared_one_too_far, 1024, const float *in, float *out)
{
    __shared__ float buffer[64];
    buffer[threadIdx.x % 64] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = element(buffer, threadIdx.x % 64 + 1);
}
KERNEL(dynamic_one_too_far, 1024, const float *in, float *out)
{
    AMPC_DYN_SHARED(float, buffer);
    buffer[threadIdx.x + 1] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = buffer[threadIdx.x + 1];
}
KERNEL(global_one_too_far, 1024, const float *in, float *out)
{
    long long i = grid_first();
    if (i < grid_step()) out[i] = in[i + 1];
}
KERNEL(misaligned, 1024, const float *in, float *out)
{
    if (threadIdx.x % 8 == 0) {
        uint4 raw = *reinterpret_cast<const uint4 *>(in + threadIdx.x + 1);
        out[threadIdx.x] = __uint_as_float(raw.x);
    }
}
KERNEL(shared_unwritten, 1024, const float *in, float *out)
{
    __shared__ float buffer[1024];
    if (threadIdx.x || blockIdx.x % 2) buffer[threadIdx.x] = in[grid_first()]; /* the previous block wrote it */
    __syncthreads();
    out[grid_first()] = buffer[threadIdx.x];
}

/* ---- between blocks ---- */

KERNEL(count, 1024, const float *in, int *n)
{
    if (in[grid_first()] > 0) atomicAdd(n, 1);
}
KERNEL(count_without_atomic, 1024, const float *in, int *n)
{
    if (in[grid_first()] > 0) *n += 1;
}
KERNEL(all_write_one, 1024, const float *in, float *out)
{
    if (in[grid_first()] > -1) out[0] = 1;
}

/* The last block to count itself adds up the results of all blocks; this needs fences on both sides of the counter. */
template <bool before, bool after>
static __device__ void last_block_body(const float *in, float *parts, int *counter, float *total, float *slots)
{
    float sum = block_sum(in[grid_first()], slots);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        if (before) __threadfence();
        bool last = atomicAdd(counter, 1) == (int)gridDim.x - 1;
        if (after) __threadfence();
        if (last) {
            float all = 0;
            for (unsigned b = 0; b < gridDim.x; b++) all += parts[b];
            *total = all;
        }
    }
}
#define LAST_BLOCK(name, before, after)                                                                      \
    KERNEL(name, 1024, const float *in, float *parts, int *counter, float *total)                            \
    {                                                                                                        \
        __shared__ float slots[32];                                                                          \
        last_block_body<before, after>(in, parts, counter, total, slots);                                    \
    }
LAST_BLOCK(last_block, true, true)
LAST_BLOCK(last_block_without_release, false, true)
LAST_BLOCK(last_block_without_acquire, true, false)

/* ---- properties of the model ---- */

/* out[i] += all kinds of arguments; covers all thread and block indices. */
struct parcel {
    long long a;
    short b;
    bool c;
};
KERNEL(indices, 1024, unsigned *out, parcel p, double d, short s)
{
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[i] += (unsigned)p.a + (unsigned)p.b + p.c + (unsigned)d + (unsigned)s;
}

/* Computes sixteen results per lane, in the order of test_sim.c. */
KERNEL(lanes, 32, int *out)
{
    int lane = (int)threadIdx.x, *mine = out + lane * 16;
    mine[0] = __shfl_sync(WHOLE_WARP, lane * 10, 5);
    mine[1] = __shfl_sync(WHOLE_WARP, lane * 10, 5, 8);
    mine[2] = __shfl_up_sync(WHOLE_WARP, lane * 10, 3);
    mine[3] = __shfl_up_sync(WHOLE_WARP, lane * 10, 3, 16);
    mine[4] = __shfl_down_sync(WHOLE_WARP, lane * 10, 3);
    mine[5] = __shfl_down_sync(WHOLE_WARP, lane * 10, 3, 4);
    mine[6] = __shfl_xor_sync(WHOLE_WARP, lane * 10, 9);
    mine[7] = __shfl_xor_sync(WHOLE_WARP, lane * 10, 9, 8);
    mine[8] = (int)__ballot_sync(WHOLE_WARP, lane % 3 == 0);
    mine[9] = __any_sync(WHOLE_WARP, lane == 31) + 2 * __any_sync(WHOLE_WARP, lane > 31);
    mine[10] = __all_sync(WHOLE_WARP, lane < 32) + 2 * __all_sync(WHOLE_WARP, lane);
    mine[11] = __reduce_add_sync(WHOLE_WARP, lane);
    mine[12] = __reduce_min_sync(WHOLE_WARP, lane - 7);
    mine[13] = (int)__reduce_max_sync(WHOLE_WARP, (unsigned)(lane - 7));
    mine[14] = __reduce_or_sync(WHOLE_WARP, 1 << lane / 4) ^ __reduce_and_sync(WHOLE_WARP, 64 + lane);
    mine[15] = (int)(__shfl_xor_sync(WHOLE_WARP, (double)lane + 0.5, 1) * 2) + (int)__shfl_xor_sync(WHOLE_WARP, lane * 1ll, 2);
}

/* out = a b for 16 x 16 matrices, from memory that has them as they are or transposed; `step`: between rows in memory. */
template <typename T, bool faulty>
static __device__ void product_body(const float *a, const float *b, float *out, unsigned short *memory)
{
    enum { STEP = 24, SIZE = 16 * STEP };
    const int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4 * 2;
    for (int i = lane; i < 256; i += WARP) {
        const int row = i / 16, column = i % 16;
        const unsigned short x = (unsigned short)mma<T>::pair(a[i], 0), y = (unsigned short)mma<T>::pair(b[i], 0);
        memory[row * STEP + column] = x;
        memory[SIZE + column * STEP + row] = x;
        memory[2 * SIZE + row * STEP + column] = y;
        memory[3 * SIZE + column * STEP + row] = y;
    }
    if (!faulty) __syncwarp();
    for (int i = 0; i < 4; i++, out += 256) {
        unsigned left[4], right[4];
        if (i / 2) mma_load_left<true>(memory + SIZE, STEP, left);
        else mma_load_left<false>(memory, STEP, left);
        if (i % 2) mma_load_right<true>(memory + 3 * SIZE, STEP, right);
        else mma_load_right<false>(memory + 2 * SIZE, STEP, right);
        for (int half = 0; half < 2; half++) {
            float c[4] = {};
            mma<T>::add(c, left, right[half * 2], right[half * 2 + 1]);
            for (int j = 0; j < 4; j++) out[(g + j / 2 * 8) * 16 + half * 8 + t + j % 2] = c[j];
        }
    }
}
#define PRODUCT(name, type, faulty)                                                                          \
    KERNEL(name, 32, const float *a, const float *b, float *out)                                             \
    {                                                                                                        \
        __shared__ __align__(16) unsigned short memory[4 * 16 * 24];                                         \
        if (blockIdx.x == 0) product_body<type, faulty>(a, b, out, memory);                                  \
    }
PRODUCT(product_f16, __half, false)
PRODUCT(product_bf16, __nv_bfloat16, false)
PRODUCT(product_without_syncwarp, __half, true)
/* The numbers of a lane, rounded in pairs. */
KERNEL(pairs, 32, const float *in, unsigned *out)
{
    const float first = in[threadIdx.x], second = -2 * first;
    out[threadIdx.x * 2] = mma<__half>::pair(first, second);
    out[threadIdx.x * 2 + 1] = mma<__nv_bfloat16>::pair(first, second);
}
KERNEL(product_in_half_a_warp, 32, const float *in, float *out)
{
    float c[4] = {};
    const unsigned a[4] = {};
    if (threadIdx.x < 16) mma<__half>::add(c, a, 0, 0);
    out[threadIdx.x] = c[0] + warp_sum(in[threadIdx.x]);
}

/* Votes across the block; thread 0 stores the sum of all votes in out[blockIdx.x]. */
KERNEL(votes, 1024, int *out)
{
    int i = (int)threadIdx.x, n = (int)blockDim.x;
    int all = __syncthreads_and(i < n) + 10 * __syncthreads_and(i > 0);
    int any = __syncthreads_or(i == n - 1) + 10 * __syncthreads_or(i < 0);
    int count = __syncthreads_count(i % 2);
    if (i == 0) out[blockIdx.x] = all + 100 * any + 10000 * count;
}

KERNEL(atomics, 1024, int *out, unsigned long long *wide)
{
    int i = (int)grid_first();
    atomicAdd(&out[0], i);
    atomicSub(&out[1], 2);
    atomicMin(&out[2], -i);
    atomicMax(&out[3], i);
    atomicOr((unsigned *)&out[4], 1u << i % 32);
    atomicAnd((unsigned *)&out[5], ~(1u << i % 32));
    atomicXor(&out[6], i);
    atomicInc((unsigned *)&out[7], 9);
    atomicCAS(&out[8], i, i + 1);
    atomicExch(&out[9], 7);
    atomicDec((unsigned *)&out[10], 9);
    atomicAdd(wide, 1ull << 33);
}

KERNEL(trap, 1024, const float *in, float *out)
{
    if (in[threadIdx.x] < 0) __trap();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void unbounded(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x]; }
AMPC_KERNEL(unbounded)

KERNEL(sequence, 1024, int *counter, int *out)
{
    out[grid_first()] = atomicAdd(counter, 1);
}
