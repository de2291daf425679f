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

/* The part of the result that a block computes. The blocks with the most keys come first. */
struct plain_part {
    long long item, query, column;
    int columns;
    __device__ explicit plain_part(const attention_shape &s)
    {
        const long long blocks = (s.queries + PLAIN_QUERIES - 1) / PLAIN_QUERIES;
        const long long block = blockIdx.x % blocks, rest = blockIdx.x / blocks;
        query = (blocks - 1 - block) * PLAIN_QUERIES;
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

/* Replaces scores by exponentials, in shared memory. */
static __device__ __forceinline__ void plain_fold(plain_state &st, plain_memory &m, const float (&scores)[PLAIN_EACH])
{
#pragma unroll
    for (int i = 0; i < PLAIN_EACH; i++) {
        const float now = larger(st.largest[i], warp_max(scores[i])), base = attention_base(now);
        const float factor = m_exp_float(st.largest[i] - base), p = m_exp_float(scores[i] - base);
        st.largest[i] = now;
        st.total[i] = st.total[i] * factor + p;
        m.p[(st.row + i) * PLAIN_KEYS + st.lane] = p;
#pragma unroll
        for (int c = 0; c < PLAIN_COLUMNS; c++) st.sums[i][c] *= factor;
    }
    __syncwarp();
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

static __device__ __forceinline__ void plain_finish(const attention_args &a, const plain_part &part,
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
    const plain_part part(s);
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
        plain_add(st, m, part.columns);
    }
    plain_finish(a, part, st);
}
AMPC_KERNEL(attention_plain)
