/* attention_grad.cu - the gradient of attention, which computes the probabilities again from the scores and lse:
 *
 *     P = exp(q k^T * scale + mask - lse)    dP = dy v^T    dS = P * (dP - delta) * scale
 *     dv = P^T dy    dk = dS^T q    dq = dS k    delta = the sum of dy y by query
 *
 * With dropout, D = 1 / (1 - ratio) where a probability stays and 0 elsewhere: dP = (dy v^T) * D, dv = (P * D)^T dy.
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

/* ---- queries ---- */

/* What is known of a query: its two parts of lse, and delta. */
struct query_numbers {
    float base, log_sum, delta;
};

/* Those of query number threadIdx.x of a tile, from `query` on, of an item. */
__device__ __forceinline__ query_numbers query_get(const attention_backward &a, long long item, long long query)
{
    const attention_shape &s = a.shape;
    query += threadIdx.x;
    if (threadIdx.x >= GRAD_TILE || query >= s.queries) return {0, 0, 0};
    const float *lse = static_cast<const float *>(a.lse.data) + attention_at(s, a.lse, item) + query * a.lse.row;
    return {attention_base(lse[0]), lse[1], a.delta[item * s.queries + query]};
}

/* Those of a tile, in shared memory. */
struct query_state {
    float base[GRAD_TILE], log_sum[GRAD_TILE], delta[GRAD_TILE];

    __device__ __forceinline__ void put(const query_numbers &n)
    {
        const int i = threadIdx.x;
        if (i < GRAD_TILE) base[i] = n.base, log_sum[i] = n.log_sum, delta[i] = n.delta;
    }
    /* The logarithm of the probability. */
    __device__ __forceinline__ float log_probability(int i, float score) const { return score - base[i] - log_sum[i]; }
    /* dS / scale */
    __device__ __forceinline__ float slope(int i, float p, float dp) const { return p == 0 ? 0 : p * (dp - delta[i]); }
};

/* ---- what a block computes, in terms of G, which has the sums ---- */

/* Where a block is; by_key: it owns keys, which `group` items of q from `item` on share. */
struct place {
    long long item, own, column;
};

template <bool by_key> __device__ __forceinline__ place place_of(const attention_backward &a)
{
    const long long rows = by_key ? a.shape.keys : a.shape.queries, group = by_key ? a.group : 1;
    const long long tiles = (rows + GRAD_TILE - 1) / GRAD_TILE;
    place p;
    p.column = GRAD_COLUMNS * divide(divide(blockIdx.x, tiles, &p.own), a.shape.items / group, &p.item);
    p.item *= group;
    p.own = (by_key ? p.own : tiles - 1 - p.own) * GRAD_TILE; /* the blocks with the most work come first */
    return p;
}

/* The first query, of a tile, that sees the key. */
__device__ __forceinline__ long long first_query(const attention_shape &s, long long key)
{
    return key <= s.last ? 0 : (key - s.last) / GRAD_TILE * GRAD_TILE;
}

/* dk and dv of a tile of keys. */
template <typename G, typename M> static __device__ __forceinline__ void keys_of(const attention_backward &a, M *memory)
{
    const attention_shape &s = a.shape;
    const place p = place_of<true>(a);
    const item_rows k(a, a.k, p.item, s.keys, s.depth), v(a, a.v, p.item, s.keys, s.width);
    G to(a, memory, p.own, p.column, k, v);
    for (long long item = p.item; item < p.item + a.group; item++)
        to.add(item, item_rows(a, a.q, item, s.queries, s.depth), item_rows(a, a.dy, item, s.queries, s.width),
               first_query(s, p.own), s.queries);
    to.store(item_rows(a, a.dk, p.item, s.keys, s.depth), to.to_a, s.scale);
    to.store(item_rows(a, a.dv, p.item, s.keys, s.width), to.to_b, 1);
}

/* dq of a tile of queries. */
template <typename G, typename M>
static __device__ __forceinline__ void queries_of(const attention_backward &a, M *memory)
{
    const attention_shape &s = a.shape;
    const place p = place_of<false>(a);
    const item_rows q(a, a.q, p.item, s.queries, s.depth), dy(a, a.dy, p.item, s.queries, s.width);
    G to(a, memory, p.own, p.column, q, dy);
    to.queries().put(query_get(a, p.item, p.own));
    to.add(p.item, item_rows(a, a.k, p.item, s.keys, s.depth), item_rows(a, a.v, p.item, s.keys, s.width), 0,
           attention_seen(s, p.own + GRAD_TILE - 1));
    to.store(item_rows(a, a.dq, p.item, s.queries, s.depth), to.to_a, s.scale);
}

/* ---- all types and sizes, in f32 ----
 *
 * A thread has rows y, y + 16, .. and columns x, x + 16, .. of the tile of scores, and of a gradient. */

enum : int { SLICE = 16, SIDE = GRAD_TILE / 16, HALF = GRAD_COLUMNS / 2, LANES = 16, SLICE_SIZE = GRAD_TILE * 17 };

struct plain_memory {
    float own[SLICE_SIZE], other[SLICE_SIZE]; /* slices of operands, with one number between rows */
    float p[GRAD_TILE][GRAD_TILE + 1], slope[GRAD_TILE][GRAD_TILE + 1]; /* [own][other] */
    query_state queries;
};

/* sums[i][j] += u[row i] v[row or column j] */
__device__ __forceinline__ void add_outer(const float *u, int u_step, const float *v, int v_step,
                                          float (&sums)[SIDE][SIDE])
{
    float x[SIDE], y[SIDE];
#pragma unroll
    for (int i = 0; i < SIDE; i++) x[i] = u[i * u_step], y[i] = v[i * v_step];
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) sums[i][j] += x[i] * y[j];
}

/* Loads a slice of n rows and m columns to to[n][m + 1]; what does not exist is 0. */
template <int n, int m>
__device__ __forceinline__ void load_slice(const item_rows &r, long long row, long long column, float *to)
{
    attention_stage(r.v, r.at, row, r.count, column, r.columns, to, m + 1, n, m);
}

template <bool by_key> struct plain_gradient {
    const attention_backward &a;
    plain_memory &m;
    const long long own, column;
    const item_rows &own_a, &own_b;
    const int x, y;
    float to_a[2][SIDE][SIDE], to_b[2][SIDE][SIDE];

    __device__ plain_gradient(const attention_backward &args, plain_memory *memory, long long row, long long first,
                              const item_rows &rows_a, const item_rows &rows_b)
        : a(args), m(*memory), own(row), column(first), own_a(rows_a), own_b(rows_b), x(threadIdx.x % LANES),
          y(threadIdx.x / LANES), to_a(), to_b()
    {
    }

    __device__ __forceinline__ query_state &queries() const { return m.queries; }

    /* The products of own rows with rows from `other` on. */
    __device__ __forceinline__ void multiply(const item_rows &u, const item_rows &v, long long other,
                                             float (&sums)[SIDE][SIDE]) const
    {
        for (long long c = 0; c < u.columns; c += SLICE) {
            __syncthreads();
            load_slice<GRAD_TILE, SLICE>(u, own, c, m.own);
            load_slice<GRAD_TILE, SLICE>(v, other, c, m.other);
            __syncthreads();
#pragma unroll
            for (int l = 0; l < SLICE; l++)
                add_outer(m.own + y * (SLICE + 1) + l, LANES * (SLICE + 1), m.other + x * (SLICE + 1) + l,
                          LANES * (SLICE + 1), sums);
        }
    }

    /* Writes P and dS of scores and dP to shared memory. */
    __device__ __forceinline__ void differentiate(long long item, long long other, const float (&scores)[SIDE][SIDE],
                                                  const float (&slopes)[SIDE][SIDE]) const
    {
        const long long mask = attention_at(a.shape, a.mask, item);
        const attention_dropout &dropout = a.shape.dropout;
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++) {
                const int r = y + LANES * i, c = x + LANES * j, t = by_key ? c : r;
                const long long query = by_key ? other + c : own + r, key = by_key ? own + r : other + c;
                const float score = attention_score(a.shape, a.mask, mask, query, key, scores[i][j]);
                const float p = m_exp_float(m.queries.log_probability(t, score));
                const bool stays = !dropout.rng || attention_keeps(a.shape, item, query, key);
                m.p[r][c] = dropped(p, stays, dropout.scale);
                m.slope[r][c] = m.queries.slope(t, p, dropped(slopes[i][j], stays, dropout.scale));
            }
    }

    __device__ __forceinline__ void add_products(const item_rows &rows_a, const item_rows &rows_b, long long other)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const long long at = column + half * HALF;
            if (at >= rows_a.columns && (!by_key || at >= rows_b.columns)) continue;
#pragma unroll 1
            for (int first = 0; first < GRAD_TILE; first += SLICE) {
                __syncthreads();
                load_slice<SLICE, HALF>(rows_a, other + first, at, m.other);
                if (by_key) load_slice<SLICE, HALF>(rows_b, other + first, at, m.own);
                __syncthreads();
#pragma unroll
                for (int l = 0; l < SLICE; l++) {
                    const int from = l * (HALF + 1) + x;
                    add_outer(&m.slope[y][first + l], LANES * (GRAD_TILE + 1), m.other + from, LANES, to_a[half]);
                    if (by_key) add_outer(&m.p[y][first + l], LANES * (GRAD_TILE + 1), m.own + from, LANES, to_b[half]);
                }
            }
        }
    }

    /* Adds what the other rows [begin, end) contribute. The barriers of multiply and add_products order the uses of
     * shared memory: neither has nothing to do if the block has results. */
    __device__ __forceinline__ void add(long long item, const item_rows &rows_a, const item_rows &rows_b,
                                        long long begin, long long end)
    {
        for (long long other = begin; other < end; other += GRAD_TILE) {
            float scores[SIDE][SIDE] = {}, slopes[SIDE][SIDE] = {};
            if (by_key) m.queries.put(query_get(a, item, other));
            multiply(own_a, rows_a, other, scores);
            multiply(own_b, rows_b, other, slopes);
            differentiate(item, other, scores, slopes);
            add_products(rows_a, rows_b, other);
        }
    }

    __device__ __forceinline__ void store(const item_rows &r, const float (&sums)[2][SIDE][SIDE], float factor) const
    {
        if (!r.v.data) return;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < SIDE; i++)
#pragma unroll
                for (int j = 0; j < SIDE; j++) {
                    const long long row = own + y + LANES * i, c = column + half * HALF + x + LANES * j;
                    if (row < r.count && c < r.columns)
                        element_store(r.v.data, r.v.dtype, r.at + row * r.v.row + c, sums[half][i][j] * factor);
                }
    }
};

/* blocks: on a multiprocessor, as many as the registers allow without spills */
#define PLAIN_KERNEL(side, by_key, blocks) \
    extern "C" __global__ void __launch_bounds__(GRAD_BLOCK, blocks) attention_grad_##side(attention_backward a) \
    { \
        __shared__ plain_memory memory; \
        side##_of<plain_gradient<by_key>>(a, &memory); \
    } \
    AMPC_KERNEL(attention_grad_##side)
PLAIN_KERNEL(keys, true, 1)
PLAIN_KERNEL(queries, false, 2)

/* ---- f16 and bf16, on tensor cores: heads of up to GRAD_LOW_COLUMNS columns ----
 *
 * A warp has 16 own rows. Its sums P and dS are, rounded, the left operands of the products that it adds. The next rows
 * of the other side are loaded while the last ones are used. */

typedef unsigned short low; /* the bits of a number */

template <int COLUMNS> struct low_memory {
    low own[2][GRAD_TILE * GRAD_LOW_STEP(COLUMNS)], other[2][2][GRAD_TILE * GRAD_LOW_STEP(COLUMNS)];
    query_state queries[2];
};

template <typename T, int COLUMNS, bool by_key> struct low_gradient {
    static constexpr int OWN = GRAD_TILE, STEP = GRAD_LOW_STEP(COLUMNS);
    static constexpr int OTHERS = by_key && COLUMNS > 64 ? 32 : 64; /* rows at a time: two gradients need registers */
    static constexpr int SCORES = OTHERS / 8, SUMS = COLUMNS / 8;   /* results of a warp side by side */
    static_assert(sizeof(low_memory<COLUMNS>) == GRAD_LOW_BYTES(COLUMNS), "the host knows the size");
    const attention_backward &a;
    low_memory<COLUMNS> &m;
    const long long own;
    const int row, g, t;        /* of the warp; of the lane (mma.cuh) */
    const int steps_a, steps_b; /* matrices of 16 columns */
    float to_a[SUMS][4], to_b[by_key ? SUMS : 1][4];

    __device__ low_gradient(const attention_backward &args, low_memory<COLUMNS> *memory, long long first, long long,
                            const item_rows &rows_a, const item_rows &rows_b)
        : a(args), m(*memory), own(first), row(threadIdx.x / WARP * 16), g(threadIdx.x % WARP / 4),
          t(threadIdx.x % 4 * 2), steps_a((int)(rows_a.columns + 15) / 16), steps_b((int)(rows_b.columns + 15) / 16),
          to_a(), to_b()
    {
        load(rows_a, own, OWN, steps_a, m.own[0]);
        load(rows_b, own, OWN, steps_b, m.own[1]);
    }

    /* Begins to load `count` rows, with whole matrices of columns; what does not exist is 0. */
    static __device__ __forceinline__ void load(const item_rows &r, long long first, int count, int steps, low *to)
    {
        const low *from = static_cast<const low *>(r.v.data) + r.at;
        for (int i = threadIdx.x; i < count * (COLUMNS / TILE); i += GRAD_LOW_BLOCK) {
            const int y = i / (COLUMNS / TILE), x = i % (COLUMNS / TILE) * TILE;
            if (x >= steps * 16) continue;
            const bool exists = first + y < r.count && x < r.columns;
            mma_copy(exists ? from + (first + y) * r.v.row + x : from, exists ? tile_length(x, r.columns) : 0,
                     to + y * STEP + x);
        }
    }
    __device__ __forceinline__ query_state &queries() const { return m.queries[0]; }
    __device__ __forceinline__ query_numbers load_others(long long item, const item_rows &rows_a,
                                                         const item_rows &rows_b, long long other, int buffer) const
    {
        load(rows_a, other, OTHERS, steps_a, m.other[buffer][0]);
        load(rows_b, other, OTHERS, steps_b, m.other[buffer][1]);
        return by_key ? query_get(a, item, other) : query_numbers{0, 0, 0};
    }

    /* own other^T */
    __device__ __forceinline__ void multiply(const low *left_rows, const low *right_rows, int steps,
                                             float (&sums)[SCORES][4]) const
    {
#pragma unroll 2
        for (int k = 0; k < steps; k++) {
            unsigned left[4], right[4];
            mma_load_left<false>(left_rows + row * STEP + k * 16, STEP, left);
#pragma unroll
            for (int n = 0; n < SCORES / 2; n++) {
                mma_load_right<true>(right_rows + n * 16 * STEP + k * 16, STEP, right);
                mma<T>::add(sums[2 * n], left, right[0], right[1]);
                mma<T>::add(sums[2 * n + 1], left, right[2], right[3]);
            }
        }
    }

    /* Replaces scores and dP by P and dS / scale. */
    __device__ __forceinline__ void differentiate(long long item, long long other, const query_state &queries,
                                                  float (&scores)[SCORES][4], float (&slopes)[SCORES][4]) const
    {
        const attention_shape &s = a.shape;
        const long long mask = attention_at(s, a.mask, item), query = by_key ? other : own, key = by_key ? own : other;
        const int most_queries = by_key ? OTHERS : OWN, most_keys = by_key ? OWN : OTHERS;
        const bool whole = !a.mask.data && query + most_queries <= s.queries && key + most_keys <= s.keys &&
                           key + most_keys - 1 <= query + s.last;
#pragma unroll
        for (int n = 0; n < SCORES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + g + i / 2 * 8, c = n * 8 + t + i % 2, q = by_key ? c : r, k = by_key ? r : c;
                const float score = whole ? scores[n][i] * s.scale
                                          : attention_score(s, a.mask, mask, query + q, key + k, scores[n][i]);
                scores[n][i] = attention_exp(queries.log_probability(q, score));
                slopes[n][i] = queries.slope(q, scores[n][i], slopes[n][i]);
            }
    }

    /* sums += factors others */
    template <int N>
    __device__ __forceinline__ void add_products(const float (&factors)[SCORES][4], const low *others, int steps,
                                                 float (&sums)[N][4]) const
    {
#pragma unroll
        for (int k = 0; k < SCORES / 2; k++) {
            unsigned left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[i] = mma<T>::pair(factors[2 * k + i / 2][i % 2 * 2], factors[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < N / 2; n++) {
                if (n >= steps) break;
                mma_load_right<false>(others + k * 16 * STEP + n * 16, STEP, right);
                mma<T>::add(sums[2 * n], left, right[0], right[1]);
                mma<T>::add(sums[2 * n + 1], left, right[2], right[3]);
            }
        }
    }

    /* Adds what the other rows [begin, end) contribute. The barriers of multiply and add_products order the uses of
     * shared memory: neither has nothing to do if the block has results. */
    __device__ __forceinline__ void add(long long item, const item_rows &rows_a, const item_rows &rows_b,
                                        long long begin, long long end)
    {
        int buffer = 0;
        __syncthreads();
        query_numbers next = load_others(item, rows_a, rows_b, begin, buffer);
        for (long long other = begin; other < end; other += OTHERS, buffer ^= 1) {
            float scores[SCORES][4] = {}, slopes[SCORES][4] = {};
            if (by_key) m.queries[buffer].put(next);
            mma_copied();
            __syncthreads();
            if (other + OTHERS < end) next = load_others(item, rows_a, rows_b, other + OTHERS, buffer ^ 1);
            const attention_dropout &dropout = a.shape.dropout;
            const unsigned kept =
                dropout.rng ? attention_kept<SCORES, by_key>(a.shape, item, by_key ? other : own + row,
                                                             by_key ? own + row : other)
                            : 0;
            multiply(m.own[0], m.other[buffer][0], steps_a, scores);
            multiply(m.own[1], m.other[buffer][1], steps_b, slopes);
            if (dropout.rng) attention_drop(dropout, kept, slopes);
            differentiate(item, other, m.queries[by_key ? buffer : 0], scores, slopes);
            if (by_key && dropout.rng) attention_drop(dropout, kept, scores);
            add_products(slopes, m.other[buffer][0], steps_a, to_a);
            if (by_key) add_products(scores, m.other[buffer][1], steps_b, to_b);
        }
        mma_copied();
    }

    template <int N>
    __device__ __forceinline__ void store(const item_rows &r, const float (&sums)[N][4], float factor) const
    {
        if (!r.v.data) return;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const long long y = own + row + g + i / 2 * 8, x = n * 8 + t + i % 2;
                if (y < r.count && x < r.columns)
                    from_carrier(static_cast<T *>(r.v.data) + r.at + y * r.v.row + x, sums[n][i] * factor);
            }
    }
};

#define LOW_KERNEL(side, by_key, type, T, COLUMNS) \
    extern "C" __global__ void __launch_bounds__(GRAD_LOW_BLOCK) \
        attention_grad_##side##_##type##_##COLUMNS(attention_backward a) \
    { \
        AMPC_DYN_SHARED(low_memory<COLUMNS>, memory); \
        side##_of<low_gradient<T, COLUMNS, by_key>>(a, memory); \
    } \
    AMPC_KERNEL(attention_grad_##side##_##type##_##COLUMNS)
#define LOW_KERNELS(type, T) \
    LOW_KERNEL(keys, true, type, T, 64) \
    LOW_KERNEL(keys, true, type, T, 128) \
    LOW_KERNEL(queries, false, type, T, 64) \
    LOW_KERNEL(queries, false, type, T, 128)
LOW_KERNELS(f16, __half)
LOW_KERNELS(bf16, __nv_bfloat16)
