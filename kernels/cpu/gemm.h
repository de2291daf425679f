/* gemm.h - products of matrices by own code: c = a b, or c += a b, for any number of independent items. Sums are f32;
 * operands are multiplied as f32 or, where the processor has AMX, as bf16 or f16.
 *
 * b is read in panels of GEMM_PANEL columns, in which each of the k rows follows the previous one: a panel is a single
 * stream through memory. gemm_pack makes the panels, once for an operand that never changes, and a product makes them
 * block by block from any other operand. The last panel is GEMM_HALF wide if that is enough, and its columns beyond n
 * are 0. The format is the same on every processor.
 *
 * A sum over k is divided into blocks of GEMM_DEPTH terms. A block is summed in ascending order, with fused
 * multiply-adds where the processor has them, and the blocks are added in ascending order. So the bits of an element
 * depend on its row of a, its column of b and the instruction set, but neither on the number of threads nor on the
 * other rows and columns. The last is true of low types as well (gemm_amx.c), whose sums are not divided. */
#ifndef AMPC_GEMM_H
#define AMPC_GEMM_H

#include "kernels/cpu/cpu.h"

struct product; /* kernels/matmul.h */

enum { GEMM_PANEL = 32, GEMM_HALF = 16, GEMM_DEPTH = 256, GEMM_COLUMNS = 512 };

/* A matrix of any float type but f64: element (i, j) is number i * row + j * column of data. As for k_view, f32
 * numbers are rounded to `as` when they are read. */
typedef struct gemm_matrix {
    const void *data;
    ir_dtype dtype, as;
    int64_t row, column;
} gemm_matrix;

/* Computes rows [row, row + rows) x columns [k, k + depth) of a into `to`; the distance between rows is `ld`. */
typedef void gemm_fill_a(const void *user, int64_t item, int64_t row, int64_t rows, int64_t k, int64_t depth, float *to,
                         int64_t ld);
/* Computes rows [k, k + depth) x columns [column, column + columns) of b as panels, the first at `to`; column is a
 * multiple of GEMM_PANEL. */
typedef void gemm_fill_b(const void *user, int64_t item, int64_t k, int64_t depth, int64_t column, int64_t columns,
                         float *to);
/* The same for low types, for both operands: computes rows [row, row + rows) x columns [column, column + columns) of a
 * or b into `to`, row-major, in elements of the type of the product. */
typedef void gemm_fill_low(const void *user, int64_t item, int64_t row, int64_t rows, int64_t column, int64_t columns,
                           uint16_t *to, int64_t ld);
/* Receives the sums of a block of at most GEMM_COLUMNS columns, which it may change. */
typedef void gemm_finish(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows,
                         int64_t column, int64_t columns);

/* Receives numbers [first, first + n) of a result, at most GEMM_COLUMNS; `next` is the first of the next call. Threads
 * call it concurrently. */
typedef void gemm_visit(void *user, int64_t first, const float *values, int64_t n, int64_t next);

typedef struct gemm {
    ir_dtype type; /* bf16 or f16: operands are rounded to it unless they have it (see gemm_has); else they are f32 */
    int64_t items, m, n, k;
    gemm_matrix a, b;
    const struct product *batch;  /* the offsets of the items in a and b; NULL: */
    int64_t a_item, b_item;       /* multiples of these, in elements */
    gemm_fill_a *fill_a;          /* instead of a; may be NULL */
    gemm_fill_b *fill_b;          /* instead of b; may be NULL */
    gemm_fill_low *low_a, *low_b; /* likewise, for a product of a low type */
    const void *packed;           /* instead of b, from gemm_pack or gemm_pack_low; NULL: not packed */
    int64_t packed_item;          /* the distance between two items of b in it, in bytes */
    float *c;                     /* NULL: sums go to `finish` only */
    int64_t c_item, ldc;          /* the distances between two items and two rows, in elements */
    bool adds;                    /* to what is in c */
    bool reads_a_once;            /* each row of it from beginning to end: a fills no cache, and `packed` is small */
    void *low_c;                  /* of a product of a low type: the result, rounded to it; c is NULL then, */
    gemm_matrix bias;             /* which is added before, one per column, unless its data is NULL */
    gemm_finish *finish;          /* NULL if c or low_c is the result */
    const void *user;
} gemm;

/* The workspace of gemm_run in bytes. Only the sizes of g, and which of its members are NULL, matter. */
size_t gemm_workspace(const gemm *g, const k_context *ctx);
void gemm_run(const gemm *g, void *workspace, const k_context *ctx);

/* Whether this processor multiplies operands of a low type. */
bool gemm_has(ir_dtype type);

/* A product of small blocks in memory, without panels, buffers and threads: c [m, n] = a b, or c += a b. Element (i, l)
 * of a is a[i * a_row + l * a_column], and a_row or a_column is 1; the rows of b and c are b_row and c_row apart. n is
 * a multiple of GEMM_HALF. A sum is in ascending order. */
typedef struct gemm_block {
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row, m, n, k;
    bool adds;
} gemm_block;
void gemm_multiply(const gemm_block *g);

/* The elements of the panels of a matrix k x n. */
static inline int64_t gemm_packed_size(int64_t k, int64_t n) { return k * cpu_ceil_div(n, GEMM_HALF) * GEMM_HALF; }
/* Writes rows [first, first + depth) of the panels of a matrix [k, n], read from b, whose row 0 is row `first`. A whole
 * matrix has first 0 and depth k. */
void gemm_pack(float *packed, const gemm_matrix *b, int64_t k, int64_t n, int64_t first, int64_t depth,
               const k_context *ctx);

/* The bytes of the panels of a matrix k x n for products of a low type. They, too, have 32 columns, and the last one 16
 * if that is enough. For each 32 rows, which are padded with zeros, a panel has a tile per 16 columns, in which the
 * elements of two rows alternate; for f16 it has two (gemm_amx.c). */
int64_t gemm_low_bytes(ir_dtype type, int64_t k, int64_t n);
/* The bytes of the panels of a matrix k x n for products of any type. */
static inline int64_t gemm_packed_bytes(ir_dtype type, int64_t k, int64_t n)
{
    return ir_dtype_is_low(type) ? gemm_low_bytes(type, k, n) : gemm_packed_size(k, n) * (int64_t)sizeof(float);
}
/* Makes the panels of all items of operand b of g, which has type, items, n, k, b or low_b, and user. */
void gemm_pack_low(void *packed, const gemm *g, const k_context *ctx);

/* Writes row number `row` of panels that are k rows high. */
void gemm_spread(float *to, int64_t k, int64_t row, const float *from, int64_t columns);
/* n elements from `at` on, `stride` elements apart, in f32 and rounded to `as`. */
void gemm_load(float *to, const gemm_matrix *m, const void *at, int64_t stride, int64_t n);
/* Copies rows x columns: element (i, j) of `from` is at from + i + j * ld, that of `to` at to + i * to_ld + j. */
void gemm_transpose(float *to, int64_t to_ld, const float *from, int64_t ld, int64_t rows, int64_t columns);

#endif
