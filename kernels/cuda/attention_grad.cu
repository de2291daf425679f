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

/* The two parts of lse, and delta, of the queries from `query` on of an item of q. */
__device__ __forceinline__ void load_state(const attention_backward &a, long long item, long long query, buffers &s)
{
    const int i = threadIdx.x;
    if (i >= GRAD_TILE) return;
    const bool exists = query + i < a.shape.queries;
    const float *lse = static_cast<const float *>(a.lse.data) + attention_at(a.shape, a.lse, item) +
                       (query + i) * a.lse.row;
    s.base[i] = exists ? attention_base(lse[0]) : 0;
    s.log_sum[i] = exists ? lse[1] : 0;
    s.delta[i] = exists ? a.delta[item * a.shape.queries + query + i] : 0;
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
    const long long first = p.own - a.shape.last < 0 ? 0 : (p.own - a.shape.last) / GRAD_TILE * GRAD_TILE;
    gradient dk = {}, dv = {};
    for (long long item = p.item; item < p.item + a.group; item++) {
        const item_rows q(a, a.q, item, a.shape.queries, a.shape.depth),
            dy(a, a.dy, item, a.shape.queries, a.shape.width);
        for (long long t = first; t < a.shape.queries; t += GRAD_TILE) {
            float scores[SIDE][SIDE], slopes[SIDE][SIDE];
            __syncthreads();
            load_state(a, item, t, s);
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
    load_state(a, p.item, p.own, s);
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
