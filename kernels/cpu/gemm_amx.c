/* gemm_amx.c - products of bf16 and f16 matrices in AMX tiles, with f32 sums.
 *
 * Both operands are brought into strips: 32 rows of a, or 32 columns of b (a panel), which are called lanes. For each
 * 32 terms of the sums a strip has two tiles of 16 lanes x 32 terms, 1 KB each; missing lanes and terms are 0. The rows
 * of a tile of a are lanes; the rows of a tile of b are pairs of terms, so the one is the transpose of the other in
 * units of 32 bits. A strip of a and a panel of b give 2 x 2 tiles of c.
 *
 * An element of f16 is split into two of bf16, high and low part, which is exact (11 bits are 8 and 3), and its tiles
 * are doubled. Three products, low * high + high * high + high * low, are added; what is dropped is at most 2^-16 of
 * each term. The low part of an infinity is NaN, so where such a sum is not finite, that of the high parts replaces it:
 * it is not finite either, and has the right value.
 *
 * k is divided into blocks whose size depends on k and the type alone, and their sums are added in ascending order. The
 * instructions treat subnormal numbers as 0 and round to nearest. */
#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/gemm_item.h"
#include "kernels/cpu/isa.h"

#include <omp.h>

static int64_t tiles_of(int64_t lanes) { return lanes <= AMX_LANES ? 1 : AMX_STRIP / AMX_LANES; }

/* The bytes of a strip. */
static int64_t strip_bytes(ir_dtype type, int64_t lanes, int64_t terms)
{
    return cpu_ceil_div(terms, AMX_TERMS) * tiles_of(lanes) * (type == IR_f16 ? 2 : 1) * AMX_TILE;
}

int64_t gemm_low_bytes(ir_dtype type, int64_t k, int64_t n)
{
    const int64_t whole = n / AMX_STRIP, rest = n % AMX_STRIP;
    return whole * strip_bytes(type, AMX_STRIP, k) + (rest ? strip_bytes(type, rest, k) : 0);
}

#if defined(__x86_64__)
#include <string.h>

bool gemm_has(ir_dtype type) { return cpu_isa() >= CPU_ISA_amx || !ir_dtype_is_low(type); }

/* ---- making strips ----------------------------------------------------------------------------------- */

enum { CHUNK = 512 /* terms that are brought to the low type at once */ };

/* Lanes and terms of an operand in its low type: one of the two is contiguous. */
typedef struct source {
    const uint16_t *at;
    int64_t ld;
    bool by_term; /* each row is a term, else a lane */
} source;

/* One register per pair of terms, with both for each lane. */
AMX_INLINE void load_terms(__m512i *rows, const source *s, int64_t lanes, int64_t terms)
{
    const __mmask16 mask = amx_mask_16(lanes);
    GEMM_UNROLL for (int i = 0; i < AMX_LANES; i++)
    {
        const uint16_t *at = s->at + 2 * i * s->ld;
        __m256i even = _mm256_setzero_si256(), odd = even;
        if (2 * i < terms) even = _mm256_maskz_loadu_epi16(mask, at);
        if (2 * i + 1 < terms) odd = _mm256_maskz_loadu_epi16(mask, at + s->ld);
        rows[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
    }
}

/* One register per lane, with its terms. */
AMX_INLINE void load_lanes(__m512i *rows, const source *s, int64_t lanes, int64_t terms)
{
    const __mmask32 mask = amx_mask_32(terms);
    GEMM_UNROLL for (int i = 0; i < AMX_LANES; i++)
        rows[i] = i < lanes ? _mm512_maskz_loadu_epi16(mask, s->at + i * s->ld) : _mm512_setzero_si512();
}

/* Transposes 16 x 16 elements of 32 bits: pairs, pairs of pairs, then quarters of registers. */
AMX_INLINE void transpose(__m512i *rows)
{
    __m512i t[AMX_LANES];
    GEMM_UNROLL for (int i = 0; i < AMX_LANES; i += 2)
    {
        t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    GEMM_UNROLL for (int i = 0; i < AMX_LANES; i += 4)
    {
        rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    GEMM_UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    GEMM_UNROLL for (int i = 0; i < 4; i++)
    {
        rows[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        rows[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        rows[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* Makes a tile of at most 16 lanes x 32 terms. Its rows are lanes, or pairs of terms. */
AMX static void make_tile(char *to, int64_t low, const source *s, int64_t lanes, int64_t terms, bool pairs)
{
    __m512i rows[AMX_LANES];
    if (s->by_term) load_terms(rows, s, lanes, terms);
    else load_lanes(rows, s, lanes, terms);
    if (s->by_term != pairs) transpose(rows);
    GEMM_UNROLL for (int i = 0; i < AMX_LANES; i++) amx_store_row(to + i * 64, low, rows[i]);
}

/* Makes the two tiles of 32 lanes x 32 terms of bf16, whose rows are pairs of terms. Each row is read once: those of a
 * wide matrix collide in the first-level cache. (In f16 this is slower, since splitting delays the loads.) */
AMX static void make_pairs(char *to, const source *s)
{
    const __m512i each = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i first = _mm512_or_si512(each,
                                          _mm512_slli_epi32(_mm512_add_epi32(each, _mm512_set1_epi32(AMX_STRIP)), 16));
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(AMX_LANES));
    for (int i = 0; i < AMX_LANES; i++, to += 64) {
        const uint16_t *at = s->at + 2 * i * s->ld;
        const __m512i even = _mm512_loadu_si512(at), odd = _mm512_loadu_si512(at + s->ld);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, first, odd));
        _mm512_storeu_si512(to + AMX_TILE, _mm512_permutex2var_epi16(even, second, odd));
    }
}

/* An operand of an item: element (lane, term) is number lane * lane_stride + term * term_stride of its data. */
typedef struct operand {
    const gemm *g;
    int64_t item;
    const gemm_matrix *m;
    const char *data;
    int64_t lane_stride, term_stride;
    gemm_fill_low *fill;
    bool pairs; /* it is b */
} operand;

static operand operand_a(const gemm *g, int64_t item)
{
    return (operand){g, item, &g->a, g->low_a ? NULL : gemm_item_a(g, item), g->a.row, g->a.column, g->low_a, false};
}

static operand operand_b(const gemm *g, int64_t item)
{
    return (operand){g, item, &g->b, g->low_b ? NULL : gemm_item_b(g, item), g->b.column, g->b.row, g->low_b, true};
}

/* Rounds n elements to the type of the product. */
static void load_low(uint16_t *to, const operand *x, const char *from, int64_t stride, int64_t n)
{
    float line[CHUNK];
    gemm_load(line, x->m, from, stride, n);
    cpu_convert(x->g->type, to, IR_f32, line, n);
}

/* Lanes [lane, lane + lanes) x terms [term, term + terms), in place or in `scratch`. */
static source source_of(const operand *x, int64_t lane, int64_t lanes, int64_t term, int64_t terms, uint16_t *scratch)
{
    const gemm *g = x->g;
    if (x->fill && x->pairs) {
        x->fill(g->user, x->item, term, terms, lane, lanes, scratch, AMX_STRIP);
        return (source){scratch, AMX_STRIP, true};
    }
    if (x->fill) {
        x->fill(g->user, x->item, lane, lanes, term, terms, scratch, CHUNK);
        return (source){scratch, CHUNK, false};
    }
    const int64_t size = (int64_t)ir_dtype_size(x->m->dtype);
    const char *from = x->data + (lane * x->lane_stride + term * x->term_stride) * size;
    const bool by_term = x->lane_stride == 1 && (x->term_stride != 1 || x->pairs);
    const bool is_low = x->m->dtype == g->type && (x->m->as == IR_NO_DTYPE || x->m->as == g->type);
    if (is_low && (by_term || x->term_stride == 1))
        return (source){(const uint16_t *)(const void *)from, by_term ? x->term_stride : x->lane_stride, by_term};
    for (int64_t i = 0; i < (by_term ? terms : lanes); i++)
        if (by_term) load_low(scratch + i * AMX_STRIP, x, from + i * x->term_stride * size, 1, lanes);
        else load_low(scratch + i * CHUNK, x, from + i * x->lane_stride * size, x->term_stride, terms);
    return (source){scratch, by_term ? AMX_STRIP : CHUNK, by_term};
}

/* Makes the strip of these lanes and terms. */
static void make_strip(char *to, const operand *x, int64_t lane, int64_t lanes, int64_t term, int64_t terms,
                       uint16_t *scratch)
{
    const int64_t tiles = tiles_of(lanes), low = x->g->type == IR_f16 ? tiles * AMX_TILE : 0;
    for (int64_t k = 0; k < terms; k += CHUNK) {
        const int64_t depth = k_min(CHUNK, terms - k);
        const source s = source_of(x, lane, lanes, term + k, depth, scratch);
        for (int64_t l = 0; l < depth; l += AMX_TERMS, to += tiles * AMX_TILE + low) {
            if (!low && s.by_term && x->pairs && lanes == AMX_STRIP && depth - l >= AMX_TERMS) {
                const source part = {s.at + l * s.ld, s.ld, true};
                make_pairs(to, &part);
                continue;
            }
            for (int64_t i = 0; i < tiles; i++) {
                const source part = {s.at + (s.by_term ? l * s.ld + i * AMX_LANES : i * AMX_LANES * s.ld + l), s.ld,
                                     s.by_term};
                make_tile(to + i * AMX_TILE, low, &part, k_min(AMX_LANES, lanes - i * AMX_LANES),
                          k_min(AMX_TERMS, depth - l), x->pairs);
            }
        }
    }
}

void gemm_pack_low(void *packed, const gemm *g, const k_context *ctx)
{
    const int64_t panels = cpu_ceil_div(g->n, AMX_STRIP), item_bytes = gemm_low_bytes(g->type, g->k, g->n);
#pragma omp parallel for num_threads(cpu_threads(ctx, g->items * g->k * g->n)) schedule(static)
    for (int64_t i = 0; i < g->items * panels; i++) {
        uint16_t scratch[AMX_STRIP * CHUNK];
        const operand b = operand_b(g, i / panels);
        const int64_t panel = i % panels, column = panel * AMX_STRIP;
        char *to = (char *)packed + i / panels * item_bytes + panel * strip_bytes(g->type, AMX_STRIP, g->k);
        make_strip(to, &b, column, k_min(AMX_STRIP, g->n - column), 0, g->k, scratch);
    }
}

/* ---- multiplying strips ------------------------------------------------------------------------------ */

/* A product of a strip of a and a panel of b, 32 x 32 sums. */
typedef struct strips {
    const char *a, *b; /* from the first term on */
    int64_t steps;     /* of 32 terms */
    const char *ahead; /* what to prefetch, */
    int64_t lines;     /* and how much of it per step, in lines of a cache */
} strips;

#define LOAD_A(part) AMX_LOAD(4, 5, a, rows, part)
#define LOAD_B(part) AMX_LOAD(6, 7, b, columns, part)

/* All that follows `s` is constant: the tiles of a, those of b, the parts of an element, and how many are used. */
AMX_INLINE void multiply(const strips *s, float *sums, const int rows, const int columns, const int parts,
                         const int used)
{
    const char *a = s->a, *b = s->b, *ahead = s->ahead;
    const int64_t lines = s->lines;
    __asm__ volatile("" ::: "memory"); /* the instructions read memory, which gcc does not know */
    AMX_EACH_SUM(AMX_ZERO);
    for (int64_t l = 0; l < s->steps; l++, a += parts * rows * AMX_TILE, b += parts * columns * AMX_TILE) {
        for (int64_t i = 0; i < lines; i++, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T0);
        AMX_STEP(used);
    }
    AMX_EACH_SUM(AMX_STORE);
}

AMX_DEFINE_PRODUCTS(strips)

/* ---- blocks ------------------------------------------------------------------------------------------ */

enum {
    FEW_ROWS = 256, /* of a block if b is packed */
    MANY_ROWS = 512,
    DEPTH_BYTES = 2048,    /* at most, of a lane of a block: with 512 rows, half of a second-level cache of 2 MB */
    WHOLE_BYTES = 1 << 20, /* a block of a that is this small is made for all of k */
    FAR = 8192,            /* bytes to prefetch of a panel that is read once */
    SERIAL = 128           /* terms of a product that cost as much as an element of other loops (cpu_threads) */
};

/* How the product is divided; see division in gemm.c. */
typedef struct division {
    int64_t rows, columns, across, down, depth;
    bool whole; /* blocks of a are made for all of k */
    int threads;
    size_t a, b, sums, bias, scratch, bytes;
} division;

/* The bytes of a lane per term. */
static int64_t bytes_per_term(ir_dtype type) { return type == IR_f16 ? 4 : 2; }

/* The terms of a block of k, which depend on k and the type alone. */
static int64_t depth_of(const gemm *g)
{
    const int64_t blocks = k_max(1, cpu_ceil_div(g->k * bytes_per_term(g->type), DEPTH_BYTES));
    return cpu_ceil_div(cpu_ceil_div(g->k, blocks), AMX_TERMS) * AMX_TERMS;
}

static void divide_among(division *d, const gemm *g, int threads)
{
    while (true) {
        d->down = cpu_ceil_div(g->m, d->rows);
        d->across = cpu_ceil_div(g->n, d->columns);
        if (g->items * d->down * d->across >= threads) return;
        if (d->columns > 4 * AMX_STRIP || (d->columns > AMX_STRIP && d->rows <= AMX_STRIP))
            d->columns = cpu_ceil_div(cpu_ceil_div(d->columns, 2), AMX_STRIP) * AMX_STRIP;
        else if (d->rows > AMX_STRIP) d->rows = cpu_ceil_div(cpu_ceil_div(d->rows, 2), AMX_STRIP) * AMX_STRIP;
        else return;
    }
}

static division divide(const gemm *g, const k_context *ctx)
{
    division d = {0};
    const int64_t most = g->packed ? FEW_ROWS : MANY_ROWS, blocks = k_max(1, cpu_ceil_div(g->m, most));
    d.rows = k_max(1, cpu_ceil_div(cpu_ceil_div(g->m, blocks), AMX_STRIP)) * AMX_STRIP;
    d.columns = k_max(1, cpu_ceil_div(g->n, AMX_STRIP)) * AMX_STRIP;
    divide_among(&d, g, ctx->threads);
    d.depth = depth_of(g);
    const int64_t high = d.rows / AMX_STRIP;
    d.whole = high * strip_bytes(g->type, AMX_STRIP, g->k) <= WHOLE_BYTES;
    const int64_t tasks = k_max(1, g->items * d.down * d.across);
    d.threads = (int)k_min(cpu_threads(ctx, g->items * g->m * g->n * g->k / SERIAL), tasks);
    d.a = (size_t)(high * strip_bytes(g->type, AMX_STRIP, d.whole ? g->k : d.depth));
    if (!g->packed) d.b = (size_t)strip_bytes(g->type, AMX_STRIP, d.depth);
    if (!g->c) d.sums = (size_t)(d.rows * k_min(d.columns, GEMM_COLUMNS)) * sizeof(float);
    if (g->bias.data) d.bias = GEMM_COLUMNS * sizeof(float);
    d.scratch = AMX_STRIP * CHUNK * sizeof(uint16_t);
    d.bytes = (d.a + d.b + d.sums + d.bias + d.scratch) * (size_t)k_min(ctx->threads, tasks);
    return d;
}

size_t gemm_amx_workspace(const gemm *g, const k_context *ctx) { return divide(g, ctx).bytes; }

/* A block of c, and the buffers of the thread that computes it. */
typedef struct task {
    const gemm *g;
    const division *d;
    operand x, y; /* a and b */
    int64_t row, rows, column, columns;
    char *a, *b;
    float *sums, *bias;
    uint16_t *scratch;
} task;

/* The block [depth] of all rows x columns [column, column + columns) whose sums are at c. */
typedef struct part {
    float *c;
    uint16_t *low; /* the result, if this is the last block of k and the result has the low type */
    int64_t ldc, column, columns, k, depth;
    bool adds;
} part;

/* Replaces sums that are not finite. */
CPU_CLONES static void choose_finite(float *sums, const float *high, int64_t n)
{
    for (int64_t i = 0; i < n; i++) sums[i] = sums[i] - sums[i] == 0 ? sums[i] : high[i];
}

CPU_CLONES static bool are_finite(const float *x, int64_t n)
{
    uint32_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t exponent = ir_bits_f32(x[i]) & 0x7f800000u;
        worst = exponent > worst ? exponent : worst;
    }
    return worst < 0x7f800000u;
}

/* A product of strips of which rows x columns belong to c. Its sums are put there after the next product has been
 * computed: loads of what tiles have just stored are slow. */
typedef struct pending {
    _Alignas(64) float sums[AMX_STRIP * AMX_STRIP];
    strips s;
    ir_dtype type;
    bool adds; /* what is in c */
    float *c;  /* NULL: nothing is pending */
    int64_t ldc, rows, columns;
    uint16_t *low; /* the place of the result if these are the last terms, or NULL */
    int64_t low_ld;
    const float *bias; /* or NULL */
} pending;

static void compute(pending *p)
{
    const int64_t i = tiles_of(p->rows) - 1, j = tiles_of(p->columns) - 1;
    (p->type == IR_f16 ? multiply_f16 : multiply_bf16)[i][j](&p->s, p->sums);
}

AMX_INLINE void store_low(uint16_t *to, __mmask16 mask, __m512 x, const ir_dtype type)
{
    const __m256i low = type == IR_bf16 ? (__m256i)_mm512_cvtneps_pbh(x)
                                        : _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(to, mask, low);
}

/* Puts 16 columns of sums into c, or the result of type `low`, which is constant. */
AMX_INLINE void put_columns(const pending *p, int64_t j, __mmask16 mask, const ir_dtype low)
{
    const __m512 bias = p->bias ? _mm512_maskz_loadu_ps(mask, p->bias + j) : _mm512_set1_ps(-0.f);
    const int64_t rows = p->rows, ldc = p->ldc, low_ld = p->low_ld;
    const __mmask16 added = p->adds ? mask : 0;
    const float *sums = p->sums + j;
    float *c = p->c + j;
    uint16_t *to = p->low + j;
    for (int64_t i = 0; i < rows; i++, sums += AMX_STRIP, c += ldc) {
        const __m512 x = _mm512_load_ps(sums), y = _mm512_mask_add_ps(x, added, _mm512_maskz_loadu_ps(added, c), x);
        if (low == IR_NO_DTYPE) _mm512_mask_storeu_ps(c, mask, y);
        else store_low(to + i * low_ld, mask, _mm512_add_ps(y, bias), low);
    }
}

AMX static void put(pending *p)
{
    if (!p->c) return;
    if (p->type == IR_f16 && !are_finite(p->sums, p->rows * AMX_STRIP)) {
        _Alignas(64) float high[AMX_STRIP * AMX_STRIP];
        multiply_high[tiles_of(p->rows) - 1][tiles_of(p->columns) - 1](&p->s, high);
        choose_finite(p->sums, high, p->rows * AMX_STRIP);
    }
    for (int64_t j = 0; j < p->columns; j += AMX_LANES) {
        const __mmask16 mask = amx_mask_16(p->columns - j);
        if (!p->low) put_columns(p, j, mask, IR_NO_DTYPE);
        else if (p->type == IR_bf16) put_columns(p, j, mask, IR_bf16);
        else put_columns(p, j, mask, IR_f16);
    }
    p->c = NULL;
}

/* The panel at `column` of the part, from row k on. */
static const char *panel_of(const task *t, const part *p, int64_t column, int64_t columns)
{
    const gemm *g = t->g;
    if (!g->packed) {
        make_strip(t->b, &t->y, p->column + column, columns, p->k, p->depth, t->scratch);
        return t->b;
    }
    return (const char *)gemm_item_packed(g, t->x.item) +
           (p->column + column) / AMX_STRIP * strip_bytes(g->type, AMX_STRIP, g->k) +
           strip_bytes(g->type, columns, p->k);
}

/* Strip number i times the panel b at `column`. */
static void describe(pending *next, const task *t, const part *p, int64_t i, int64_t column, const char *b)
{
    const gemm *g = t->g;
    const int64_t n = cpu_ceil_div(t->rows, AMX_STRIP), row = i * AMX_STRIP;
    const int64_t strip = strip_bytes(g->type, AMX_STRIP, t->d->whole ? g->k : p->depth);
    next->type = g->type;
    next->adds = p->adds;
    next->c = p->c + row * p->ldc + column;
    next->ldc = p->ldc;
    next->rows = k_min(AMX_STRIP, t->rows - row);
    next->columns = k_min(AMX_STRIP, p->columns - column);
    next->low = p->low ? p->low + row * g->ldc + column : NULL;
    next->low_ld = g->ldc;
    next->bias = p->low && g->bias.data ? t->bias + column : NULL;
    const int64_t lines = strip_bytes(g->type, next->columns, AMX_TERMS) / 64, ahead = cpu_ceil_div(lines, n);
    next->s = (strips){.b = b, .steps = cpu_ceil_div(p->depth, AMX_TERMS), .lines = g->packed ? ahead : 0};
    next->s.a = t->a + i * strip + (t->d->whole ? strip_bytes(g->type, next->rows, p->k) : 0);
    next->s.ahead = b + (n == 1 ? FAR : next->s.steps * (lines + i * ahead) * 64);
}

static void multiply_part(const task *t, const part *p)
{
    pending two[2];
    two[0].c = two[1].c = NULL;
    int turn = 0;
    for (int64_t column = 0; column < p->columns; column += AMX_STRIP) {
        const char *b = panel_of(t, p, column, k_min(AMX_STRIP, p->columns - column));
        for (int64_t i = 0; i * AMX_STRIP < t->rows; i++, turn = !turn) {
            describe(&two[turn], t, p, i, column, b);
            compute(&two[turn]);
            put(&two[!turn]);
        }
        if (!t->g->packed) put(&two[!turn]); /* before the next panel replaces this one */
    }
    put(&two[!turn]);
}

/* Makes the strips of the task for these terms. */
static void make_a(const task *t, int64_t k, int64_t depth)
{
    const int64_t bytes = strip_bytes(t->g->type, AMX_STRIP, depth);
    for (int64_t i = 0; i < t->rows; i += AMX_STRIP)
        make_strip(t->a + i / AMX_STRIP * bytes, &t->x, t->row + i, k_min(AMX_STRIP, t->rows - i), k, depth,
                   t->scratch);
}

/* A result without terms. */
static void clear(const part *p, const task *t)
{
    const gemm *g = t->g;
    uint16_t line[GEMM_COLUMNS] = {0};
    if (g->bias.data) cpu_convert(g->type, line, IR_f32, t->bias, p->columns);
    for (int64_t i = 0; i < t->rows && !g->adds; i++) {
        memset(p->c + i * p->ldc, 0, (size_t)p->columns * sizeof *p->c);
        if (g->low_c) memcpy(p->low + i * g->ldc, line, (size_t)p->columns * sizeof *line);
    }
}

/* Computes columns [column, column + columns), at most GEMM_COLUMNS. */
static void run_columns(const task *t, int64_t column, int64_t columns)
{
    const gemm *g = t->g;
    const int64_t at = t->x.item * g->c_item + t->row * g->ldc + column;
    uint16_t *low = g->low_c ? (uint16_t *)g->low_c + at : NULL;
    part p = {.c = t->sums, .ldc = k_min(t->d->columns, GEMM_COLUMNS), .column = column, .columns = columns};
    if (g->c) p.c = g->c + at, p.ldc = g->ldc;
    if (g->bias.data)
        gemm_load(t->bias, &g->bias, (const char *)g->bias.data + column * (int64_t)ir_dtype_size(g->bias.dtype), 1,
                  columns);
    for (; p.k < g->k; p.k += t->d->depth) {
        p.depth = k_min(t->d->depth, g->k - p.k);
        p.adds = p.k > 0 || g->adds;
        p.low = p.k + p.depth == g->k ? low : NULL;
        if (!t->d->whole) make_a(t, p.k, p.depth);
        multiply_part(t, &p);
    }
    p.low = low;
    if (g->k == 0) clear(&p, t);
    if (g->finish) g->finish(g->user, t->x.item, p.c, p.ldc, t->row, t->rows, column, columns);
}

AMX static void run_task(const task *t)
{
    amx_configure();
    if (t->d->whole) make_a(t, 0, t->g->k);
    for (int64_t column = 0; column < t->columns; column += GEMM_COLUMNS)
        run_columns(t, t->column + column, k_min(GEMM_COLUMNS, t->columns - column));
    _tile_release();
}

static task task_of(const gemm *g, const division *d, int64_t i, char *buffers)
{
    const int64_t block = i % (d->down * d->across), item = i / (d->down * d->across);
    task t = {.g = g, .d = d, .x = operand_a(g, item), .y = operand_b(g, item)};
    t.row = block / d->across * d->rows;
    t.column = block % d->across * d->columns;
    t.rows = k_min(d->rows, g->m - t.row);
    t.columns = k_min(d->columns, g->n - t.column);
    t.a = buffers;
    t.b = t.a + d->a;
    t.sums = (float *)(void *)(t.b + d->b);
    t.bias = (float *)(void *)(t.b + d->b + d->sums);
    t.scratch = (uint16_t *)(void *)(t.b + d->b + d->sums + d->bias);
    return t;
}

void gemm_amx_run(const gemm *g, void *workspace, const k_context *ctx)
{
    const division d = divide(g, ctx);
    const int64_t tasks = g->items * d.down * d.across;
#pragma omp parallel for num_threads(d.threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++) {
        const size_t bytes = d.a + d.b + d.sums + d.bias + d.scratch;
        const task t = task_of(g, &d, i, (char *)workspace + bytes * (size_t)omp_get_thread_num());
        run_task(&t);
    }
}
#else
bool gemm_has(ir_dtype type) { return !ir_dtype_is_low(type); }
size_t gemm_amx_workspace(const gemm *g, const k_context *ctx)
{
    (void)g, (void)ctx;
    return 0;
}
void gemm_amx_run(const gemm *g, void *workspace, const k_context *ctx) { (void)g, (void)workspace, (void)ctx; }
void gemm_pack_low(void *packed, const gemm *g, const k_context *ctx) { (void)packed, (void)g, (void)ctx; }
#endif
