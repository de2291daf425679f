/* gemm.c - products of f32 matrices by own code.
 *
 * A task computes a block of c: for each block of k, it makes what the loops need of a and b, unless they can be read
 * in place, and multiplies tile by tile. A tile of c is held in registers. Everything that a task needs is in the part
 * of the workspace that belongs to its thread, so tasks never wait for each other. */
#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/gemm_item.h"
#include "kernels/cpu/isa.h"

#include <omp.h>
#include <string.h>

/* ---- tiles ------------------------------------------------------------------------------------------- */

typedef struct gemm_tile {
    const float *a, *b;
    float *c;
    int64_t row, width, depth, ldc; /* see tile() in gemm_tiles.h */
    int64_t ahead;                  /* floats of b to prefetch */
    bool adds;
} gemm_tile;

typedef void gemm_tile_fn(const gemm_tile *t);

/* Makes the compiler hold an address in a register. */
#define GEMM_KEEP(address) __asm__("" : "+r"(address))
#define FLOATS(n) float __attribute__((vector_size((n) * sizeof(float)), aligned(4), may_alias))

typedef FLOATS(4) vector_4;
#define ROWS_4(X) X(1) X(2) X(3) X(4)

#define GEMM_NAME(name) base_##name
#define GEMM_TARGET
#define GEMM_VECTOR vector_4
#define GEMM_LANES 4
#define GEMM_ROWS 4
#define GEMM_EACH ROWS_4
#define GEMM_FMA(x, b, c) ((x) * (b) + (c))
#include "kernels/cpu/gemm_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

typedef FLOATS(8) vector_8;
typedef FLOATS(16) vector_16;
#define ROWS_6(X) ROWS_4(X) X(5) X(6)
#define ROWS_14(X) ROWS_6(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)

#define GEMM_NAME(name) avx2_##name
#define GEMM_TARGET __attribute__((target("avx2,fma")))
#define GEMM_VECTOR vector_8
#define GEMM_LANES 8
#define GEMM_ROWS 6
#define GEMM_EACH ROWS_6
#define GEMM_FMA(x, b, c) ((vector_8)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)(b), (__m256)(c)))
#include "kernels/cpu/gemm_tiles.h"

#define GEMM_NAME(name) avx512_##name
#define GEMM_TARGET __attribute__((target("avx512f")))
#define GEMM_VECTOR vector_16
#define GEMM_LANES 16
#define GEMM_ROWS 14
#define GEMM_EACH ROWS_14
#define GEMM_FMA(x, b, c) ((vector_16)_mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)(b), (__m512)(c)))
#include "kernels/cpu/gemm_tiles.h"
#endif

typedef struct gemm_code {
    int lanes, rows;
    gemm_tile_fn *const *tiles; /* [2][2][rows] */
} gemm_code;

/* The code for a level. */
static const gemm_code *code_for(cpu_isa_level level)
{
    static const gemm_code codes[] = {
        [CPU_ISA_baseline] = {4, 4, base_tiles[0][0]},
#if defined(__x86_64__)
        [CPU_ISA_avx2] = {8, 6, avx2_tiles[0][0]},
        [CPU_ISA_avx512] = {16, 14, avx512_tiles[0][0]},
#endif
    };
    return &codes[level < CPU_ISA_avx512 ? level : CPU_ISA_avx512];
}

/* ---- blocks ------------------------------------------------------------------------------------------ */

enum {
    FEW_ROWS = 140, /* of a block if b is packed; else a block is as high as the work of packing b demands */
    MANY_ROWS = 512,
    PAD = 16,                 /* floats after a row, so that rows are not at the same place of a cache */
    WHOLE_BYTES = 512 * 1024, /* a block of a that is this small is made for all of k */
    STREAM_TILES = 4,
    AHEAD_ROWS = 8, /* of b to prefetch if a product has no panels */
    FAR = 1024,
    NEAR = 256, /* floats to prefetch of b, in memory or in the second-level cache */
    SERIAL = 16 /* terms of a product that cost as much as an element of other loops (cpu_threads) */
};

/* How the product is divided. */
typedef struct division {
    const gemm_code *code;
    int64_t rows, columns, across, down; /* the size of a block, and the numbers of blocks */
    int64_t depth;                       /* of the blocks of a in memory */
    int threads;
    bool copies_a, crosses_a, packs; /* a is copied to the workspace, with k as the row; b is packed there */
    bool direct;                     /* whole panels of b are read in place, because there are few rows */
    size_t a, b, sums, bytes;        /* of the buffers of a thread, and of all together */
} division;

static bool is_plain(const gemm_matrix *m) { return m->dtype == IR_f32 && m->as == IR_NO_DTYPE; }

static bool reads_in_place(const gemm *g) { return !g->fill_a && is_plain(&g->a) && g->a.column == 1; }

/* Makes blocks smaller until there is one for each thread. */
static void divide_among(division *d, const gemm *g, int threads)
{
    while (true) {
        d->down = cpu_ceil_div(g->m, d->rows);
        d->across = cpu_ceil_div(g->n, d->columns);
        if (g->items * d->down * d->across >= threads) return;
        if (d->columns > 4 * GEMM_PANEL || (d->columns > GEMM_PANEL && d->rows <= 2 * d->code->rows))
            d->columns = cpu_ceil_div(cpu_ceil_div(d->columns, 2), GEMM_PANEL) * GEMM_PANEL;
        else if (d->rows > d->code->rows)
            d->rows = cpu_ceil_div(cpu_ceil_div(d->rows, 2), d->code->rows) * d->code->rows;
        else return;
    }
}

static division divide(const gemm *g, const k_context *ctx)
{
    division d = {.code = code_for(cpu_isa()), .packs = !g->packed, .copies_a = !reads_in_place(g)};
    d.crosses_a = d.copies_a && !g->fill_a && g->a.row == 1 && g->a.column != 1;
    const int64_t most = d.packs ? MANY_ROWS : FEW_ROWS;
    d.rows = k_max(1, cpu_ceil_div(g->m, k_max(1, cpu_ceil_div(g->m, most))));
    d.columns = k_max(1, k_min(cpu_ceil_div(g->n, GEMM_PANEL) * GEMM_PANEL, GEMM_COLUMNS));
    divide_among(&d, g, ctx->threads);
    d.direct = d.packs && !g->fill_b && is_plain(&g->b) && g->b.column == 1 && g->m <= STREAM_TILES * d.code->rows;
    const bool is_small = !d.packs && !d.crosses_a && d.rows * g->k * (int64_t)sizeof(float) <= WHOLE_BYTES;
    d.depth = k_min(g->k, is_small || g->reads_a_once ? g->k : GEMM_DEPTH);
    const int64_t tasks = k_max(1, g->items * d.down * d.across);
    d.threads = (int)k_min(cpu_threads(ctx, g->items * g->m * g->n * g->k / SERIAL), tasks);
    if (d.copies_a) d.a = cpu_lines((size_t)(d.rows * (d.depth + PAD)) * sizeof(float));
    if (d.packs) d.b = cpu_lines((size_t)(d.depth * d.columns) * sizeof(float));
    if (!g->c) d.sums = cpu_lines((size_t)(d.rows * d.columns) * sizeof(float));
    d.bytes = (d.a + d.b + d.sums) * (size_t)k_min(ctx->threads, tasks);
    return d;
}

size_t gemm_workspace(const gemm *g, const k_context *ctx)
{
    return ir_dtype_is_low(g->type) ? gemm_amx_workspace(g, ctx) : divide(g, ctx).bytes;
}

/* A block of c, and the buffers of the thread that computes it. */
typedef struct task {
    const gemm *g;
    const division *d;
    int64_t item, row, rows, column, columns;
    float *a, *b, *c;
    int64_t ldc;
} task;

/* The first row of tile number i of n that divide `rows` rows as evenly as possible. */
static int64_t tile_row(int64_t rows, int64_t n, int64_t i) { return rows / n * i + k_min(i, rows % n); }

/* Copies columns [k, k + depth) of a block of a whose rows are contiguous: tile by tile, row k after row k. */
static void cross_a(const task *t, const char *from, int64_t k, int64_t depth)
{
    const gemm_matrix *a = &t->g->a;
    const int64_t size = (int64_t)ir_dtype_size(a->dtype), tiles = cpu_ceil_div(t->rows, t->d->code->rows);
    float line[MANY_ROWS];
    for (int64_t l = 0; l < depth; l++) {
        const char *at = from + (t->row + (k + l) * a->column) * size;
        const float *source = (const float *)(const void *)at;
        if (!is_plain(a)) {
            gemm_load(line, a, at, 1, t->rows);
            source = line;
        }
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t first = tile_row(t->rows, tiles, i), rows = tile_row(t->rows, tiles, i + 1) - first;
            float *to = t->a + first * depth + l * rows;
            for (int64_t j = 0; j < rows; j++) to[j] = source[first + j];
        }
    }
}

/* The block of a for columns [k, k + depth), and the distance between its rows. */
static const float *block_of_a(const task *t, int64_t k, int64_t depth, int64_t *ld)
{
    const gemm *g = t->g;
    *ld = depth + PAD;
    if (g->fill_a) {
        g->fill_a(g->user, t->item, t->row, t->rows, k, depth, t->a, *ld);
        return t->a;
    }
    const char *from = gemm_item_a(t->g, t->item);
    const int64_t size = (int64_t)ir_dtype_size(g->a.dtype);
    if (t->d->crosses_a) {
        cross_a(t, from, k, depth);
        return t->a;
    }
    from += (t->row * g->a.row + k * g->a.column) * size;
    if (!t->d->copies_a) {
        *ld = g->a.row;
        return (const float *)(const void *)from;
    }
    for (int64_t i = 0; i < t->rows; i++)
        gemm_load(t->a + i * *ld, &g->a, from + i * g->a.row * size, g->a.column, depth);
    return t->a;
}

/* The matrix b from row k and column `column` of the task on. */
static gemm_matrix part_of_b(const task *t, int64_t k, int64_t column)
{
    gemm_matrix b = t->g->b;
    b.data = gemm_item_b(t->g, t->item) +
             (k * b.row + (t->column + column) * b.column) * (int64_t)ir_dtype_size(b.dtype);
    return b;
}

/* Makes the panels of a block of b. */
static void block_of_b(const task *t, int64_t k, int64_t depth)
{
    const gemm *g = t->g;
    if (g->fill_b) {
        g->fill_b(g->user, t->item, k, depth, t->column, t->columns, t->b);
        return;
    }
    const int64_t first = t->d->direct ? t->columns / GEMM_PANEL * GEMM_PANEL : 0;
    const gemm_matrix b = part_of_b(t, k, first);
    gemm_pack(t->b + first * depth, &b, depth, t->columns - first, 0, depth, &(k_context){.threads = 1});
}

/* Multiplies a tile of a by a panel of which `columns` columns belong to c. */
static void multiply_tile(gemm_tile tile, gemm_tile_fn *run, int64_t span, int64_t rows, int64_t columns)
{
    float edge[14 * GEMM_PANEL];
    for (; columns > 0; columns -= span, tile.b += span, tile.c += span) {
        if (columns >= span) {
            run(&tile);
            continue;
        }
        gemm_tile whole = tile;
        whole.c = edge;
        whole.ldc = span;
        whole.adds = false;
        run(&whole);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                float *c = &tile.c[i * tile.ldc + j];
                *c = tile.adds ? edge[i * span + j] + *c : edge[i * span + j];
            }
    }
}

/* What a block of a, [rows, depth] with distance ld, is multiplied by: the panel b, whose first column is `column` of
 * the task. */
typedef struct step {
    const float *a, *b;
    int64_t ld, column, width, depth, ahead;
    bool adds;
} step;

/* Multiplies tile number i of n. */
static void multiply(const task *t, const step *s, int64_t i, int64_t n)
{
    const int64_t columns = k_min(GEMM_PANEL, t->columns - s->column);
    const int64_t first = tile_row(t->rows, n, i), rows = tile_row(t->rows, n, i + 1) - first;
    const int64_t width = columns <= GEMM_HALF ? GEMM_HALF : GEMM_PANEL;
    const gemm_code *code = t->d->code;
    const int vectors = width >= 2 * code->lanes ? 2 : 1;
    const bool crossed = t->d->crosses_a;
    const gemm_tile tile = {.a = s->a + first * (crossed ? s->depth : s->ld),
                            .b = s->b,
                            .c = t->c + first * t->ldc + s->column,
                            .row = crossed ? rows : s->ld,
                            .width = s->width,
                            .depth = s->depth,
                            .ldc = t->ldc,
                            .ahead = s->ahead,
                            .adds = s->adds};
    gemm_tile_fn *const *run = code->tiles + ((vectors - 1) * 2 + crossed) * code->rows;
    multiply_tile(tile, run[rows - 1], vectors * code->lanes, rows, columns);
}

/* Sets the panel to the one at s->column, from row k on. `depth`: of the panels that the task has made. */
static void set_panel(const task *t, step *s, int64_t k, int64_t depth)
{
    const gemm *g = t->g;
    const int64_t columns = t->columns - s->column;
    s->width = columns <= GEMM_HALF ? GEMM_HALF : GEMM_PANEL;
    if (g->packed) {
        s->b = (const float *)gemm_item_packed(g, t->item) + (t->column + s->column) * g->k + k * s->width;
    } else if (t->d->direct && columns >= GEMM_PANEL) {
        s->b = part_of_b(t, k, s->column).data;
        s->width = g->b.row;
        s->ahead = s->ahead / GEMM_PANEL * g->b.row;
    } else {
        s->b = t->b + s->column * depth;
    }
}

/* Multiplies all of k, tile by tile of a. */
static void multiply_rows(const task *t, const float *a, int64_t ld)
{
    const int64_t tiles = cpu_ceil_div(t->rows, t->d->code->rows), depth = t->g->k;
    for (int64_t i = 0; i < tiles; i++)
        for (int64_t l = 0; l < depth; l += GEMM_DEPTH)
            for (int64_t column = 0; column < t->columns; column += GEMM_PANEL) {
                step s = {.a = a + l, .ld = ld, .column = column, .depth = k_min(GEMM_DEPTH, depth - l), .ahead = NEAR};
                s.adds = l > 0 || t->g->adds;
                set_panel(t, &s, l, depth);
                multiply(t, &s, i, tiles);
            }
}

/* Multiplies the block `a` of columns [k, k + depth) by all panels, block of k after block of k. Few rows wait for b,
 * so each panel is read as one stream; of many, a tile stays in the first-level cache for all panels. */
static void multiply_block(const task *t, const float *a, int64_t ld, int64_t k, int64_t depth)
{
    const int64_t tiles = cpu_ceil_div(t->rows, t->d->code->rows);
    const bool is_stream = tiles <= STREAM_TILES;
    const int64_t outer = is_stream ? 1 : tiles, inner = is_stream ? tiles : 1;
    for (int64_t first = 0; first < depth; first += is_stream ? depth : GEMM_DEPTH)
        for (int64_t i = 0; i < outer; i++)
            for (int64_t column = 0; column < t->columns; column += GEMM_PANEL)
                for (int64_t l = first; l < (is_stream ? depth : first + 1); l += GEMM_DEPTH) {
                    step s = {.a = a + l, .ld = ld, .column = column, .depth = k_min(GEMM_DEPTH, depth - l)};
                    s.ahead = is_stream || i == 0 ? FAR : NEAR;
                    s.adds = k + l > 0 || t->g->adds;
                    set_panel(t, &s, k + l, depth);
                    for (int64_t j = 0; j < inner; j++) multiply(t, &s, i + j, tiles);
                }
}

static void run_task(task t)
{
    const gemm *g = t.g;
    for (int64_t k = 0; k < g->k; k += t.d->depth) {
        const int64_t depth = k_min(t.d->depth, g->k - k);
        int64_t ld;
        const float *a = block_of_a(&t, k, depth, &ld);
        if (t.d->packs) block_of_b(&t, k, depth);
        if (g->reads_a_once) multiply_rows(&t, a, ld);
        else multiply_block(&t, a, ld, k, depth);
    }
    for (int64_t i = 0; i < t.rows && g->k == 0 && !g->adds; i++)
        memset(t.c + i * t.ldc, 0, (size_t)t.columns * sizeof *t.c);
    if (g->finish) g->finish(g->user, t.item, t.c, t.ldc, t.row, t.rows, t.column, t.columns);
}

static task task_of(const gemm *g, const division *d, int64_t i, char *buffers)
{
    const int64_t block = i % (d->down * d->across);
    task t = {.g = g, .d = d, .item = i / (d->down * d->across)};
    t.row = block / d->across * d->rows;
    t.column = block % d->across * d->columns;
    t.rows = k_min(d->rows, g->m - t.row);
    t.columns = k_min(d->columns, g->n - t.column);
    t.a = (float *)(void *)buffers;
    t.b = (float *)(void *)(buffers + d->a);
    t.c = g->c ? g->c + t.item * g->c_item + t.row * g->ldc + t.column : (float *)(void *)(buffers + d->a + d->b);
    t.ldc = g->c ? g->ldc : d->columns;
    return t;
}

void gemm_run(const gemm *g, void *workspace, const k_context *ctx)
{
    if (ir_dtype_is_low(g->type)) {
        gemm_amx_run(g, workspace, ctx);
        return;
    }
    const division d = divide(g, ctx);
    const int64_t tasks = g->items * d.down * d.across;
#pragma omp parallel for num_threads(d.threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++)
        run_task(task_of(g, &d, i, (char *)workspace + (d.a + d.b + d.sums) * (size_t)omp_get_thread_num()));
}

void gemm_multiply(const gemm_block *g)
{
    const gemm_code *code = code_for(cpu_isa());
    const int64_t tiles = cpu_ceil_div(g->m, code->rows), lanes = code->lanes;
    const bool crossed = g->a_column != 1;
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t first = tile_row(g->m, tiles, i), rows = tile_row(g->m, tiles, i + 1) - first;
        for (int64_t column = 0, span; column < g->n; column += span) {
            const int vectors = g->n - column >= 2 * lanes ? 2 : 1;
            const gemm_tile tile = {.a = g->a + first * g->a_row,
                                    .b = g->b + column,
                                    .c = g->c + first * g->c_row + column,
                                    .row = crossed ? g->a_column : g->a_row,
                                    .width = g->b_row,
                                    .depth = g->k,
                                    .ldc = g->c_row,
                                    .ahead = AHEAD_ROWS * g->b_row,
                                    .adds = g->adds};
            code->tiles[((vectors - 1) * 2 + crossed) * code->rows + rows - 1](&tile);
            span = vectors * lanes;
        }
    }
}
