/* recurrent.c - recurrent networks, step by step: products with R, then the rest of the cell for each row of the
 * batch, whose hidden units are computed in vectors. A step reads and writes its part of low operands and results, so
 * that the carrier's copies stay in the cache.
 *
 * All steps multiply by the same R, so it is brought into panels (gemm.h) or the layout of oneDNN's choice once, and
 * stays bf16 or f16 if the processor multiplies that. The states have that type then, too, and the gradients of gates
 * are rounded to it as in the result; only what a reset gate has multiplied is f32. Own products are of low types where
 * the processor has tiles for them (for a batch of 16 and 256 units twice as fast as oneDNN's), and of f32 without
 * oneDNN. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/onednn.h"
#include "kernels/recurrent.h"

#include <stdlib.h>

/* ---- products -------------------------------------------------------------------------------- */

/* c[m,n] = a[m,k] b, or a b' if `trans_b`, plus c if `add`; b: the rows of R from `row` on. */
typedef struct step_product {
    int64_t m, n, k, lda, ldc, row;
    bool trans_b, add;
    ir_dtype type; /* in which a and b are multiplied: low or f32 */
} step_product;

enum { MAX_PRODUCTS = 2 };

/* The products of a step, and oneDNN's calls unless the carrier is f64 or there is no oneDNN. */
typedef struct step_products {
    int count;
    step_product products[MAX_PRODUCTS];
    cpu_call *calls[MAX_PRODUCTS];
    size_t bytes[MAX_PRODUCTS]; /* of the workspaces of the calls */
    size_t low;                 /* bytes of the largest operand a in bf16 */
} step_products;

/* The states times the rows [first, first + count) of R, in units of the hidden size, added to gates. */
static step_product forward_product(const recurrent_shape *s, int first, int count)
{
    const int64_t n = s->hidden;
    return (step_product){s->batch, count * n, n, n, s->saved * n, first * n, .trans_b = true, .add = true};
}

/* The gradients of these gates times the rows, for the gradient of the states. */
static step_product backward_product(const recurrent_shape *s, int first, int count, bool add)
{
    const int64_t n = s->hidden;
    return (step_product){s->batch, n, count * n, s->gates * n, n, first * n, .trans_b = false, .add = add};
}

/* The last product of a GRU waits for the reset gate in the forward step, and precedes it in the backward step. */
static void list_products(step_products *p, const recurrent_shape *s, bool backward, ir_dtype type)
{
    const bool late = s->cell == IR_WORD(cell, gru) && !(backward && s->linear_before_reset);
    p->count = late ? 2 : 1;
    if (backward && late) {
        p->products[0] = backward_product(s, 2, 1, false);
        p->products[1] = backward_product(s, 0, 2, true);
    } else if (backward) {
        p->products[0] = backward_product(s, 0, s->gates, true);
    } else {
        p->products[0] = forward_product(s, 0, late ? 2 : s->gates);
        p->products[1] = forward_product(s, 2, 1);
    }
    const bool after_reset = !backward && late && !s->linear_before_reset;
    p->products[0].type = type;
    p->products[1].type = after_reset ? IR_f32 : type;
}

static cpu_operand operand_of(int arg, ir_dtype dtype, ir_dtype type, int64_t rows, int64_t columns, int64_t row,
                              int64_t column)
{
    return (cpu_operand){
        .arg = arg,
        .result = arg == DNNL_ARG_DST,
        .dtype = dtype,
        .desc = {.rank = 2, .type = type, .dims = {rows, columns}, .strides = {row, column}},
    };
}

static bool is_tiled(const step_product *x) { return ir_dtype_is_low(x->type) && gemm_has(x->type); }

/* A product by own code. */
static gemm own_product(const step_product *x, const float *a, float *c, const void *panels)
{
    gemm g = {.type = x->type, .items = 1, .m = x->m, .n = x->n, .k = x->k, .packed = panels};
    g.a = (gemm_matrix){a, IR_f32, IR_NO_DTYPE, x->lda, 1};
    g.c = c;
    g.ldc = x->ldc;
    g.adds = x->add;
    return g;
}

static size_t panels_bytes(const step_product *x)
{
    return cpu_lines((size_t)gemm_packed_bytes(is_tiled(x) ? x->type : IR_f32, x->k, x->n));
}

static void multiply_own(const step_product *x, const k_view *r, const void *rows, const float *a, float *c,
                         char *workspace, bool packed, const k_context *ctx)
{
    gemm g = own_product(x, a, c, workspace);
    g.b = (gemm_matrix){rows, r->dtype, IR_NO_DTYPE, x->trans_b ? 1 : x->n, x->trans_b ? x->k : 1};
    if (!packed && is_tiled(x)) gemm_pack_low(workspace, &g, ctx);
    else if (!packed) gemm_pack((float *)(void *)workspace, &g.b, x->k, x->n, 0, x->k, ctx);
    gemm_run(&g, workspace + panels_bytes(x), ctx);
}

static ampc_status prepare_product(const k_args *args, const k_view *r, step_products *p, int i)
{
    const step_product *x = &p->products[i];
    if (!cpu_has_onednn() || is_tiled(x)) {
        const float any[1] = {0};
        float c[1];
        const gemm g = own_product(x, any, c, any);
        p->bytes[i] = panels_bytes(x) + gemm_workspace(&g, args->ctx);
        return AMPC_OK;
    }
    const bool is_low = x->type == IR_bf16;
    const cpu_operand o[3] = {
        operand_of(DNNL_ARG_SRC, x->type, x->type, x->m, x->k, is_low ? x->k : x->lda, 1),
        operand_of(DNNL_ARG_WEIGHTS, r->dtype, x->type, x->k, x->n, x->trans_b ? 1 : x->n, x->trans_b ? x->k : 1),
        operand_of(DNNL_ARG_DST, IR_f32, IR_f32, x->m, x->n, x->ldc, 1),
    };
    cpu_primitive primitive = {.kind = CPU_MATMUL, .tail = x->add ? CPU_TAIL_SUM : CPU_TAIL_NONE};
    primitive.x = o[0].desc;
    primitive.w = o[1].desc;
    primitive.w.any = true;
    primitive.y = o[2].desc;
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = cpu_dnnl_describe(&primitive, args->ctx, &pd);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "preparing a step");
    return cpu_call_make(pd, o, 3, args->ctx, &p->calls[i], &p->bytes[i]);
}

/* The bindings of a run by product. */
typedef struct bound_products {
    cpu_binding *of[MAX_PRODUCTS];
} bound_products;

static void unbind_products(void *state, void *bound)
{
    bound_products *b = bound;
    (void)state;
    for (int i = 0; b && i < MAX_PRODUCTS; i++) cpu_binding_free(b->of[i]);
    free(b);
}

static ampc_status bind_products(const k_args *args, void **bound)
{
    const step_products *p = args->state;
    bound_products *b = calloc(1, sizeof *b);
    *bound = b;
    if (!b) return AMPC_NO_MEMORY;
    for (int i = 0; p && i < MAX_PRODUCTS; i++) {
        if (!p->calls[i]) continue;
        const ampc_status status = cpu_binding_make(p->calls[i], args->ctx, &b->of[i]);
        if (status != AMPC_OK) return status;
    }
    return AMPC_OK;
}

static void release_products(void *state)
{
    step_products *p = state;
    for (int i = 0; p && i < MAX_PRODUCTS; i++) cpu_call_free(p->calls[i]);
    free(p);
}

/* The type of products with R; `states`: that of the hidden states. */
static ir_dtype product_type(ir_dtype r, ir_dtype states)
{
    if (!ir_dtype_is_low(r) || r != states) return IR_f32;
    return gemm_has(r) ? r : cpu_dnnl_type(r, r == IR_bf16);
}

/* `states`: the dtype of the hidden states. Adds the bytes that the products need to *workspace. */
static ampc_status prepare_products(const k_args *args, const recurrent_shape *s, const k_view *r, ir_dtype states,
                                    bool backward, void **state, size_t *workspace)
{
    step_products *p = calloc(1, sizeof *p);
    ampc_status status = p ? AMPC_OK : AMPC_NO_MEMORY;
    if (!p) return status;
    list_products(p, s, backward, product_type(r->dtype, states));
    const bool is_empty = s->steps * s->batch * s->hidden == 0;
    for (int i = 0; i < p->count && !is_empty && cpu_carrier(r->dtype) == IR_f32 && status == AMPC_OK; i++) {
        const size_t low = cpu_lines((size_t)(p->products[i].m * p->products[i].k) * ir_dtype_size(IR_bf16));
        status = prepare_product(args, r, p, i);
        if (p->calls[i] && p->products[i].type == IR_bf16 && p->low < low) p->low = low;
        *workspace += p->bytes[i];
    }
    *workspace += p->low;
    if (status == AMPC_OK) *state = p;
    else release_products(p);
    return status;
}

/* The products of a run: their operands and the workspaces. */
typedef struct products_run {
    const k_args *args;
    const step_products *products;
    const k_view *r;
    char *at[MAX_PRODUCTS], *low;
    bool packed[MAX_PRODUCTS]; /* R has been put into the layout of the call */
} products_run;

static products_run start_products(const k_args *args, const k_view *r, char **at)
{
    products_run run = {.args = args, .products = args->state, .r = r};
    for (int i = 0; i < MAX_PRODUCTS; i++) {
        run.at[i] = *at;
        *at += run.products->bytes[i];
    }
    run.low = *at;
    *at += run.products->low;
    return run;
}

static ampc_status multiply_float(products_run *run, int i, const float *a, float *c)
{
    const step_products *p = run->products;
    const step_product *x = &p->products[i];
    const char *r = (const char *)cpu_at(run->r, x->row * (x->trans_b ? x->k : x->n));
    const bool is_low = x->type == IR_bf16;
    if (!p->calls[i]) {
        multiply_own(x, run->r, r, a, c, run->at[i], run->packed[i], run->args->ctx);
        run->packed[i] = true;
        return AMPC_OK;
    }
    void *data[] = {is_low ? (void *)run->low : (void *)(uintptr_t)a, run->packed[i] ? NULL : (void *)(uintptr_t)r, c};
#pragma omp parallel for num_threads(cpu_threads(run->args->ctx, x->m * x->k)) schedule(static)
    for (int64_t row = 0; row < (is_low ? x->m : 0); row++)
        cpu_convert(IR_bf16, run->low + (size_t)(row * x->k) * ir_dtype_size(IR_bf16), IR_f32, a + row * x->lda, x->k);
    run->packed[i] = true;
    const bound_products *bound = run->args->bound;
    return cpu_call_run(p->calls[i], bound->of[i], data, run->at[i], run->args->ctx);
}

static ampc_status multiply_double(products_run *run, int i, const double *a, double *c)
{
    const step_product *x = &run->products->products[i];
    const double *b = (const double *)run->r->data + x->row * (x->trans_b ? x->k : x->n);
#pragma omp parallel for num_threads(cpu_threads(run->args->ctx, x->m * x->n * x->k)) schedule(static)
    for (int64_t m = 0; m < x->m; m++) {
        double *row = c + m * x->ldc;
        for (int64_t j = 0; j < x->n && !x->add; j++) row[j] = 0;
        for (int64_t l = 0; l < x->k; l++)
            for (int64_t j = 0; j < x->n; j++)
                row[j] += a[m * x->lda + l] * b[x->trans_b ? j * x->k + l : l * x->n + j];
    }
    return AMPC_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum { SIGMOID = IR_WORD(activation, sigmoid), TANH = IR_WORD(activation, tanh) };

/* Whether the activations are the usual ones, for which there are vector loops. */
static bool is_usual(const recurrent_shape *s)
{
    return s->f.word == SIGMOID && s->g.word == TANH && s->h.word == TANH;
}

static int64_t step_at(const recurrent_shape *s, int64_t k) { return s->reverse ? s->steps - 1 - k : k; }

/* Whether step t is within the length of row b. */
static bool is_active(const int64_t *lengths, int64_t b, int64_t t) { return !lengths || t < lengths[b]; }

#define REAL_IS_FLOAT
#define REAL float
#define CARRIER IR_f32
#include "ir/ops/formulas_body.h"
#include "kernels/recurrent_body.h"
#include "kernels/cpu/recurrent_forward.h"
#include "kernels/cpu/recurrent_backward.h"
#undef REAL
#undef CARRIER
#define REAL double
#define CARRIER IR_f64
#include "ir/ops/formulas_body.h"
#include "kernels/recurrent_body.h"
#include "kernels/cpu/recurrent_forward.h"
#include "kernels/cpu/recurrent_backward.h"
#undef REAL
#undef CARRIER

/* Reads the lengths to *at, which is advanced; *out stays NULL if there are none. */
static ampc_status read_lengths(const k_args *args, const k_view *v, int64_t steps, char **at, const int64_t **out)
{
    if (!k_present(v)) return AMPC_OK;
    int64_t *to = (int64_t *)(void *)*at;
    *at += cpu_lines((size_t)k_count(v) * sizeof *to);
    for (int64_t i = 0; i < k_count(v); i++) {
        to[i] = ir_load_i64(v->dtype, cpu_at(v, i));
        if (to[i] < 0 || to[i] > steps)
            return cpu_fail(args->ctx, AMPC_REJECTED, "length %lld at position %lld is outside of [0,%lld]",
                            (long long)to[i], (long long)i, (long long)steps);
    }
    *out = to;
    return AMPC_OK;
}

static ampc_status forward_prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_view *y = &args->out[0];
    const ir_dtype carrier = cpu_carrier(y->dtype);
    const recurrent_shape s = recurrent_shape_of(args, y);
    const bool is_float = carrier == IR_f32;
    *workspace = cpu_lines((size_t)s.batch * sizeof(int64_t)) +
                 (is_float ? forward_bytes_float(args, &s) : forward_bytes_double(args, &s));
    return prepare_products(args, &s, &args->in[IR_IN(recurrent, r)], y->dtype, false, state, workspace);
}

static ampc_status forward_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    const recurrent_shape s = recurrent_shape_of(args, y);
    const int64_t *lengths = NULL;
    char *at = args->workspace;
    const ampc_status status = read_lengths(args, &args->in[IR_IN(recurrent, lengths)], s.steps, &at, &lengths);
    if (status != AMPC_OK) return status;
    return cpu_carrier(y->dtype) == IR_f64 ? forward_double(args, &s, lengths, at)
                                           : forward_float(args, &s, lengths, at);
}

static ampc_status backward_prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_view *y = &args->in[IR_IN(recurrent_grad, y)];
    const ir_dtype carrier = cpu_carrier(y->dtype);
    const recurrent_shape s = recurrent_shape_of(args, y);
    const bool is_float = carrier == IR_f32;
    *workspace = cpu_lines((size_t)s.batch * sizeof(int64_t)) +
                 (is_float ? backward_bytes_float(args, &s) : backward_bytes_double(args, &s));
    return prepare_products(args, &s, &args->in[IR_IN(recurrent_grad, r)], y->dtype, true, state, workspace);
}

static ampc_status backward_run(const k_args *args)
{
    const k_view *y = &args->in[IR_IN(recurrent_grad, y)];
    const recurrent_shape s = recurrent_shape_of(args, y);
    const int64_t *lengths = NULL;
    char *at = args->workspace;
    const ampc_status status = read_lengths(args, &args->in[IR_IN(recurrent_grad, lengths)], s.steps, &at, &lengths);
    if (status != AMPC_OK) return status;
    return cpu_carrier(y->dtype) == IR_f64 ? backward_double(args, &s, lengths, at)
                                           : backward_float(args, &s, lengths, at);
}

#define PRODUCTS .release = release_products, .bind = bind_products, .unbind = unbind_products
const k_kernel cpu_recurrent = {.prepare = forward_prepare, .run = forward_run, PRODUCTS};
const k_kernel cpu_recurrent_grad = {.prepare = backward_prepare, .run = backward_run, PRODUCTS};
