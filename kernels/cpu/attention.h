/* attention.h - what attention and its gradient share.
 *
 * A block of scores is kept crossed, [keys, queries], so that what differs by query (the maximum, the sum, the limit of
 * a causal mask) is a vector, and k, v, q and dy are read in place as the operands of products. The memory is that of a
 * few blocks for each thread, whatever the number of keys. */
#ifndef AMPC_ATTENTION_H
#define AMPC_ATTENTION_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/tiles.h"

enum {
    ATTENTION_LANES = 16,   /* rows in memory are padded to a multiple */
    ATTENTION_TERMS = 32,   /* the same if products are in AMX tiles */
    ATTENTION_QUERIES = 64, /* of a block; a multiple of the lanes */
    ATTENTION_KEYS = 64
};

/* The rows of one item of a view, which are `row` elements apart. */
typedef struct attention_rows {
    char *data;
    ir_dtype dtype;
    int64_t row, columns;
} attention_rows;

/* The mask of one item: distances in elements between queries and between keys, 0 where it is broadcast. */
typedef struct attention_mask {
    const char *data; /* NULL: none */
    ir_dtype dtype;
    int64_t query, key;
} attention_mask;

/* The sizes of a call. */
typedef struct attention_sizes {
    int64_t items, group;                /* items of q, and how many of them share an item of k and v */
    int64_t queries, keys, depth, width; /* T, S, D, E */
    int64_t depth_row, width_row;        /* padded */
    int64_t block;                       /* the distance between the keys of a block, its queries padded */
    int64_t query_blocks, key_blocks;
    int64_t last; /* query t sees no key after t + last */
    double scale;
    bool low;   /* products are in AMX tiles */
    bool drops; /* probabilities, by `ratio` and `draw` */
    double ratio;
    cpu_draw draw;
} attention_sizes;

/* The padded size of a block of n queries. */
static inline int64_t attention_block(const attention_sizes *s, int64_t n)
{
    const int64_t lanes = s->low ? ATTENTION_TERMS : ATTENTION_LANES;
    return cpu_ceil_div(n, lanes) * lanes;
}

attention_sizes attention_measure(const k_args *args);
/* Item number `item` of a view. */
attention_rows attention_item(const k_view *v, int64_t item);
/* The mask of item number `item` of q, from query `first` on. */
attention_mask attention_mask_of(const k_args *args, int64_t item, int64_t first);
/* Which probabilities of a block stay, crossed as the scores are: keys [key, key + keys) of `queries` queries. row: the
 * number of the first query, counted over all items. */
void attention_draw(const attention_sizes *s, int64_t row, int64_t queries, int64_t key, int64_t keys, uint8_t *keep);
/* The keys that a block of queries up to `query` sees. */
static inline int64_t attention_seen(const attention_sizes *s, int64_t query)
{
    return query + s->last < 0 ? 0 : k_min(s->keys, query + s->last + 1);
}
/* The bytes of a buffer of so many numbers in the type in which the op computes. */
static inline size_t attention_bytes(const k_args *args, int64_t numbers)
{
    return cpu_lines((size_t)numbers * ir_dtype_size(cpu_carrier(args->in[0].dtype)));
}
static inline int64_t attention_padded(int64_t n) { return cpu_ceil_div(n, ATTENTION_LANES) * ATTENTION_LANES; }

/* As gemm_block. */
typedef gemm_block attention_product_float;
typedef struct attention_product_double {
    const double *a;
    int64_t a_row, a_column;
    const double *b;
    int64_t b_row;
    double *c;
    int64_t c_row, m, n, k;
    bool adds;
} attention_product_double;

/* Loops with fused multiply-adds, which have the same bits on every instruction set. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ATTENTION_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#define ATTENTION_FMA(x, y, z) __builtin_fmaf(x, y, z)
#else
#define ATTENTION_CLONES
#define ATTENTION_FMA(x, y, z) ((x) * (y) + (z))
#endif

/* exp of what is at most 0, apart from rounding; results below the normal numbers are 0. Half of the cost of
 * m_exp_float. */
CPU_INLINE float attention_exp_float(float x)
{
    const float round = 12582912.f; /* as in m_exp_float */
    const float shifted = ATTENTION_FMA(x, 1.44269504f, round), n = shifted - round;
    const float r = ATTENTION_FMA(n, 2.12194440e-4f, ATTENTION_FMA(n, -0.693359375f, x));
    float p = 1.3888889e-3f;
    p = ATTENTION_FMA(p, r, 8.3333333e-3f);
    p = ATTENTION_FMA(p, r, 4.1666667e-2f);
    p = ATTENTION_FMA(p, r, 1.6666667e-1f);
    p = ATTENTION_FMA(p, r, 0.5f);
    p = ATTENTION_FMA(p, r * r, r) + 1;
    const float y = ir_f32_bits(ir_bits_f32(p) + (ir_bits_f32(shifted) << 23));
    return x < -87 ? 0 : x == x ? y : x;
}
CPU_INLINE double attention_exp_double(double x) { return m_exp_double(x); }

/* The functions of attention_blocks.c by type. */
#define ATTENTION_FUNCTIONS(REAL) \
    void attention_multiply_##REAL(const attention_product_##REAL *p); \
    /* Rows [first, first + n), padded with zeros: in place if possible, else in `copy`. */ \
    const REAL *attention_load_##REAL(const attention_rows *m, int64_t first, int64_t n, REAL *copy, int64_t *row); \
    /* Where to sum up rows from `first` on: in place if possible, else in `buffer`. */ \
    REAL *attention_target_##REAL(const attention_rows *m, int64_t first, REAL *buffer, int64_t *row); \
    /* Does nothing if `from` is in place. */ \
    void attention_store_##REAL(const attention_rows *m, int64_t first, int64_t n, const REAL *from, int64_t row); \
    /* to[j * to_row + i] = from[i * from_row + j] * factor for n rows; the rest of to's rows is 0. */ \
    void attention_cross_##REAL(REAL *to, int64_t to_row, const REAL *from, int64_t from_row, int64_t n, \
                                int64_t columns, REAL factor); \
    void attention_scale_##REAL(REAL *x, REAL factor, int64_t n); \
    /* Masks a block of scores, keys [key, key + keys) of queries [query, query + queries). scratch: two blocks. */ \
    void attention_apply_mask_##REAL(const attention_sizes *s, const attention_mask *m, REAL *scores, int64_t query, \
                                     int64_t queries, int64_t key, int64_t keys, REAL *scratch);
ATTENTION_FUNCTIONS(float)
ATTENTION_FUNCTIONS(double)

/* ---- attention_low.c: products of bf16 in AMX tiles, if the processor has them. Rows and columns are padded to
 * ATTENTION_TERMS. Between begin and end a thread calls no other product. ---- */

typedef struct attention_low_product {
    const uint16_t *a;
    int64_t a_row;
    const uint32_t *b; /* pairs */
    int64_t b_row;
    float *c;
    int64_t c_row, m, n, k;
    bool adds;
} attention_low_product;

bool attention_is_low(ir_dtype type);
void attention_begin_low(void);
void attention_end_low(void);
void attention_multiply_low(const attention_low_product *p);
/* As attention_load. */
const uint16_t *attention_load_low(const attention_rows *m, int64_t first, int64_t n, uint16_t *copy, int64_t *row);
/* Transposes 32-bit numbers: to[j * to_row + i] = from[i * from_row + j]. */
void attention_cross_low(uint32_t *to, int64_t to_row, const void *from, int64_t from_row, int64_t rows,
                         int64_t columns);
/* The pairs of n rows; those of floats are rounded. */
void attention_pairs_low(uint32_t *to, const uint16_t *from, int64_t row, int64_t n, int64_t columns);
void attention_round_pairs(uint32_t *to, const float *from, int64_t n, int64_t columns);
void attention_round_rows(uint16_t *to, const float *from, int64_t n);

#endif
