/* attention.cu - attention: softmax(q k^T * scale + mask) v.
 *
 * A block has some queries of an item and reads the keys tile by tile. It keeps for each query the maximum of the
 * scores so far, the sum of the exponentials relative to it, and the sum of the values, which are scaled when the
 * maximum grows. */
#include "kernels/cuda/attention.cuh"

/* ---- all types and sizes, in f32 ---- */

enum : int {
    PLAIN_KEYS = WARP,
    PLAIN_DEPTH = 32, /* columns of q and k at a time */
    PLAIN_EACH = PLAIN_QUERIES / (ATTENTION_BLOCK / WARP), /* queries of a warp */
    PLAIN_COLUMNS = PLAIN_WIDTH / WARP                     /* sums of a thread for each of them */
};

struct plain_memory {
    float q[PLAIN_QUERIES * PLAIN_DEPTH], k[PLAIN_KEYS * (PLAIN_DEPTH + 1)]; /* a lane has a key: rows in other banks */
    float v[PLAIN_KEYS * PLAIN_WIDTH], p[PLAIN_QUERIES * PLAIN_KEYS];
};

/* The part of the result that a block computes: `query_count` queries, up to PLAIN_WIDTH columns. The blocks with the
 * most keys come first. */
struct attention_part {
    long long item, query, column;
    int columns;
    __device__ attention_part(const attention_shape &s, int query_count)
    {
        const long long blocks = (s.queries + query_count - 1) / query_count;
        const long long block = blockIdx.x % blocks, rest = blockIdx.x / blocks;
        query = (blocks - 1 - block) * query_count;
        item = rest % s.items;
        column = rest / s.items * PLAIN_WIDTH;
        columns = s.width - column < PLAIN_WIDTH ? (int)(s.width - column) : PLAIN_WIDTH;
    }
};

/* The state of a warp. Its queries are rows `row` + i of the block; a lane has the columns `lane` + c * WARP. */
struct plain_state {
    int row, lane;
    float largest[PLAIN_EACH], total[PLAIN_EACH], sums[PLAIN_EACH][PLAIN_COLUMNS];
};

/* Products of the warp's queries with the key of the lane. */
static __device__ __forceinline__ void plain_multiply(const plain_state &st, const plain_memory &m,
                                                      float (&products)[PLAIN_EACH])
{
#pragma unroll 8
    for (int l = 0; l < PLAIN_DEPTH; l++) {
        const float k = m.k[st.lane * (PLAIN_DEPTH + 1) + l];
#pragma unroll
        for (int i = 0; i < PLAIN_EACH; i++) products[i] += m.q[(st.row + i) * PLAIN_DEPTH + l] * k;
    }
}

/* The maximum of the numbers of a warp that are not NaN, which is in the sums anyway. */
static __device__ __forceinline__ float warp_largest(float v)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        v = fmaxf(v, __shfl_xor_sync(WHOLE_WARP, v, distance));
    return v;
}

/* Replaces scores by exponentials, in shared memory. */
static __device__ __forceinline__ void plain_fold(plain_state &st, plain_memory &m, const float (&scores)[PLAIN_EACH])
{
#pragma unroll
    for (int i = 0; i < PLAIN_EACH; i++) {
        const float now = fmaxf(st.largest[i], warp_largest(scores[i])), base = attention_base(now);
        const float factor = m_exp_float(st.largest[i] - base), p = m_exp_float(scores[i] - base);
        st.largest[i] = now;
        st.total[i] = st.total[i] * factor + p;
        m.p[(st.row + i) * PLAIN_KEYS + st.lane] = p;
#pragma unroll
        for (int c = 0; c < PLAIN_COLUMNS; c++) st.sums[i][c] *= factor;
    }
}

/* Drops exponentials of the lane's key, of which the sum has all. */
static __device__ __forceinline__ void plain_drop(const plain_state &st, plain_memory &m, const attention_shape &s,
                                                  const attention_part &part, long long key)
{
#pragma unroll 1
    for (int i = 0; i < PLAIN_EACH; i++) {
        float &p = m.p[(st.row + i) * PLAIN_KEYS + st.lane];
        p = dropped(p, attention_keeps(s, part.item, part.query + st.row + i, key + st.lane), s.dropout.scale);
    }
}

static __device__ __forceinline__ void plain_add(plain_state &st, const plain_memory &m, int columns)
{
#pragma unroll 2
    for (int j = 0; j < PLAIN_KEYS; j++) {
#pragma unroll
        for (int c = 0; c < PLAIN_COLUMNS; c++) {
            if (c * WARP >= columns) break;
            const float v = m.v[j * PLAIN_WIDTH + c * WARP + st.lane];
#pragma unroll
            for (int i = 0; i < PLAIN_EACH; i++) st.sums[i][c] += m.p[(st.row + i) * PLAIN_KEYS + j] * v;
        }
    }
}

static __device__ __forceinline__ void plain_finish(const attention_args &a, const attention_part &part,
                                                    const plain_state &st)
{
    const long long y = attention_at(a.shape, a.y, part.item) + part.column,
                    lse = attention_at(a.shape, a.lse, part.item);
#pragma unroll
    for (int i = 0; i < PLAIN_EACH; i++) {
        const long long query = part.query + st.row + i;
        const float total = warp_sum(st.total[i]), inverse = total == 0 ? 0 : 1 / total;
        if (query >= a.shape.queries) continue;
#pragma unroll
        for (int c = 0; c < PLAIN_COLUMNS; c++)
            if (c * WARP + st.lane < part.columns)
                element_store(a.y.data, a.y.dtype, y + query * a.y.row + c * WARP + st.lane, st.sums[i][c] * inverse);
        if (!a.lse.data || part.column || st.lane) continue;
        float *to = static_cast<float *>(a.lse.data) + lse + query * a.lse.row;
        to[0] = st.largest[i];
        to[1] = total == 0 ? 0 : m_log_float(total);
    }
}

extern "C" __global__ void __launch_bounds__(ATTENTION_BLOCK) attention_plain(attention_args a)
{
    __shared__ plain_memory m;
    const attention_shape &s = a.shape;
    const attention_part part(s, PLAIN_QUERIES);
    const long long q = attention_at(s, a.q, part.item), k = attention_at(s, a.k, part.item),
                    v = attention_at(s, a.v, part.item), mask = attention_at(s, a.mask, part.item),
                    seen = attention_seen(s, part.query + PLAIN_QUERIES - 1);
    plain_state st = {(int)threadIdx.x / WARP * PLAIN_EACH, (int)threadIdx.x % WARP, {}, {}, {}};
#pragma unroll
    for (int i = 0; i < PLAIN_EACH; i++) st.largest[i] = -INFINITY;
    for (long long key = 0; key < seen; key += PLAIN_KEYS) {
        float scores[PLAIN_EACH] = {};
        long long depth = 0;
        do {
            __syncthreads(); /* until the last tiles have been read */
            if (depth == 0)
                attention_stage(a.v, v, key, s.keys, part.column, s.width, m.v, PLAIN_WIDTH, PLAIN_KEYS,
                                (part.columns + TILE - 1) / TILE * TILE);
            attention_stage(a.q, q, part.query, s.queries, depth, s.depth, m.q, PLAIN_DEPTH, PLAIN_QUERIES,
                            PLAIN_DEPTH);
            attention_stage(a.k, k, key, s.keys, depth, s.depth, m.k, PLAIN_DEPTH + 1, PLAIN_KEYS, PLAIN_DEPTH);
            __syncthreads();
            plain_multiply(st, m, scores);
            depth += PLAIN_DEPTH;
        } while (depth < s.depth);
#pragma unroll
        for (int i = 0; i < PLAIN_EACH; i++)
            scores[i] = attention_score(s, a.mask, mask, part.query + st.row + i, key + st.lane, scores[i]);
        plain_fold(st, m, scores);
        if (s.dropout.rng) plain_drop(st, m, s, part, key);
        __syncwarp();
        plain_add(st, m, part.columns);
    }
    plain_finish(a, part, st);
}
AMPC_KERNEL(attention_plain)

/* ---- f16 and bf16, in tensor cores ----
 *
 * A warp has 16 queries. A lane has numbers of two of them, rows g and g + 8 of mma.cuh. */

enum : int { LOW_ROWS = 16 };

/* Rows of q, then those of a tile of keys and values, then those of y. */
constexpr int low_memory(int size, int keys)
{
    return (2 * keys > ATTENTION_QUERIES ? 2 * keys : ATTENTION_QUERIES) * (size + 8);
}

/* The state of a lane. SIZE: depth and width, padded. */
template <int SIZE, int KEYS> struct low_state {
    long long query; /* the first one of the warp */
    int lane;
    unsigned q[SIZE / 16][4];
    float scores[KEYS / 8][4], sums[SIZE / 8][4], largest[2], total[2];
};

/* What key j of the tile adds to all scores, or -infinity. */
template <int KEYS>
static __device__ __forceinline__ void low_stage_mask(const attention_args &a, long long mask, long long key, float *to)
{
    const int j = threadIdx.x;
    if (j >= KEYS) return;
    if (key + j >= a.shape.keys) to[j] = -INFINITY;
    else to[j] = a.mask.data ? attention_mask(a.mask, mask + (key + j) * a.mask.column) : 0;
}

template <typename T, int SIZE, int KEYS>
static __device__ __forceinline__ void low_multiply(low_state<SIZE, KEYS> &st, const unsigned short *keys, int depth)
{
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) st.scores[j][i] = 0;
#pragma unroll
    for (int d = 0; d < SIZE / 16; d++) {
        if (d * 16 >= depth) break;
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            unsigned b[4];
            mma_load_right<true>(keys + j * 16 * (SIZE + 8) + d * 16, SIZE + 8, b);
            mma<T>::add(st.scores[2 * j], st.q[d], b[0], b[1]);
            mma<T>::add(st.scores[2 * j + 1], st.q[d], b[2], b[3]);
        }
    }
}

/* Calls f(score, row, column) for the scores of the lane. */
template <int SIZE, int KEYS, typename F>
static __device__ __forceinline__ void low_each(low_state<SIZE, KEYS> &st, F f)
{
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) f(st.scores[j][i], st.lane / 4 + i / 2 * 8, j * 8 + st.lane % 4 * 2 + i % 2);
}

/* Scales and masks the products with keys from `key` on. by_key: what is added to them, if the mask is the same for all
 * queries. */
template <int SIZE, int KEYS>
static __device__ __forceinline__ void low_mask(low_state<SIZE, KEYS> &st, const attention_args &a, long long mask,
                                                long long key, const float *by_key)
{
    const attention_shape &s = a.shape;
    const long long behind = st.query + s.last - key;
    const int last = behind < KEYS ? (int)(behind < -ATTENTION_QUERIES ? -ATTENTION_QUERIES : behind) : KEYS;
    if (a.mask.data && a.mask.row) {
        low_each(st, [&](float &x, int row, int column) {
            x = attention_score(s, a.mask, mask, st.query + row, key + column, x);
        });
    } else if (a.mask.data || last < KEYS - 1 || key + KEYS > s.keys) {
        low_each(st, [&](float &x, int row, int column) {
            const float more = by_key[column];
            x = column > row + last || more == -INFINITY ? -INFINITY : x * s.scale + more;
        });
    } else {
        low_each(st, [&](float &x, int, int) { x *= s.scale; });
    }
}

/* The sum or maximum of the four lanes that have a row. */
template <typename F> static __device__ __forceinline__ float low_join(float v, F f)
{
    v = f(v, __shfl_xor_sync(WHOLE_WARP, v, 1));
    return f(v, __shfl_xor_sync(WHOLE_WARP, v, 2));
}

/* Replaces scores by exponentials. */
template <int SIZE, int KEYS> static __device__ __forceinline__ void low_fold(low_state<SIZE, KEYS> &st)
{
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float now = st.largest[r];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) now = fmaxf(now, fmaxf(st.scores[j][2 * r], st.scores[j][2 * r + 1]));
        now = low_join(now, [](float x, float y) { return fmaxf(x, y); });
        const float base = attention_base(now);
        factor[r] = attention_exp(st.largest[r] - base);
        st.largest[r] = now;
        st.total[r] *= factor[r];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                st.scores[j][i] = attention_exp(st.scores[j][i] - base);
                st.total[r] += st.scores[j][i];
            }
    }
#pragma unroll
    for (int e = 0; e < SIZE / 8; e++)
#pragma unroll
        for (int i = 0; i < 4; i++) st.sums[e][i] *= factor[i / 2];
}

/* Adds the values; the exponentials are rounded. */
template <typename T, int SIZE, int KEYS>
static __device__ __forceinline__ void low_add(low_state<SIZE, KEYS> &st, const unsigned short *values, int width)
{
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
        const float(&x)[4] = st.scores[2 * j], (&y)[4] = st.scores[2 * j + 1];
        const unsigned p[4] = {mma<T>::pair(x[0], x[1]), mma<T>::pair(x[2], x[3]), mma<T>::pair(y[0], y[1]),
                               mma<T>::pair(y[2], y[3])};
#pragma unroll
        for (int e = 0; e < SIZE / 16; e++) {
            if (e * 16 >= width) break;
            unsigned b[4];
            mma_load_right<false>(values + j * 16 * (SIZE + 8) + e * 16, SIZE + 8, b);
            mma<T>::add(st.sums[2 * e], p, b[0], b[1]);
            mma<T>::add(st.sums[2 * e + 1], p, b[2], b[3]);
        }
    }
}

/* Writes y, through shared memory, and lse. */
template <typename T, int SIZE, int KEYS>
static __device__ __forceinline__ void low_finish(low_state<SIZE, KEYS> &st, const attention_args &a, long long item,
                                                  unsigned short *rows)
{
    const int g = st.lane / 4, t = st.lane % 4 * 2, width = (int)a.shape.width;
    const long long lse = attention_at(a.shape, a.lse, item);
    unsigned short *y = static_cast<unsigned short *>(a.y.data) + attention_at(a.shape, a.y, item);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const long long query = st.query + g + 8 * r;
        const float total = low_join(st.total[r], [](float x, float z) { return x + z; }),
                    inverse = total == 0 ? 0 : 1 / total;
#pragma unroll
        for (int e = 0; e < SIZE / 8; e++)
            *reinterpret_cast<unsigned *>(rows + (g + 8 * r) * (SIZE + 8) + e * 8 + t) =
                mma<T>::pair(st.sums[e][2 * r] * inverse, st.sums[e][2 * r + 1] * inverse);
        if (!a.lse.data || t || query >= a.shape.queries) continue;
        float *to = static_cast<float *>(a.lse.data) + lse + query * a.lse.row;
        to[0] = st.largest[r];
        to[1] = total == 0 ? 0 : m_log_float(total);
    }
    __syncwarp();
#pragma unroll 4
    for (int i = st.lane; i < LOW_ROWS * (SIZE / TILE); i += WARP) {
        const int r = i / (SIZE / TILE), c = i % (SIZE / TILE) * TILE;
        if (c < width && st.query + r < a.shape.queries)
            low_store(y + (st.query + r) * a.y.row + c, tile_length(c, width),
                      low_load(rows + r * (SIZE + 8) + c, TILE));
    }
}

template <int SIZE, int KEYS>
static __device__ __forceinline__ void low_load_queries(low_state<SIZE, KEYS> &st, const attention_args &a,
                                                        const attention_part &part, int depth, unsigned short *memory,
                                                        const unsigned short *rows)
{
    low_rows<SIZE, ATTENTION_QUERIES> q;
    q.load(a.q, attention_at(a.shape, a.q, part.item), part.query, a.shape.queries, depth);
    q.store(depth, memory);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < SIZE / 16; d++)
        if (d * 16 < depth) mma_load_left<false>(rows + d * 16, SIZE + 8, st.q[d]);
}

template <typename T, int SIZE, int KEYS>
static __device__ __forceinline__ void low_attend(const attention_args &a, unsigned short *memory, float *by_key)
{
    const attention_shape &s = a.shape;
    const attention_part part(s, ATTENTION_QUERIES);
    const int warp = threadIdx.x / WARP, depth = (int)s.depth, width = (int)s.width;
    const long long k = attention_at(s, a.k, part.item), v = attention_at(s, a.v, part.item),
                    mask = attention_at(s, a.mask, part.item),
                    seen = attention_seen(s, part.query + ATTENTION_QUERIES - 1);
    unsigned short *values = memory + KEYS * (SIZE + 8), *rows = memory + warp * LOW_ROWS * (SIZE + 8);
    low_state<SIZE, KEYS> st = {part.query + warp * LOW_ROWS, (int)threadIdx.x % WARP, {}, {}, {},
                                {-INFINITY, -INFINITY}, {}};
    low_load_queries(st, a, part, depth, memory, rows);
    constexpr bool ahead = SIZE < ATTENTION_LARGEST; /* there are registers to load while the tile before is used */
    low_rows<SIZE, KEYS> next;
    if (ahead) next.load(a.k, k, 0, seen, depth);
    for (long long key = 0; key < seen; key += KEYS) {
        __syncthreads(); /* until all have used what is replaced: q, or keys, values and mask of the last tile */
        if (!ahead) next.load(a.k, k, key, seen, depth);
        next.store(depth, memory);
        if (ahead) next.load(a.v, v, key, seen, width);
        if (!a.mask.row) low_stage_mask<KEYS>(a, mask, key, by_key);
        __syncthreads();
        const unsigned kept = s.dropout.rng ? attention_kept<KEYS / 8, false>(s, part.item, st.query, key) : 0;
        low_multiply<T>(st, memory, depth);
        if (!ahead) next.load(a.v, v, key, seen, width);
        next.store(width, values);
        if (ahead) next.load(a.k, k, key + KEYS, seen, depth);
        low_mask(st, a, mask, key, by_key);
        low_fold(st);
        if (s.dropout.rng) attention_drop(s.dropout, kept, st.scores);
        __syncthreads();
        low_add<T>(st, values, width);
    }
    __syncthreads();
    low_finish<T>(st, a, part.item, rows);
}

#define LOW_KERNEL(name, type, size, keys)                                                                             \
    extern "C" __global__ void __launch_bounds__(ATTENTION_BLOCK) name##_##size(attention_args a)                      \
    {                                                                                                                  \
        __shared__ __align__(16) unsigned short memory[low_memory(size, keys)];                                        \
        __shared__ float by_key[keys];                                                                                 \
        low_attend<type, size, keys>(a, memory, by_key);                                                               \
    }                                                                                                                  \
    AMPC_KERNEL(name##_##size)
#define LOW_KERNELS(name, type)                                                                                        \
    LOW_KERNEL(name, type, 32, 64)                                                                                     \
    LOW_KERNEL(name, type, 64, 64)                                                                                     \
    LOW_KERNEL(name, type, 128, 64)                                                                                    \
    LOW_KERNEL(name, type, 256, 16)
LOW_KERNELS(attention_f16, __half)
LOW_KERNELS(attention_bf16, __nv_bfloat16)
