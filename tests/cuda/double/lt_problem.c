/* lt_problem.c - reads back cuBLASLt's own descriptors and checks them (see lt.h).
 *
 * The real library accepts almost any attribute value; this file enforces what the header requires. Attributes that the double does
 * not support must have the value of a new descriptor. */
#include "tests/cuda/double/lt.h"

#include <string.h>

enum { MAX_BYTES = 64 };

static cublasStatus_t wrong(const char *why)
{
    double_refuse("cuBLASLt: %s", why);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t unknown(const char *why)
{
    double_refuse("cuBLASLt: %s", why);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

#define TRY(call) \
    do { \
        cublasStatus_t status_ = (call); \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_; \
    } while (0)

static bool float_type(int32_t type, ir_dtype *out)
{
    *out = type == CUDA_R_32F ? IR_f32 : type == CUDA_R_16F ? IR_f16 : type == CUDA_R_16BF ? IR_bf16 : IR_NO_DTYPE;
    return *out != IR_NO_DTYPE;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static cublasStatus_t read_layout(lt_matrix *m, cublasLtMatrixLayout_t layout)
{
    uint32_t type = 0;
    int32_t order = 0, batch = 0;
    uint64_t rows = 0, columns = 0;
    int64_t plane = 0;
    uint32_t mode = 0;
    const struct {
        cublasLtMatrixLayoutAttribute_t name;
        void *value;
        size_t size;
    } fields[] = {{CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type},
                  {CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order},
                  {CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows},
                  {CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns},
                  {CUBLASLT_MATRIX_LAYOUT_LD, &m->ld, sizeof m->ld},
                  {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch},
                  {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->stride, sizeof m->stride},
                  {CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, &plane, sizeof plane},
                  {CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode}};
    if (!layout) return wrong("a layout is missing");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        TRY(double_inner.cublasLtMatrixLayoutGetAttribute(layout, fields[i].name, fields[i].value, fields[i].size,
                                                          &(size_t){0}));
    m->rows = (int64_t)rows;
    m->columns = (int64_t)columns;
    m->batch = batch;
    if (!float_type((int32_t)type, &m->type)) return unknown("a matrix is of a type that the double does not know");
    if (order != CUBLASLT_ORDER_COL) return unknown("a matrix is not in column order");
    if (plane || mode) return unknown("planes or arrays of pointers");
    if (m->rows <= 0 || m->columns <= 0 || m->batch <= 0) return wrong("a matrix is empty");
    if (m->ld < m->rows) return wrong("the leading dimension of a matrix is less than its rows");
    return CUBLAS_STATUS_SUCCESS;
}

int64_t lt_extent(const lt_matrix *m) { return (m->batch - 1) * m->stride + (m->columns - 1) * m->ld + m->rows; }

static cublasStatus_t check_shapes(const lt_problem *p)
{
    const lt_matrix *a = &p->a, *b = &p->b, *c = &p->c, *d = &p->d;
    int64_t m = p->trans_a ? a->columns : a->rows, k = p->trans_a ? a->rows : a->columns;
    int64_t k_b = p->trans_b ? b->columns : b->rows, n = p->trans_b ? b->rows : b->columns;
    if (k != k_b || d->rows != m || d->columns != n) return wrong("the shapes of A, B and D do not fit");
    if (c->rows != m || c->columns != n || c->type != d->type) return wrong("C is not like D");
    if (a->batch != d->batch || b->batch != d->batch || c->batch != d->batch)
        return wrong("the numbers of batches differ");
    if (d->batch > 1 && d->stride < d->ld * (n - 1) + m) return wrong("the batches of D overlap");
    if (a->stride < 0 || b->stride < 0 || c->stride < 0) return unknown("a batch goes backwards");
    return CUBLAS_STATUS_SUCCESS;
}

/* The documentation's table of types for CUBLAS_COMPUTE_32F, restricted to what we use. */
static cublasStatus_t check_types(const lt_problem *p)
{
    if (p->a.type != p->b.type) return unknown("A and B are of different types");
    if (p->d.type != p->a.type && p->d.type != IR_f32) return unknown("this type of D for these A and B");
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the operation --------------------------------------------------------------------------- */

static const struct {
    uint32_t name;
    unsigned does;
} epilogues[] = {
    {CUBLASLT_EPILOGUE_DEFAULT, 0},
    {CUBLASLT_EPILOGUE_RELU, LT_RELU},
    {CUBLASLT_EPILOGUE_RELU_AUX, LT_RELU | LT_AUX_OUT},
    {CUBLASLT_EPILOGUE_BIAS, LT_BIAS},
    {CUBLASLT_EPILOGUE_RELU_BIAS, LT_RELU | LT_BIAS},
    {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, LT_RELU | LT_AUX_OUT | LT_BIAS},
    {CUBLASLT_EPILOGUE_DRELU, LT_RELU_BACK},
    {CUBLASLT_EPILOGUE_DRELU_BGRAD, LT_RELU_BACK | LT_BIAS_GRAD},
    {CUBLASLT_EPILOGUE_GELU, LT_GELU},
    {CUBLASLT_EPILOGUE_GELU_AUX, LT_GELU | LT_AUX_OUT},
    {CUBLASLT_EPILOGUE_GELU_BIAS, LT_GELU | LT_BIAS},
    {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, LT_GELU | LT_AUX_OUT | LT_BIAS},
    {CUBLASLT_EPILOGUE_DGELU, LT_GELU_BACK},
    {CUBLASLT_EPILOGUE_DGELU_BGRAD, LT_GELU_BACK | LT_BIAS_GRAD},
    {CUBLASLT_EPILOGUE_BGRADA, LT_SUM_A},
    {CUBLASLT_EPILOGUE_BGRADB, LT_SUM_B},
};

static cublasStatus_t read_epilogue(lt_problem *p, uint32_t name)
{
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
        if (epilogues[i].name == name) {
            p->epilogue = epilogues[i].does;
            return CUBLAS_STATUS_SUCCESS;
        }
    return unknown("an epilogue that the double does not know");
}

static cublasStatus_t read_trans(int32_t value, bool *out)
{
    *out = value == CUBLAS_OP_T;
    return value == CUBLAS_OP_N || value == CUBLAS_OP_T ? CUBLAS_STATUS_SUCCESS : wrong("a transposition is none");
}

static cublasStatus_t read_attribute(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t name, void *value,
                                     size_t size)
{
    return double_inner.cublasLtMatmulDescGetAttribute(how, name, value, size, &(size_t){0});
}

/* Rejects attributes that change what is computed or where, and that the double does not implement. */
static cublasStatus_t check_others(cublasLtMatmulDesc_t how)
{
    static const cublasLtMatmulDescAttributes_t others[] = {
        CUBLASLT_MATMUL_DESC_TRANSC,          CUBLASLT_MATMUL_DESC_FILL_MODE,
        CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE,
        CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER,
        CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER,
        CUBLASLT_MATMUL_DESC_FAST_ACCUM,      CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER,
        CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER,
    };
    cublasLtMatmulDesc_t fresh = NULL;
    TRY(double_inner.cublasLtMatmulDescCreate(&fresh, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof others / sizeof *others && status == CUBLAS_STATUS_SUCCESS; i++) {
        char usual[MAX_BYTES] = {0}, set[MAX_BYTES] = {0};
        size_t size = 0;
        double_inner.cublasLtMatmulDescGetAttribute(fresh, others[i], NULL, 0, &size);
        if (size == 0 || size > MAX_BYTES || read_attribute(fresh, others[i], usual, size) ||
            read_attribute(how, others[i], set, size))
            status = wrong("an attribute cannot be read");
        else if (memcmp(usual, set, size) != 0)
            status = unknown("an attribute of the operation that the double does not know is set");
    }
    double_inner.cublasLtMatmulDescDestroy(fresh);
    return status;
}

/* Reads a type that defaults to that of D; for these epilogues only D's own type is documented. */
static cublasStatus_t follow_type(int32_t set, ir_dtype d, ir_dtype *out)
{
    *out = d;
    if (set == -1) return CUBLAS_STATUS_SUCCESS;
    if (!float_type(set, out) || *out != d) return unknown("a bias or aux buffer of another type than D");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t read_operation(lt_problem *p, cublasLtMatmulDesc_t how)
{
    int32_t compute = 0, scale = 0, pointers = 0, trans_a = 0, trans_b = 0, bias_type = 0, aux_type = 0;
    uint32_t epilogue = 0;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        void *value;
        size_t size;
    } fields[] = {{CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute, sizeof compute},
                  {CUBLASLT_MATMUL_DESC_SCALE_TYPE, &scale, sizeof scale},
                  {CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers, sizeof pointers},
                  {CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, sizeof trans_a},
                  {CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, sizeof trans_b},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
                  {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias},
                  {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &p->bias_stride, sizeof p->bias_stride},
                  {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->aux_ld, sizeof p->aux_ld},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &p->aux_stride, sizeof p->aux_stride},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &aux_type, sizeof aux_type}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        TRY(read_attribute(how, fields[i].name, fields[i].value, fields[i].size));
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return unknown("sums that are not f32");
    if (scale != CUDA_R_32F) return unknown("alpha and beta that are not f32");
    if (pointers != CUBLASLT_POINTER_MODE_HOST && pointers != CUBLASLT_POINTER_MODE_DEVICE)
        return unknown("vectors of alpha");
    p->device_scalars = pointers == CUBLASLT_POINTER_MODE_DEVICE;
    TRY(read_trans(trans_a, &p->trans_a));
    TRY(read_trans(trans_b, &p->trans_b));
    TRY(read_epilogue(p, epilogue));
    TRY(follow_type(bias_type, p->d.type, &p->bias_type));
    return follow_type(aux_type, LT_BITS_AUX(p->epilogue) ? IR_NO_DTYPE : p->d.type, &p->aux_type);
}

int64_t lt_sum_length(const lt_problem *p) { return p->epilogue & LT_SUM_B ? p->d.columns : p->d.rows; }

static cublasStatus_t check_epilogue(const lt_problem *p)
{
    const bool bits = LT_BITS_AUX(p->epilogue);
    const int64_t multiple = bits ? 128 : 8;
    if (p->epilogue & LT_SUM_B && !p->trans_b)
        return unknown("sums of a B that is not transposed"); /* seen on an H200 */
    if (p->epilogue & (LT_BIAS | LT_SUMS) && !p->bias) return wrong("the bias has no address, not even an alignment");
    if (p->epilogue & LT_SUMS && p->d.batch > 1 && p->bias_stride < lt_sum_length(p))
        return wrong("the sums of several batches overlap");
    if (!(p->epilogue & LT_WITH_AUX)) return CUBLAS_STATUS_SUCCESS;
    if (!p->aux) return wrong("the aux buffer has no address, not even an alignment");
    if (p->aux_ld % multiple || p->aux_ld < p->d.rows)
        return wrong(bits ? "the aux buffer's leading dimension is not a multiple of 128 or is less than the rows"
                          : "the aux buffer's leading dimension is not a multiple of 8 or is less than the rows");
    if (p->d.batch > 1 && (p->aux_stride % multiple || p->aux_stride < p->aux_ld * p->d.columns))
        return wrong("the aux buffer's batches overlap or are not aligned");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t lt_read(lt_problem *p, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    memset(p, 0, sizeof *p);
    if (!how) return wrong("the operation is missing");
    TRY(read_layout(&p->a, a));
    TRY(read_layout(&p->b, b));
    TRY(read_layout(&p->c, c));
    TRY(read_layout(&p->d, d));
    TRY(read_operation(p, how));
    TRY(check_others(how));
    TRY(check_types(p));
    TRY(check_shapes(p));
    return check_epilogue(p);
}
