/* panels.c - matmul by own code (gemm.h): operands of all types but f64 are converted while panels are made of them, so
 * that no copy of an operand in another type is ever stored in memory. Sums are f32; they are rounded once, after the
 * epilogue, block by block while a block is in a cache. */
#include "kernels/cpu/panels.h"
#include "kernels/cpu/own_pack.h"

enum { IN_A = IR_IN(matmul, a), IN_B = IR_IN(matmul, b), IN_BIAS = IR_IN(matmul, bias) };

typedef struct panels {
    const k_args *args;
    const product *p;
    cpu_tile_fn *tail; /* activation, or NULL */
    cpu_numbers numbers;
    gemm_visit *visit; /* of the sums, which have no epilogue; NULL: they are stored */
    void *user;
} panels;

/* Finishes sums: bias, activation, rounding. */
static void finish(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows, int64_t column,
                   int64_t columns)
{
    const panels *s = user;
    const k_view *y = &s->args->out[0], *bias = &s->args->in[IN_BIAS];
    float terms[GEMM_COLUMNS];
    if (k_present(bias)) cpu_convert(IR_f32, terms, bias->dtype, cpu_at(bias, column), columns);
    for (int64_t i = 0; i < rows; i++) {
        float *at = sums + i * ld;
        if (k_present(bias)) CPU_SIMD for (int64_t j = 0; j < columns; j++) at[j] += terms[j];
        for (int64_t j = 0; s->tail && j < columns; j += CPU_TILE)
            s->tail(at + j, at + j, at + j, k_min(CPU_TILE, columns - j), &s->numbers);
        if (y->dtype != IR_f32)
            cpu_convert(y->dtype, cpu_at(y, (item * s->p->m + row + i) * s->p->n + column), IR_f32, at, columns);
    }
}

static void visit_rows(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows,
                       int64_t column, int64_t columns)
{
    const panels *s = user;
    (void)item;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t first = (row + i) * s->p->n + column;
        s->visit(s->user, first, sums + i * ld, columns, i + 1 < rows ? first + s->p->n : first);
    }
}

static gemm_matrix matrix_of(const k_view *v, bool trans, int64_t rows, int64_t columns)
{
    return (gemm_matrix){v->data, v->dtype, v->as, trans ? 1 : columns, trans ? rows : 1};
}

ir_dtype cpu_panels_type(const k_args *args)
{
    const k_view *b = &args->in[IN_B];
    const ir_dtype type = k_read_type(&args->in[IN_A]);
    if (cpu_is_own_pack(b)) return cpu_own_pack_type(b);
    return type == k_read_type(b) && gemm_has(type) ? type : IR_f32;
}

static gemm gemm_of(const panels *s)
{
    const product *p = s->p;
    const k_view *y = &s->args->out[0];
    gemm g = {.type = cpu_panels_type(s->args),
              .items = 1,
              .m = p->m,
              .n = p->n,
              .k = p->k,
              .batch = p,
              .ldc = p->n,
              .c_item = p->m * p->n,
              .user = s};
    for (int i = 0; i < p->rank; i++) g.items *= p->batch[i];
    g.a = matrix_of(&s->args->in[IN_A], p->trans_a, p->m, p->k);
    g.b = matrix_of(&s->args->in[IN_B], p->trans_b, p->k, p->n);
    if (cpu_is_own_pack(&s->args->in[IN_B])) {
        g.packed = s->args->in[IN_B].data;
        g.packed_item = gemm_packed_bytes(g.type, p->k, p->n);
    }
    if (s->visit) {
        g.finish = visit_rows;
        return g;
    }
    const k_view *bias = &s->args->in[IN_BIAS];
    if (ir_dtype_is_low(g.type) && y->dtype == g.type && !s->tail) {
        g.low_c = y->data;
        if (k_present(bias)) g.bias = (gemm_matrix){bias->data, bias->dtype, bias->as, 0, 1};
        return g;
    }
    if (y->dtype == IR_f32) g.c = y->data;
    if (!g.c || s->tail || k_present(bias)) g.finish = finish;
    return g;
}

size_t cpu_panels_workspace(const k_args *args, const product *p)
{
    const panels s = {.args = args, .p = p};
    const gemm g = gemm_of(&s);
    return gemm_workspace(&g, args->ctx);
}

void cpu_panels_run(const k_args *args, const product *p, cpu_tile_fn *tail)
{
    const panels s = {.args = args, .p = p, .tail = tail};
    const gemm g = gemm_of(&s);
    gemm_run(&g, args->workspace, args->ctx);
}

size_t cpu_panels_visit_workspace(const k_args *args, const product *p, gemm_visit *visit)
{
    const panels s = {.args = args, .p = p, .visit = visit};
    const gemm g = gemm_of(&s);
    return gemm_workspace(&g, args->ctx);
}

void cpu_panels_visit(const k_args *args, const product *p, gemm_visit *visit, void *user)
{
    const panels s = {.args = args, .p = p, .visit = visit, .user = user};
    const gemm g = gemm_of(&s);
    gemm_run(&g, args->workspace, args->ctx);
}
