/* attention_grad.cu - the gradient of attention, which computes the probabilities again from the scores and lse:
 *
 *     P = exp(q k^T * scale + mask - lse)    dP = dy v^T    dS = P * (dP - delta) * scale
 *     dv = P^T dy    dk = dS^T q    dq = dS k    delta = the sum of dy y by query
 *
 * A block owns a tile of keys and goes over the queries that see them, for dk and dv, or owns a tile of queries and
 * goes over the keys that they see, for dq. Both are the same computation: a tile of scores has rows of the block's own
 * and columns of the other side, and the gradients of own rows add the other ones in ascending order. Every score is
 * computed twice, but no sum is shared by blocks. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_grad.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/operand.cuh"

/* The rows of an item of a view. */
struct item_rows {
    const attention_view &v;
    long long at, count, columns;
    __device__ item_rows(const attention_backward &a, const attention_view &view, long long item, long long n,
                         long long m)
        : v(view), at(attention_at(a.shape, view, item)), count(n), columns(m)
    {
    }
};

/* ---- delta ---- */

extern "C" __global__ void __launch_bounds__(GRAD_BLOCK) attention_grad_delta(attention_backward a)
{
    const attention_shape &s = a.shape;
    const long long warps = GRAD_BLOCK / WARP, rows = s.items * s.queries;
    const int lane = threadIdx.x % WARP;
    for (long long r = blockIdx.x * warps + threadIdx.x / WARP; r < rows; r += gridDim.x * warps) {
        long long query;
        const long long item = divide(r, s.queries, &query);
        const long long y = attention_at(s, a.y, item) + query * a.y.row;
        const long long dy = attention_at(s, a.dy, item) + query * a.dy.row;
        float sum = 0;
        for (long long i = lane * TILE; i < s.width; i += WARP * TILE) {
            float u[TILE], v[TILE];
            tile_load(a.y.data, a.y.dtype, y + i, tile_length(i, s.width), u);
            tile_load(a.dy.data, a.dy.dtype, dy + i, tile_length(i, s.width), v);
#pragma unroll
            for (int j = 0; j < TILE; j++) sum += u[j] * v[j];
        }
        sum = warp_sum(sum);
        if (lane == 0) a.delta[r] = sum;
    }
}
AMPC_KERNEL(attention_grad_delta)

/* ---- what a block computes ---- */

enum : int { SLICE = 16, SIDE = GRAD_TILE / 16, HALF = GRAD_COLUMNS / 2, LANES = 16, BUFFER = 64 * 17 };

/* Shared memory. */
struct buffers {
    float own[BUFFER], other[BUFFER]; /* a slice of each operand, with one number between rows */
    float p[GRAD_TILE][GRAD_TILE + 1], slope[GRAD_TILE][GRAD_TILE + 1]; /* [own][other] */
    float base[GRAD_TILE], log_sum[GRAD_TILE], delta[GRAD_TILE];        /* by query */
};

/* The place of a block; by_key: it owns keys, which `group` items of q from `item` on share. */
struct place {
    long long item, own, column;
};

template <bool by_key> __device__ __forceinline__ place place_of(const attention_backward &a)
{
    const long long rows = by_key ? a.shape.keys : a.shape.queries, group = by_key ? a.group : 1;
    place p;
    p.column = GRAD_COLUMNS *
               divide(divide(blockIdx.x, (rows + GRAD_TILE - 1) / GRAD_TILE, &p.own), a.shape.items / group, &p.item);
    p.item *= group;
    p.own *= GRAD_TILE;
    return p;
}

/* The first query, of a tile, that sees the key. */
__device__ __forceinline__ long long first_query(const attention_shape &s, long long key)
{
    return key <= s.last ? 0 : (key - s.last) / GRAD_TILE * GRAD_TILE;
}

/* Loads the two parts of lse, and delta, of `count` queries of an item, from `query` on. */
__device__ __forceinline__ void load_state(const attention_backward &a, long long item, long long query, int count,
                                           float *base, float *log_sum, float *delta)
{
    const attention_shape &s = a.shape;
    const int i = threadIdx.x;
    if (i >= count) return;
    const bool exists = query + i < s.queries;
    const float *lse = static_cast<const float *>(a.lse.data) + attention_at(s, a.lse, item) + (query + i) * a.lse.row;
    base[i] = exists ? attention_base(lse[0]) : 0;
    log_sum[i] = exists ? lse[1] : 0;
    delta[i] = exists ? a.delta[item * s.queries + query + i] : 0;
}

/* Loads n adjacent low numbers; the rest is 0. */
__device__ __forceinline__ void low_load(const unsigned short *from, int n, uint4 &bits)
{
    if (tile_is_full(from, n)) {
        bits = *reinterpret_cast<const uint4 *>(from);
        return;
    }
    unsigned pairs[TILE / 2] = {};
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (i < n) pairs[i / 2] |= (unsigned)from[i] << i % 2 * 16;
    bits = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

/* Loads a slice of n rows and m columns to to[n][m + 1]; what does not exist is 0. */
template <int n, int m>
__device__ __forceinline__ void load_slice(const item_rows &r, long long row, long long column, float *to)
{
    attention_stage(r.v, r.at, row, r.count, column, r.columns, to, m + 1, n, m);
}

/* The products of rows from `own` on with rows from `other` on. A thread has rows y, y + 16, .. and columns x, x + 16,
 * .. of the tile. */
__device__ __forceinline__ void multiply(const item_rows &a, long long own, const item_rows &b, long long other,
                                         buffers &s, float (&sums)[SIDE][SIDE])
{
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) sums[i][j] = 0;
    for (long long c = 0; c < a.columns; c += SLICE) {
        __syncthreads();
        load_slice<GRAD_TILE, SLICE>(a, own, c, s.own);
        load_slice<GRAD_TILE, SLICE>(b, other, c, s.other);
        __syncthreads();
#pragma unroll
        for (int l = 0; l < SLICE; l++) {
            float u[SIDE], v[SIDE];
#pragma unroll
            for (int i = 0; i < SIDE; i++) {
                u[i] = s.own[(y + LANES * i) * (SLICE + 1) + l];
                v[i] = s.other[(x + LANES * i) * (SLICE + 1) + l];
            }
#pragma unroll
            for (int i = 0; i < SIDE; i++)
#pragma unroll
                for (int j = 0; j < SIDE; j++) sums[i][j] += u[i] * v[j];
        }
    }
}

/* Replaces scores and dP of a tile by P and dS, in shared memory. */
template <bool by_key>
__device__ __forceinline__ void differentiate(const attention_backward &a, long long item, long long own,
                                              long long other, const float (&scores)[SIDE][SIDE],
                                              const float (&slopes)[SIDE][SIDE], buffers &s)
{
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
    const long long mask = attention_at(a.shape, a.mask, item);
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
            const int r = y + LANES * i, c = x + LANES * j, t = by_key ? c : r;
            const long long query = by_key ? other + c : own + r, key = by_key ? own + r : other + c;
            const float score = attention_score(a.shape, a.mask, mask, query, key, scores[i][j]);
            const float p = m_exp_float(score - s.base[t] - s.log_sum[t]);
            s.p[r][c] = p;
            s.slope[r][c] = p == 0 ? 0 : p * a.shape.scale * (slopes[i][j] - s.delta[t]);
        }
}

/* A gradient of the block's own rows, columns from `column` on. */
struct gradient {
    float sums[2][SIDE][SIDE];
};

/* sums += factors[own][other] r[other][column] */
__device__ __forceinline__ void add_slice(const float (&factors)[GRAD_TILE][GRAD_TILE + 1], int first,
                                          const float *slice, float (&sums)[SIDE][SIDE])
{
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
#pragma unroll
    for (int l = 0; l < SLICE; l++) {
        float u[SIDE], v[SIDE];
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
            u[i] = factors[y + LANES * i][first + l];
            v[i] = slice[l * (HALF + 1) + x + LANES * i];
        }
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++) sums[i][j] += u[i] * v[j];
    }
}

/* Adds what the other rows from `other` on contribute: dS a, and P b if the block owns keys. */
template <bool by_key>
__device__ __forceinline__ void add_products(const item_rows &a, const item_rows &b, long long other, long long column,
                                             buffers &s, gradient &to_a, gradient &to_b)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const long long at = column + half * HALF;
        if (at >= a.columns && (!by_key || at >= b.columns)) continue;
#pragma unroll 1
        for (int l = 0; l < GRAD_TILE; l += SLICE) {
            __syncthreads();
            load_slice<SLICE, HALF>(a, other + l, at, s.other);
            if (by_key) load_slice<SLICE, HALF>(b, other + l, at, s.own);
            __syncthreads();
            add_slice(s.slope, l, s.other, to_a.sums[half]);
            if (by_key) add_slice(s.p, l, s.own, to_b.sums[half]);
        }
    }
}

__device__ __forceinline__ void store(const item_rows &r, long long own, long long column, const gradient &g)
{
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
    if (!r.v.data) return;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++) {
                const long long row = own + y + LANES * i, c = column + half * HALF + x + LANES * j;
                if (row < r.count && c < r.columns)
                    element_store(r.v.data, r.v.dtype, r.at + row * r.v.row + c, g.sums[half][i][j]);
            }
}

/* dk and dv of a tile of keys. */
extern "C" __global__ void __launch_bounds__(GRAD_BLOCK, 1) attention_grad_keys(attention_backward a)
{
    __shared__ buffers s;
    const place p = place_of<true>(a);
    const item_rows k(a, a.k, p.item, a.shape.keys, a.shape.depth), v(a, a.v, p.item, a.shape.keys, a.shape.width);
    const long long first = first_query(a.shape, p.own);
    gradient dk = {}, dv = {};
    for (long long item = p.item; item < p.item + a.group; item++) {
        const item_rows q(a, a.q, item, a.shape.queries, a.shape.depth),
            dy(a, a.dy, item, a.shape.queries, a.shape.width);
        for (long long t = first; t < a.shape.queries; t += GRAD_TILE) {
            float scores[SIDE][SIDE], slopes[SIDE][SIDE];
            __syncthreads();
            load_state(a, item, t, GRAD_TILE, s.base, s.log_sum, s.delta);
            multiply(k, p.own, q, t, s, scores);
            multiply(v, p.own, dy, t, s, slopes);
            __syncthreads();
            differentiate<true>(a, item, p.own, t, scores, slopes, s);
            add_products<true>(q, dy, t, p.column, s, dk, dv);
        }
    }
    store(item_rows(a, a.dk, p.item, a.shape.keys, a.shape.depth), p.own, p.column, dk);
    store(item_rows(a, a.dv, p.item, a.shape.keys, a.shape.width), p.own, p.column, dv);
}
AMPC_KERNEL(attention_grad_keys)

/* dq of a tile of queries. */
extern "C" __global__ void __launch_bounds__(GRAD_BLOCK, 1) attention_grad_queries(attention_backward a)
{
    __shared__ buffers s;
    const place p = place_of<false>(a);
    const long long seen = attention_seen(a.shape, p.own + GRAD_TILE - 1);
    const item_rows q(a, a.q, p.item, a.shape.queries, a.shape.depth),
        dy(a, a.dy, p.item, a.shape.queries, a.shape.width), k(a, a.k, p.item, a.shape.keys, a.shape.depth),
        v(a, a.v, p.item, a.shape.keys, a.shape.width);
    gradient dq = {}, none = {};
    load_state(a, p.item, p.own, GRAD_TILE, s.base, s.log_sum, s.delta);
    for (long long t = 0; t < seen; t += GRAD_TILE) {
        float scores[SIDE][SIDE], slopes[SIDE][SIDE];
        multiply(q, p.own, k, t, s, scores);
        multiply(dy, p.own, v, t, s, slopes);
        __syncthreads();
        differentiate<false>(a, p.item, p.own, t, scores, slopes, s);
        add_products<false>(k, v, t, p.column, s, dq, none);
    }
    store(item_rows(a, a.dq, p.item, a.shape.queries, a.shape.depth), p.own, p.column, dq);
}
AMPC_KERNEL(attention_grad_queries)

/* ---- f16 and bf16, by tensor cores: heads of up to GRAD_LOW_COLUMNS columns ----
 *
 * A warp has 16 own rows. Its sums P and dS are, rounded, the left operands of the products that it adds. */

typedef unsigned short low; /* the bits of a number */

template <typename T, int COLUMNS, bool by_key> struct low_gradient {
    static constexpr int OWN = GRAD_TILE,
                         OTHERS = by_key && COLUMNS > 64 ? 32 : 64, /* rows at a time: two gradients need registers */
        STEP = GRAD_LOW_STEP(COLUMNS), SUMS = COLUMNS / 8;          /* SUMS: results of a warp side by side */
    const attention_backward &a;
    low *own_a, *own_b, *other_a, *other_b;
    float *base, *log_sum, *delta; /* by query */
    int row, g, t;                 /* of the warp; of the lane (mma.cuh) */
    int steps_a, steps_b;          /* matrices of 16 columns */
    float to_a[SUMS][4], to_b[by_key ? SUMS : 1][4];

    __device__ low_gradient(const attention_backward &args, low *memory)
        : a(args), own_a(memory), own_b(own_a + GRAD_TILE * STEP), other_a(own_b + GRAD_TILE * STEP),
          other_b(other_a + GRAD_TILE * STEP), base(reinterpret_cast<float *>(other_b + GRAD_TILE * STEP)),
          log_sum(base + GRAD_TILE), delta(log_sum + GRAD_TILE), row(threadIdx.x / WARP * 16),
          g(threadIdx.x % WARP / 4), t(threadIdx.x % 4 * 2), steps_a((int)(a.shape.depth + 15) / 16),
          steps_b((int)(a.shape.width + 15) / 16), to_a(), to_b()
    {
    }

    /* Loads `count` rows, with whole matrices of columns; what does not exist is 0. */
    static __device__ __forceinline__ void load(const item_rows &r, long long first, int count, int steps, low *to)
    {
        const low *from = static_cast<const low *>(r.v.data) + r.at + first * r.v.row;
        for (int i = threadIdx.x; i < count * steps * 2; i += GRAD_LOW_BLOCK) {
            const int y = i / (steps * 2), x = i % (steps * 2) * TILE;
            const bool exists = first + y < r.count && x < r.columns;
            uint4 bits = {0, 0, 0, 0};
            if (exists) low_load(from + y * r.v.row + x, tile_length(x, r.columns), bits);
            *reinterpret_cast<uint4 *>(to + y * STEP + x) = bits;
        }
    }

    /* own[16][..] other[OTHERS][..]^T */
    __device__ __forceinline__ void multiply(const low *own, const low *other, int steps,
                                             float (&sums)[OTHERS / 8][4]) const
    {
#pragma unroll
        for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[n][i] = 0;
#pragma unroll 2
        for (int k = 0; k < steps; k++) {
            unsigned left[4], right[4];
            mma_load_left<false>(own + row * STEP + k * 16, STEP, left);
#pragma unroll
            for (int n = 0; n < OTHERS / 16; n++) {
                mma_load_right<true>(other + n * 16 * STEP + k * 16, STEP, right);
                mma<T>::add(sums[2 * n], left, right[0], right[1]);
                mma<T>::add(sums[2 * n + 1], left, right[2], right[3]);
            }
        }
    }

    /* sums += factors other, where factors are sums of `multiply`. */
    template <int N>
    __device__ __forceinline__ void add(const float (&factors)[OTHERS / 8][4], const low *other, int steps,
                                        float (&sums)[N][4]) const
    {
#pragma unroll
        for (int k = 0; k < OTHERS / 16; k++) {
            unsigned left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[i] = mma<T>::pair(factors[2 * k + i / 2][i % 2 * 2], factors[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < N / 2; n++) {
                if (n >= steps) break;
                mma_load_right<false>(other + k * 16 * STEP + n * 16, STEP, right);
                mma<T>::add(sums[2 * n], left, right[0], right[1]);
                mma<T>::add(sums[2 * n + 1], left, right[2], right[3]);
            }
        }
    }

    /* Replaces scores and dP by P and dS / scale. */
    __device__ __forceinline__ void differentiate(long long item, long long own, long long other,
                                                  float (&scores)[OTHERS / 8][4], float (&slopes)[OTHERS / 8][4]) const
    {
        const attention_shape &s = a.shape;
        const long long mask = attention_at(s, a.mask, item), query = by_key ? other : own, key = by_key ? own : other;
        const int queries = by_key ? OTHERS : OWN, keys = by_key ? OWN : OTHERS;
        const bool whole = !a.mask.data && query + queries <= s.queries && key + keys <= s.keys &&
                           key + keys - 1 <= query + s.last;
#pragma unroll
        for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + g + i / 2 * 8, c = n * 8 + t + i % 2, q = by_key ? c : r, k = by_key ? r : c;
                const float score = whole ? scores[n][i] * s.scale
                                          : attention_score(s, a.mask, mask, query + q, key + k, scores[n][i]);
                const float p = m_exp_float(score - base[q] - log_sum[q]);
                scores[n][i] = p;
                slopes[n][i] = p == 0 ? 0 : p * (slopes[n][i] - delta[q]);
            }
    }

    __device__ __forceinline__ void load_queries(long long item, long long query, int count) const
    {
        load_state(a, item, query, count, base, log_sum, delta);
    }

    /* Adds what the other rows from `other` on contribute. */
    __device__ __forceinline__ void add_tile(long long item, long long own, const item_rows &rows_a,
                                             const item_rows &rows_b, long long other)
    {
        float scores[OTHERS / 8][4], slopes[OTHERS / 8][4];
        __syncthreads();
        load(rows_a, other, OTHERS, steps_a, other_a);
        load(rows_b, other, OTHERS, steps_b, other_b);
        if (by_key) load_queries(item, other, OTHERS);
        __syncthreads();
        multiply(own_a, other_a, steps_a, scores);
        multiply(own_b, other_b, steps_b, slopes);
        differentiate(item, own, other, scores, slopes);
        add(slopes, other_a, steps_a, to_a);
        if (by_key) add(scores, other_b, steps_b, to_b);
    }

    template <int N>
    __device__ __forceinline__ void store(const item_rows &r, long long own, const float (&sums)[N][4],
                                          float factor) const
    {
        if (!r.v.data) return;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const long long y = own + row + g + i / 2 * 8, x = n * 8 + t + i % 2;
                if (y >= r.count || x >= r.columns) continue;
                from_carrier(static_cast<T *>(r.v.data) + r.at + y * r.v.row + x, sums[n][i] * factor);
            }
    }
};

template <typename T, int COLUMNS>
static __device__ __forceinline__ void low_keys(const attention_backward &a, low *memory)
{
    const attention_shape &s = a.shape;
    const place p = place_of<true>(a);
    low_gradient<T, COLUMNS, true> to(a, memory);
    const long long first = first_query(s, p.own);
    to.load(item_rows(a, a.k, p.item, s.keys, s.depth), p.own, GRAD_TILE, to.steps_a, to.own_a);
    to.load(item_rows(a, a.v, p.item, s.keys, s.width), p.own, GRAD_TILE, to.steps_b, to.own_b);
    for (long long item = p.item; item < p.item + a.group; item++) {
        const item_rows q(a, a.q, item, s.queries, s.depth), dy(a, a.dy, item, s.queries, s.width);
        for (long long t = first; t < s.queries; t += to.OTHERS) to.add_tile(item, p.own, q, dy, t);
    }
    to.store(item_rows(a, a.dk, p.item, s.keys, s.depth), p.own, to.to_a, s.scale);
    to.store(item_rows(a, a.dv, p.item, s.keys, s.width), p.own, to.to_b, 1);
}

template <typename T, int COLUMNS>
static __device__ __forceinline__ void low_queries(const attention_backward &a, low *memory)
{
    const attention_shape &s = a.shape;
    const place p = place_of<false>(a);
    low_gradient<T, COLUMNS, false> to(a, memory);
    const long long seen = attention_seen(s, p.own + GRAD_TILE - 1);
    const item_rows k(a, a.k, p.item, s.keys, s.depth), v(a, a.v, p.item, s.keys, s.width);
    to.load(item_rows(a, a.q, p.item, s.queries, s.depth), p.own, GRAD_TILE, to.steps_a, to.own_a);
    to.load(item_rows(a, a.dy, p.item, s.queries, s.width), p.own, GRAD_TILE, to.steps_b, to.own_b);
    to.load_queries(p.item, p.own, GRAD_TILE);
    for (long long t = 0; t < seen; t += to.OTHERS) to.add_tile(p.item, p.own, k, v, t);
    to.store(item_rows(a, a.dq, p.item, s.queries, s.depth), p.own, to.to_a, s.scale);
}

#define LOW_KERNEL(type, T, side, COLUMNS) \
    extern "C" __global__ void __launch_bounds__(GRAD_LOW_BLOCK) \
        attention_grad_##side##_##type##_##COLUMNS(attention_backward a) \
    { \
        AMPC_DYN_SHARED(low, memory); \
        low_##side<T, COLUMNS>(a, memory); \
    } \
    AMPC_KERNEL(attention_grad_##side##_##type##_##COLUMNS)
#define LOW_KERNELS(type, T) \
    LOW_KERNEL(type, T, keys, 64) \
    LOW_KERNEL(type, T, keys, 128) \
    LOW_KERNEL(type, T, queries, 64) \
    LOW_KERNEL(type, T, queries, 128)
LOW_KERNELS(f16, __half)
LOW_KERNELS(bf16, __nv_bfloat16)
