/* panels.c - products of operands of types that the processor cannot multiply natively.
 *
 * A block of y is computed from panels of a and b in f32 that are small enough to stay in a cache, so that no f32 copy
 * of an operand is ever stored in memory. Sums are f32; a block is rounded once, after the epilogue. */
#include "kernels/cpu/panels.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/tiles.h"

enum { ROWS = 512, COLUMNS = 256, DEPTH = 1024 };
enum { IN_A = IR_IN(matmul, a), IN_B = IR_IN(matmul, b), IN_BIAS = IR_IN(matmul, bias) };

/* An operand in memory and its current f32 panel. */
typedef struct source {
    const k_view *view;
    int64_t ld;
    float *panel;
} source;

/* An operand or result of sgemm. */
typedef struct matrix {
    float *data;
    int64_t ld;
} matrix;

typedef struct panels {
    const k_args *args;
    const product *p;
    source a, b;
    float *sums, *bias; /* a block of y, NULL if y is f32; its part of the bias, or NULL */
    cpu_tile_fn *tail;  /* activation, or NULL */
    cpu_numbers numbers;
} panels;

/* Allocates a buffer at *at in the workspace and advances *at. NULL if `workspace` is. */
static float *alloc_buffer(char *workspace, size_t *at, int64_t rows, int64_t columns)
{
    float *buffer = workspace ? (float *)(workspace + *at) : NULL;
    *at += cpu_lines((size_t)(rows * columns) * sizeof(float));
    return buffer;
}

/* Allocates the buffers in the workspace, which may be NULL. Returns the size needed, in bytes. */
static size_t place(panels *s, char *workspace)
{
    const int64_t m = k_min(s->p->m, ROWS), n = k_min(s->p->n, COLUMNS), k = k_min(s->p->k, DEPTH);
    size_t at = 0;
    s->a.panel = alloc_buffer(workspace, &at, m, k);
    s->b.panel = alloc_buffer(workspace, &at, k, n);
    if (k_present(&s->args->in[IN_BIAS])) s->bias = alloc_buffer(workspace, &at, 1, n);
    if (s->args->out[0].dtype != IR_f32) s->sums = alloc_buffer(workspace, &at, m, n);
    return at;
}

size_t cpu_panels_workspace(const k_args *args, const product *p)
{
    panels s = {.args = args, .p = p};
    return place(&s, NULL);
}

/* Loads rows x columns elements from (row, column) on as f32, rounded to the type that the operand is read as. */
static matrix fill(const source *s, int64_t row, int64_t column, int64_t rows, int64_t columns, const k_context *ctx)
{
    const k_view *v = s->view;
    if (v->dtype == IR_f32 && v->as == IR_NO_DTYPE) return (matrix){cpu_at(v, row * s->ld + column), s->ld};
#pragma omp parallel for num_threads(cpu_threads(ctx, rows *columns)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float *to = s->panel + i * columns;
        cpu_convert(IR_f32, to, v->dtype, cpu_at(v, (row + i) * s->ld + column), columns);
        if (v->as != IR_NO_DTYPE) cpu_as_stored(v->as, IR_f32, to, columns);
    }
    return (matrix){s->panel, columns};
}

/* Finishes the columns of row i of a block: bias, activation, rounding. */
static void finish_row(const panels *s, float *row, int64_t i, int64_t column, int64_t columns)
{
    const k_view *y = &s->args->out[0];
    if (s->bias) CPU_SIMD for (int64_t j = 0; j < columns; j++) row[j] += s->bias[j];
    for (int64_t j = 0; s->tail && j < columns; j += CPU_TILE)
        s->tail(row + j, row + j, row + j, k_min(CPU_TILE, columns - j), &s->numbers);
    if (s->sums) cpu_convert(y->dtype, cpu_at(y, i * s->p->n + column), IR_f32, row, columns);
}

static void finish(const panels *s, matrix sums, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    const k_context *ctx = s->args->ctx;
    const k_view *bias = &s->args->in[IN_BIAS];
    if (!s->bias && !s->tail && !s->sums) return;
    if (s->bias) cpu_convert(IR_f32, s->bias, bias->dtype, cpu_at(bias, column), columns);
#pragma omp parallel for num_threads(cpu_threads(ctx, rows *columns)) schedule(static)
    for (int64_t i = 0; i < rows; i++) finish_row(s, sums.data + i * sums.ld, row + i, column, columns);
}

/* Computes the block of y at (row, column), panel by panel along k. */
static ampc_status multiply_block(const panels *s, int64_t row, int64_t column)
{
    const product *p = s->p;
    const k_context *ctx = s->args->ctx;
    const int64_t m = k_min(ROWS, p->m - row), n = k_min(COLUMNS, p->n - column);
    const k_view *y = &s->args->out[0];
    const matrix c = s->sums ? (matrix){s->sums, n} : (matrix){cpu_at(y, row * p->n + column), p->n};
    ampc_status status = AMPC_OK;
    for (int64_t k = 0; k < p->k && status == AMPC_OK; k += DEPTH) {
        const int64_t depth = k_min(DEPTH, p->k - k);
        const matrix a = p->trans_a ? fill(&s->a, k, row, depth, m, ctx) : fill(&s->a, row, k, m, depth, ctx);
        const matrix b = p->trans_b ? fill(&s->b, column, k, n, depth, ctx) : fill(&s->b, k, column, depth, n, ctx);
        status = cpu_sgemm(ctx, p->trans_a, p->trans_b, m, n, depth, a.data, a.ld, b.data, b.ld, k > 0, c.data, c.ld);
    }
    if (status == AMPC_OK) finish(s, c, row, column, m, n);
    return status;
}

ampc_status cpu_panels_run(const k_args *args, const product *p, cpu_tile_fn *tail)
{
    panels s = {.args = args,
                .p = p,
                .a = {&args->in[IN_A], p->trans_a ? p->m : p->k, NULL},
                .b = {&args->in[IN_B], p->trans_b ? p->k : p->n, NULL},
                .tail = tail};
    ampc_status status = AMPC_OK;
    place(&s, args->workspace);
    for (int64_t row = 0; row < p->m && status == AMPC_OK; row += ROWS)
        for (int64_t column = 0; column < p->n && status == AMPC_OK; column += COLUMNS)
            status = multiply_block(&s, row, column);
    return status;
}
