/* matmul.c - y = op(a) op(b) + bias on batches of matrices.
 *
 * Transposed operands are expressed by strides. oneDNN is up to three times faster on a `b` in a layout of its own, so
 * one that does not change is packed, for oneDNN or for own code, whichever is faster (own_pack.h). Others are read as
 * they are, except where that is very slow (is_slow_when_plain). f64 is computed by a blocked loop here.
 *
 * Operands of a low type are multiplied by own code (panels.h) where it is faster than oneDNN. If neither can multiply
 * them natively, a product without batch dimensions is computed panel by panel in f32, and a batched one by oneDNN on
 * operands converted to f32. Without oneDNN, all are computed panel by panel.
 *
 * The only activation supported in the epilogue (kernels/epilogue.h) is gelu, on f32 sums of any storage type. relu is
 * not fused because oneDNN's maps NaN to 0, whereas the op propagates it. */
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_pack.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/visit.h"
#include "kernels/epilogue.h"
#include "kernels/matmul.h"

enum { IN_A = IR_IN(matmul, a), IN_B = IR_IN(matmul, b), IN_BIAS = IR_IN(matmul, bias) };

/* ---- f64 ------------------------------------------------------------------------------------- */

enum { BLOCK_K = 64, BLOCK_N = 64 };

typedef struct matrix {
    const double *at;
    int64_t row, column; /* strides */
} matrix;

static void pack_block(double *packed, matrix b, int64_t k, int64_t n, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) packed[i * BLOCK_N + j] = b.at[(k + i) * b.row + (n + j) * b.column];
}

/* Computes columns [n, n + columns) of y, whose leading dimension is ld. */
static void multiply_columns(double *y, int64_t ld, matrix a, matrix b, const product *p, int64_t n, int64_t columns)
{
    double packed[BLOCK_K * BLOCK_N];
    for (int64_t k = 0; k < p->k; k += BLOCK_K) {
        int64_t depth = k_min(BLOCK_K, p->k - k);
        pack_block(packed, b, k, n, depth, columns);
        for (int64_t i = 0; i < p->m; i++) {
            double *row = y + i * ld + n;
            for (int64_t l = 0; l < depth; l++) {
                double factor = a.at[i * a.row + (k + l) * a.column];
                const double *source = packed + l * BLOCK_N;
                for (int64_t j = 0; j < columns; j++) row[j] += factor * source[j];
            }
        }
    }
}

static void multiply_f64(const k_args *args, const product *p, double *y)
{
    const k_view *bias = &args->in[IN_BIAS];
    int64_t items = 1, blocks = cpu_ceil_div(p->n, BLOCK_N);
    for (int i = 0; i < p->rank; i++) items *= p->batch[i];
    k_view result = {.data = y, .dtype = IR_f64, .rank = 3, .dims = {items, p->m, p->n}};
    cpu_fill_bias(&result, bias, 1);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, items * p->m * p->n * p->k)) schedule(static)
    for (int64_t task = 0; task < items * blocks; task++) {
        int64_t item = task / blocks, n = task % blocks * BLOCK_N;
        matrix a = {(const double *)args->in[IN_A].data + product_offset(p, p->a_shared, item, p->m * p->k),
                    p->trans_a ? 1 : p->k, p->trans_a ? p->m : 1};
        matrix b = {(const double *)args->in[IN_B].data + product_offset(p, p->b_shared, item, p->k * p->n),
                    p->trans_b ? 1 : p->n, p->trans_b ? p->k : 1};
        multiply_columns(y + item * p->m * p->n, p->n, a, b, p, n, k_min(BLOCK_N, p->n - n));
    }
}

static void run_f64(const k_args *args, const product *p)
{
    const k_view *y = &args->out[0];
    bool direct = y->dtype == IR_f64;
    multiply_f64(args, p, direct ? y->data : args->workspace);
    if (!direct) cpu_convert(y->dtype, y->data, IR_f64, args->workspace, k_count(y));
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

/* An operand: batch dimensions, then rows and columns; `trans` swaps their strides. */
static cpu_operand operand_of(const k_view *v, int arg, ir_dtype type, const product *p, const bool *shared,
                              int64_t rows, int64_t columns, bool trans)
{
    cpu_operand o = {.arg = arg, .result = arg == DNNL_ARG_DST, .dtype = v->dtype, .packed = v->packed};
    o.desc = (cpu_desc){.rank = p->rank + 2, .type = type};
    int64_t stride = rows * columns;
    for (int i = p->rank - 1; i >= 0; i--) {
        o.desc.dims[i] = shared && shared[i] ? 1 : p->batch[i];
        o.desc.strides[i] = stride;
        stride *= o.desc.dims[i];
    }
    o.desc.dims[p->rank] = rows;
    o.desc.dims[p->rank + 1] = columns;
    o.desc.strides[p->rank] = trans ? 1 : columns;
    o.desc.strides[p->rank + 1] = trans ? rows : 1;
    return o;
}

static cpu_tail tail_of(const k_args *args)
{
    switch (k_activation_of(args)) {
    case K_ACTIVATION_GELU: return CPU_TAIL_GELU;
    case K_ACTIVATION_GELU_TANH: return CPU_TAIL_GELU_TANH;
    default: return CPU_TAIL_NONE;
    }
}

/* Rows of b with such a distance evict each other from the first-level cache, and oneDNN (2.6 to 3.2) copies b only if
 * the distance is a power of two: 50 to 110 GFLOP/s instead of 187 for f32. Copying b costs as much as 40 rows of a. */
static bool is_slow_when_plain(const product *p, ir_dtype type)
{
    const bool collides = p->n % 256 == 0 && p->n > 1024 && (p->n & (p->n - 1)) != 0;
    return type == IR_f32 && p->rank == 0 && !p->trans_b && collides && p->m >= 64;
}

/* `native`: low operands that the processor can multiply stay low; `is_free`: oneDNN may choose the layout of b. The *n
 * operands are in the order a, b, y, bias. */
static dnnl_status_t describe_product(const k_args *args, const product *p, bool native, bool is_free, cpu_operand *o,
                                      int *n, dnnl_primitive_desc_t *pd)
{
    const k_view *a = &args->in[IN_A], *b = &args->in[IN_B], *bias = &args->in[IN_BIAS], *y = &args->out[0];
    const ir_dtype type = cpu_dnnl_type(a->dtype, native);
    const bool low = type != IR_f32;
    o[0] = operand_of(a, DNNL_ARG_SRC, type, p, p->a_shared, p->m, p->k, p->trans_a);
    o[1] = operand_of(b, DNNL_ARG_WEIGHTS, type, p, p->b_shared, p->k, p->n, p->trans_b);
    o[2] = operand_of(y, DNNL_ARG_DST, cpu_dnnl_type(y->dtype, low), p, NULL, p->m, p->n, false);
    cpu_primitive primitive = {.kind = CPU_MATMUL, .tail = tail_of(args), .fast = low};
    primitive.x = o[0].desc;
    primitive.w = o[1].desc;
    primitive.w.any = is_free || is_slow_when_plain(p, type);
    if (b->packed) primitive.w.layout = cpu_format_layout(b->packed);
    primitive.y = o[2].desc;
    *n = k_present(bias) ? 4 : 3;
    if (k_present(bias)) {
        product row = *p;
        for (int i = 0; i < p->rank; i++) row.batch[i] = 1;
        o[3] = operand_of(bias, DNNL_ARG_BIAS, cpu_dnnl_type(bias->dtype, native), &row, NULL, 1, p->n, false);
        primitive.bias = o[3].desc;
    }
    return cpu_dnnl_describe(&primitive, args->ctx, pd);
}

/* Whether the epilogue, if any, is one that oneDNN supports. */
static bool is_supported_form(const k_args *args, const product *p)
{
    if (k_parts_of(args) & ~(unsigned)K_PART_BIAS) return false;
    if (!args->fused) return true;
    return tail_of(args) != CPU_TAIL_NONE && args->in[IN_A].dtype != IR_f64 && p->k > 0 && k_count(&args->out[0]) > 0;
}

bool cpu_computes(ir_dtype t) { return gemm_has(t) || cpu_dnnl_computes(t); }

static bool is_opaque(const k_view *v) { return ir_dtype_is_low(k_read_type(v)) && !cpu_dnnl_computes(k_read_type(v)); }

/* Whether own code multiplies operands of a low type. */
static bool in_low_type(const k_args *args, const product *p)
{
    const ir_dtype type = cpu_panels_type(args);
    return ir_dtype_is_low(type) && cpu_is_own_faster_low(p, type);
}

static bool by_panels(const k_args *args, const product *p)
{
    const k_view *a = &args->in[IN_A], *b = &args->in[IN_B];
    if (p->k == 0 || a->dtype == IR_f64 || b->dtype == IR_f64) return false;
    if (cpu_is_own_pack(b) || !cpu_has_onednn() || (p->rank == 0 && (is_opaque(a) || is_opaque(b)))) return true;
    return !b->packed && in_low_type(args, p);
}

bool cpu_rounds(const k_args *args, int operand)
{
    const bool factor = args->op == IR_OP_matmul && (operand == IN_A || operand == IN_B);
    if (!factor || k_count(&args->out[0]) == 0) return false;
    const product p = product_of(args);
    return by_panels(args, &p) && cpu_panels_type(args) == IR_f32;
}

/* With few terms, most of the time is that of storing the product. In a low type it is so with more of them. */
bool cpu_matmul_can_be_visited(const k_args *args)
{
    enum { FEW_TERMS = 64, FEW_LOW_TERMS = 1024 };
    const product p = product_of(args);
    if (k_present(&args->in[IN_BIAS]) || p.rank > 0 || p.k == 0 || args->out[0].dtype != IR_f32) return false;
    if (ir_dtype_is_low(cpu_panels_type(args))) return p.k <= FEW_LOW_TERMS;
    return args->in[IN_A].dtype == IR_f32 && args->in[IN_B].dtype == IR_f32 && p.k <= FEW_TERMS;
}

size_t cpu_matmul_visit_workspace(const k_args *args, gemm_visit *visit)
{
    const product p = product_of(args);
    return cpu_panels_visit_workspace(args, &p, visit);
}

void cpu_matmul_visit(const k_args *args, gemm_visit *visit, void *user)
{
    const product p = product_of(args);
    cpu_panels_visit(args, &p, visit, user);
}

static ampc_status run_panels(const k_args *args, const product *p)
{
    const k_activation tail = k_activation_of(args);
    const ir_formula formula = tail == K_ACTIVATION_GELU ? IR_FORMULA_gelu : IR_FORMULA_gelu_tanh;
    cpu_panels_run(args, p, tail == K_ACTIVATION_NONE ? NULL : cpu_formula_tile(formula, IR_f32));
    return AMPC_OK;
}

/* Likewise, in bf16 if oneDNN has code for that. */
static dnnl_status_t describe(const k_args *args, const product *p, bool is_free, cpu_operand *o, int *n,
                              dnnl_primitive_desc_t *pd)
{
    const dnnl_status_t status = describe_product(args, p, true, is_free, o, n, pd);
    return status == dnnl_unimplemented ? describe_product(args, p, false, is_free, o, n, pd) : status;
}

static bool is_f32(const k_view *v) { return !k_present(v) || k_read_type(v) == IR_f32; }

/* Whether an operand b that does not change is packed for own code. oneDNN's gelu is faster: 0.75 to 0.95 with it. */
static bool wants_own_pack(const k_args *args, const product *p)
{
    if (!cpu_has_onednn()) return args->in[IN_B].dtype != IR_f64;
    if (in_low_type(args, p)) return true;
    const bool same = is_f32(&args->in[IN_A]) && is_f32(&args->in[IN_B]) && is_f32(&args->out[0]);
    return same && tail_of(args) == CPU_TAIL_NONE && cpu_is_own_faster_matmul(p);
}

static ampc_status pack_format(const k_args *args, int operand, const k_format **format)
{
    const product p = product_of(args);
    cpu_operand operands[CPU_CALL_OPERANDS];
    dnnl_primitive_desc_t pd;
    int n;
    *format = NULL;
    if (operand != IN_B || k_count(&args->out[0]) == 0 || p.k == 0) return AMPC_OK;
    if (args->in[IN_A].dtype == IR_f64) return AMPC_OK;
    if (wants_own_pack(args, &p)) return cpu_own_matmul_format(&p, cpu_panels_type(args), args->ctx, format);
    if (by_panels(args, &p)) return AMPC_OK;
    const dnnl_status_t status = describe(args, &p, true, operands, &n, &pd);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "describing a primitive");
    return cpu_call_format(pd, &operands[1], args->ctx, format);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_view *a = &args->in[IN_A], *y = &args->out[0];
    product p = product_of(args);
    if (!is_supported_form(args, &p)) return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "unsupported epilogue");
    if (k_count(y) == 0 || p.k == 0) return AMPC_OK;
    if (a->dtype == IR_f64) {
        *workspace = y->dtype == IR_f64 ? 0 : (size_t)k_count(y) * sizeof(double);
        return AMPC_OK;
    }
    if (by_panels(args, &p)) {
        *workspace = cpu_panels_workspace(args, &p);
        return AMPC_OK;
    }
    cpu_operand operands[CPU_CALL_OPERANDS];
    dnnl_primitive_desc_t pd;
    int n;
    const dnnl_status_t status = describe(args, &p, false, operands, &n, &pd);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "describing a primitive");
    return cpu_call_make(pd, operands, n, args->ctx, (cpu_call **)state, workspace);
}

static ampc_status run(const k_args *args)
{
    if (args->state) {
        void *data[] = {args->in[IN_A].data, args->in[IN_B].data, args->out[0].data, args->in[IN_BIAS].data};
        return cpu_call_run(args->state, args->bound, data, args->workspace, args->ctx);
    }
    product p = product_of(args);
    if (k_count(&args->out[0]) == 0) return AMPC_OK;
    if (by_panels(args, &p)) return run_panels(args, &p);
    if (p.k == 0) cpu_fill_bias(&args->out[0], &args->in[IN_BIAS], 1);
    else run_f64(args, &p);
    return AMPC_OK;
}

const k_kernel cpu_matmul = {.prepare = prepare,
                             .run = run,
                             .release = cpu_call_free,
                             .bind = cpu_call_bind,
                             .unbind = cpu_call_unbind,
                             .pack_format = pack_format};
