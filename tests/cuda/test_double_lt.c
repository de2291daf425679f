/* test_double_lt.c - the double of cuBLASLt: matmuls with the real library's descriptors agree with sums in f64, including
 * transposition, batches, epilogues and device scalars; what the header forbids is rejected. */

#include <math.h>

#include "ir/base/philox.h"
#include "tests/cuda/double/lt.h"
#include "tests/test.h"

enum { MODES = 4, WORKSPACE = 32 << 20 };

static const long modes[MODES] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2};
static cudaStream_t stream;
static cublasLtHandle_t handle;
static void *workspace;

static void must(int e)
{
    if (e) fail_msg("status %d: %s", e, double_reason());
}

static int setup(void **state)
{
    char error[256];
    (void)state;
    double_install();
    if (cuda_api_open(CUDA_RT, error, sizeof error) || cuda_api_open(CUDA_LT, error, sizeof error)) {
        print_error("%s\n", error);
        return -1;
    }
    return 0;
}

static void begin(long mode)
{
    double_reset();
    double_mode(mode);
    must(cuda.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cuda.cudaMalloc(&workspace, WORKSPACE));
    must((int)cuda.cublasLtCreate(&handle));
}

/* ---- a matmul ----------------------------------------------------------------------------------- */

/* D [m, n] = alpha op(A) op(B) + beta C, column-major, with an epilogue. */
typedef struct row {
    int64_t m, n, k, batch;
    bool trans_a, trans_b, device_scalars, share_b;
    float alpha, beta;
    ir_dtype in, out;
    cublasLtEpilogue_t epilogue;
} row;

/* One row per type, with a transposed B, which BGRADB needs. */
#define TYPED(m, n, k, epilogue) \
    {m, n, k, 1, true, true, false, false, 1, 0, IR_f32, IR_f32, CUBLASLT_EPILOGUE_##epilogue}, \
        {m, n, k, 1, false, true, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_##epilogue}, \
    { \
        m, n, k, 1, false, true, false, false, 1, 0, IR_bf16, IR_bf16, CUBLASLT_EPILOGUE_##epilogue \
    }

static const row rows[] = {
    {5, 7, 3, 1, false, false, false, false, 1, 0, IR_f32, IR_f32, CUBLASLT_EPILOGUE_DEFAULT},
    {5, 7, 3, 1, true, false, false, false, 2, 0.5f, IR_f32, IR_f32, CUBLASLT_EPILOGUE_DEFAULT},
    {8, 16, 24, 1, false, true, true, false, 0.5f, 0, IR_f16, IR_f32, CUBLASLT_EPILOGUE_DEFAULT},
    {8, 16, 24, 3, true, true, false, false, 1, 1, IR_bf16, IR_bf16, CUBLASLT_EPILOGUE_DEFAULT},
    {8, 16, 24, 3, false, false, false, true, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_DEFAULT},
    {33, 9, 17, 1, true, false, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_BIAS},
    {33, 9, 17, 1, true, false, false, false, 1, 0, IR_f32, IR_f32, CUBLASLT_EPILOGUE_RELU_BIAS},
    {33, 9, 17, 2, true, false, false, false, 1, 0, IR_bf16, IR_f32, CUBLASLT_EPILOGUE_GELU_BIAS},
    {33, 9, 17, 1, true, false, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {33, 9, 17, 1, true, false, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
    {33, 9, 17, 1, false, false, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_DGELU_BGRAD},
    {33, 9, 17, 1, false, false, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_DRELU_BGRAD},
    {12, 20, 40, 1, false, true, true, false, 0.25f, 0, IR_f16, IR_f32, CUBLASLT_EPILOGUE_BGRADA},
    {12, 20, 40, 1, false, true, false, false, 1, 0, IR_f16, IR_f32, CUBLASLT_EPILOGUE_BGRADB},
    {8, 7, 9, 3, false, false, false, false, 1, 0, IR_f16, IR_f16, CUBLASLT_EPILOGUE_GELU},
    TYPED(1, 7, 9, RELU),
    TYPED(7, 1, 33, RELU_BIAS),
    TYPED(33, 8, 1, RELU_AUX),
    TYPED(128, 9, 7, RELU_AUX_BIAS),
    TYPED(9, 33, 8, GELU),
    TYPED(7, 9, 128, GELU_BIAS),
    TYPED(8, 128, 7, GELU_AUX),
    TYPED(33, 1, 9, GELU_AUX_BIAS),
    TYPED(1, 9, 8, DRELU),
    TYPED(9, 128, 7, DGELU),
    TYPED(33, 7, 8, DGELU_BGRAD),
    TYPED(9, 8, 128, BGRADA),
    TYPED(8, 33, 7, BGRADB),
};
enum { ROWS = sizeof rows / sizeof *rows };

/* A matrix with its values in pinned and in device memory. */
typedef struct matrix {
    ir_dtype type;
    int64_t rows, columns, batch, stride;
    char *host, *device;
    size_t bytes;
    cublasLtMatrixLayout_t layout;
} matrix;

static cudaDataType data_type(ir_dtype t) { return t == IR_f32 ? CUDA_R_32F : t == IR_f16 ? CUDA_R_16F : CUDA_R_16BF; }

static void upload(const matrix *m)
{
    must(cuda.cudaMemcpyAsync(m->device, m->host, m->bytes, cudaMemcpyHostToDevice, stream));
}

static void download(const matrix *m)
{
    must(cuda.cudaMemcpyAsync(m->host, m->device, m->bytes, cudaMemcpyDeviceToHost, stream));
    must(cuda.cudaStreamSynchronize(stream));
}

static matrix make(ir_dtype t, int64_t rows_, int64_t columns, int64_t batch, bool shared)
{
    static uint64_t draws;
    matrix m = {.type = t, .rows = rows_, .columns = columns, .batch = batch, .stride = shared ? 0 : rows_ * columns};
    int64_t count = rows_ * columns * (shared ? 1 : batch);
    int32_t batches = (int32_t)batch;
    m.bytes = (size_t)count * ir_dtype_size(t);
    must(cuda.cudaMallocHost((void **)&m.host, m.bytes));
    must(cuda.cudaMalloc((void **)&m.device, m.bytes));
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(t, m.host + (size_t)i * ir_dtype_size(t), philox_unit(philox_word(3, 1, draws++)) * 2 - 1);
    upload(&m);
    must((int)cuda.cublasLtMatrixLayoutCreate(&m.layout, data_type(t), (uint64_t)rows_, (uint64_t)columns, rows_));
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(m.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                                    sizeof batches));
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(m.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.stride,
                                                    sizeof m.stride));
    return m;
}

static double at(const matrix *m, int64_t batch, int64_t i, int64_t j)
{
    return ir_load_f64(m->type, m->host + (size_t)(batch * m->stride + j * m->rows + i) * ir_dtype_size(m->type));
}

typedef struct product {
    const row *r;
    matrix a, b, c, d, bias, aux;
    cublasLtMatmulDesc_t how;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    const void *alpha, *beta;
    matrix scalars;
} product;

static void set(const product *p, cublasLtMatmulDescAttributes_t name, const void *value, size_t size)
{
    must((int)cuda.cublasLtMatmulDescSetAttribute(p->how, name, value, size));
}
#define SET(p, name, value) set(p, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value))

static void describe(product *p)
{
    const row *r = p->r;
    const int32_t trans_a = r->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, trans_b = r->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t mode = r->device_scalars ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
    const uint64_t room = WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    must((int)cuda.cublasLtMatmulDescCreate(&p->how, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(p, TRANSA, trans_a);
    SET(p, TRANSB, trans_b);
    SET(p, POINTER_MODE, mode);
    SET(p, EPILOGUE, r->epilogue);
    SET(p, BIAS_POINTER, p->bias.device);
    SET(p, EPILOGUE_AUX_POINTER, p->aux.device);
    SET(p, EPILOGUE_AUX_LD, p->aux.rows);
    must((int)cuda.cublasLtMatmulPreferenceCreate(&p->preference));
    must((int)cuda.cublasLtMatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                                        sizeof room));
    must((int)cuda.cublasLtMatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &schemes, sizeof schemes));
}

/* `aux` has elements or, for masks, 16 bits per element. */
static product make_product(const row *r)
{
    product p = {.r = r, .alpha = &r->alpha, .beta = &r->beta};
    int64_t sum = r->epilogue == CUBLASLT_EPILOGUE_BGRADB ? r->n : r->m;
    bool bits = (r->epilogue & CUBLASLT_EPILOGUE_RELU_AUX) == CUBLASLT_EPILOGUE_RELU_AUX ||
                (r->epilogue & CUBLASLT_EPILOGUE_DRELU) == CUBLASLT_EPILOGUE_DRELU;
    p.a = r->trans_a ? make(r->in, r->k, r->m, r->batch, false) : make(r->in, r->m, r->k, r->batch, false);
    p.b = r->trans_b ? make(r->in, r->n, r->k, r->batch, r->share_b) : make(r->in, r->k, r->n, r->batch, r->share_b);
    p.c = make(r->out, r->m, r->n, r->batch, false);
    p.d = make(r->out, r->m, r->n, r->batch, false);
    p.bias = make(r->out, sum, 1, 1, false);
    p.aux = make(r->out, (r->m + 7) / 8 * 8, r->n, 1, false);
    if (bits) p.aux.rows = (r->m + 127) / 128 * 128; /* needs fewer bytes than before */
    if (r->device_scalars) {
        p.scalars = make(IR_f32, 2, 1, 1, false);
        memcpy(p.scalars.host, &r->alpha, 4);
        memcpy(p.scalars.host + 4, &r->beta, 4);
        upload(&p.scalars);
        p.alpha = p.scalars.device;
        p.beta = p.scalars.device + 4;
    }
    describe(&p);
    return p;
}

static cublasStatus_t find(product *p)
{
    int count = 0;
    return cuda.cublasLtMatmulAlgoGetHeuristic(handle, p->how, p->a.layout, p->b.layout, p->c.layout, p->d.layout,
                                               p->preference, 1, &p->found, &count);
}

static cublasStatus_t run(const product *p)
{
    return cuda.cublasLtMatmul(handle, p->how, p->alpha, p->a.device, p->a.layout, p->b.device, p->b.layout, p->beta,
                               p->c.device, p->c.layout, p->d.device, p->d.layout, &p->found.algo, workspace, WORKSPACE,
                               stream);
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6; }

static bool mask(const product *p, int64_t i, int64_t j)
{
    int64_t bit = j * p->aux.rows + i;
    return (unsigned char)p->aux.host[bit / 8] >> bit % 8 & 1;
}

static double before_epilogue(const product *p, int64_t batch, int64_t i, int64_t j)
{
    const row *r = p->r;
    double sum = 0;
    for (int64_t l = 0; l < r->k; l++)
        sum += (r->trans_a ? at(&p->a, batch, l, i) : at(&p->a, batch, i, l)) *
               (r->trans_b ? at(&p->b, batch, j, l) : at(&p->b, batch, l, j));
    return r->alpha * sum + r->beta * at(&p->c, batch, i, j);
}

static void near(const row *r, const char *what, double got, double want)
{
    double unit = r->out == IR_f32 ? 1e-5 : r->out == IR_f16 ? 1e-3 : 8e-3;
    if (!(fabs(got - want) <= unit * (1 + fabs(want))))
        fail_msg("row %d, %s: %g instead of %g", (int)(r - rows), what, got, want);
}

/* Returns the expected value of D, and checks the additional results of the epilogue. */
static double expected(const product *p, int64_t batch, int64_t i, int64_t j)
{
    double v = before_epilogue(p, batch, i, j), bias = p->bias.rows > i ? at(&p->bias, 0, i, 0) : 0;
    if (!(p->r->epilogue & CUBLASLT_EPILOGUE_BIAS)) bias = 0;
    switch (p->r->epilogue & ~(unsigned)CUBLASLT_EPILOGUE_BIAS) {
    case 0: return v + bias;
    case CUBLASLT_EPILOGUE_RELU: return fmax(v + bias, 0);
    case CUBLASLT_EPILOGUE_GELU: return gelu(v + bias);
    case CUBLASLT_EPILOGUE_GELU_AUX: near(p->r, "aux", at(&p->aux, 0, i, j), v + bias); return gelu(v + bias);
    case CUBLASLT_EPILOGUE_RELU_AUX:
        if (fabs(v + bias) > 1e-3) assert_int_equal(mask(p, i, j), v + bias > 0);
        return fmax(v + bias, 0);
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD: return v * gelu_slope(at(&p->aux, 0, i, j));
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD: return mask(p, i, j) ? v : 0;
    default: return v;
    }
}

static void check_sums(const product *p)
{
    const row *r = p->r;
    for (int64_t i = 0; i < p->bias.rows; i++) {
        double sum = 0;
        if (r->epilogue == CUBLASLT_EPILOGUE_BGRADA)
            for (int64_t l = 0; l < r->k; l++) sum += r->trans_a ? at(&p->a, 0, l, i) : at(&p->a, 0, i, l);
        else if (r->epilogue == CUBLASLT_EPILOGUE_BGRADB)
            for (int64_t l = 0; l < r->k; l++) sum += r->trans_b ? at(&p->b, 0, i, l) : at(&p->b, 0, l, i);
        else if (r->epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || r->epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD)
            for (int64_t j = 0; j < r->n; j++) sum += expected(p, 0, i, j);
        else return;
        near(r, "sum", at(&p->bias, 0, i, 0), sum);
    }
}

static void destroy(const product *p)
{
    const cublasLtMatrixLayout_t layouts[] = {p->a.layout,    p->b.layout,   p->c.layout,      p->d.layout,
                                              p->bias.layout, p->aux.layout, p->scalars.layout};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i]) must((int)cuda.cublasLtMatrixLayoutDestroy(layouts[i]));
    must((int)cuda.cublasLtMatmulDescDestroy(p->how));
    must((int)cuda.cublasLtMatmulPreferenceDestroy(p->preference));
}

TEST(products_agree)
{
    for (int i = 0; i < MODES * ROWS; i++) {
        const row *r = &rows[i / MODES];
        begin(modes[i % MODES]);
        product p = make_product(r);
        must((int)find(&p));
        must((int)run(&p));
        download(&p.d);
        download(&p.bias);
        download(&p.aux);
        for (int64_t batch = 0; batch < r->batch; batch++)
            for (int64_t k = 0; k < r->m * r->n; k++)
                near(r, "D", at(&p.d, batch, k % r->m, k / r->m), expected(&p, batch, k % r->m, k / r->m));
        check_sums(&p);
        destroy(&p);
        must((int)cuda.cublasLtDestroy(handle));
    }
}

/* ---- rejections --------------------------------------------------------------------------------- */

static void expect_refusal(cublasStatus_t got, cublasStatus_t want, const char *part)
{
    if (got != want || !strstr(double_reason(), part))
        fail_msg("status %d, '%s', instead of %d and '%s'", (int)got, double_reason(), (int)want, part);
}

/* A matmul whose descriptor has one wrong attribute. */
#define WRONG_ATTRIBUTE(row_index, name, type, value, status, part) \
    do { \
        begin(DOUBLE_EAGER); \
        product p_ = make_product(&rows[row_index]); \
        const type wrong_ = value; \
        SET(&p_, name, wrong_); \
        expect_refusal(find(&p_), CUBLAS_STATUS_##status, part); \
        destroy(&p_); \
        must((int)cuda.cublasLtDestroy(handle)); \
    } while (0)

TEST(descriptors_are_judged)
{
    WRONG_ATTRIBUTE(0, TRANSA, int32_t, 77, INVALID_VALUE, "transposition");
    WRONG_ATTRIBUTE(0, TRANSA, int32_t, CUBLAS_OP_T, INVALID_VALUE, "shapes");
    WRONG_ATTRIBUTE(0, EPILOGUE, uint32_t, 9999, NOT_SUPPORTED, "epilogue");
    WRONG_ATTRIBUTE(0, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_DEVICE_VECTOR, NOT_SUPPORTED, "alpha");
    WRONG_ATTRIBUTE(8, EPILOGUE_AUX_LD, int64_t, 36, INVALID_VALUE, "multiple of 8");
    WRONG_ATTRIBUTE(8, EPILOGUE_AUX_LD, int64_t, 32, INVALID_VALUE, "multiple of 8");
    WRONG_ATTRIBUTE(9, EPILOGUE_AUX_LD, int64_t, 40, INVALID_VALUE, "multiple of 128");
    WRONG_ATTRIBUTE(5, BIAS_DATA_TYPE, int32_t, CUDA_R_32F, NOT_SUPPORTED, "type than D");
    WRONG_ATTRIBUTE(8, EPILOGUE_AUX_DATA_TYPE, int32_t, CUDA_R_32F, NOT_SUPPORTED, "type than D");
    WRONG_ATTRIBUTE(8, EPILOGUE_AUX_POINTER, intptr_t, 0, INVALID_VALUE, "aux buffer has no address");
    WRONG_ATTRIBUTE(5, BIAS_POINTER, intptr_t, 0, INVALID_VALUE, "bias has no address");
    WRONG_ATTRIBUTE(4, EPILOGUE, uint32_t, CUBLASLT_EPILOGUE_BGRADA, INVALID_VALUE, "sums of several batches");
    WRONG_ATTRIBUTE(4, EPILOGUE, uint32_t, CUBLASLT_EPILOGUE_DGELU, INVALID_VALUE, "batches overlap");
    WRONG_ATTRIBUTE(0, FAST_ACCUM, int8_t, 1, NOT_SUPPORTED, "does not know");
}

TEST(layouts_are_judged)
{
    begin(DOUBLE_EAGER);
    product p = make_product(&rows[4]);
    const int64_t small = 7, overlap = 1, whole = p.a.rows;
    const int32_t row_order = CUBLASLT_ORDER_ROW, col = CUBLASLT_ORDER_COL;
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &small, sizeof small));
    expect_refusal(find(&p), CUBLAS_STATUS_INVALID_VALUE, "leading dimension");
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &whole, sizeof whole));
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &row_order,
                                                    sizeof row_order));
    expect_refusal(find(&p), CUBLAS_STATUS_NOT_SUPPORTED, "column order");
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &col, sizeof col));
    must((int)cuda.cublasLtMatrixLayoutSetAttribute(p.d.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &overlap,
                                                    sizeof overlap));
    expect_refusal(find(&p), CUBLAS_STATUS_INVALID_VALUE, "overlap");
    destroy(&p);
    must((int)cuda.cublasLtDestroy(handle));
}

TEST(algorithms_are_judged)
{
    begin(DOUBLE_EAGER);
    product p = make_product(&rows[0]), other = make_product(&rows[1]);
    const uint32_t every = CUBLASLT_REDUCTION_SCHEME_MASK, ours = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    must((int)cuda.cublasLtMatmulPreferenceSetAttribute(p.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &every, sizeof every));
    expect_refusal(find(&p), CUBLAS_STATUS_INVALID_VALUE, "partial sums");
    must((int)cuda.cublasLtMatmulPreferenceSetAttribute(p.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &ours,
                                                        sizeof ours));
    must((int)find(&p));
    must((int)find(&other));
    product q = p;
    q.found = other.found;
    expect_refusal(run(&q), CUBLAS_STATUS_INVALID_VALUE, "another problem");
    q = p;
    q.a.device = p.a.host;
    expect_refusal(run(&q), CUBLAS_STATUS_INVALID_VALUE, "on the device");
    q = p;
    q.d.device = p.d.device + 4;
    expect_refusal(run(&q), CUBLAS_STATUS_INVALID_VALUE, "on the device");
    q = p;
    q.alpha = p.a.device;
    expect_refusal(run(&q), CUBLAS_STATUS_INVALID_VALUE, "pointer mode");
    destroy(&p);
    destroy(&other);
    must((int)cuda.cublasLtDestroy(handle));
    expect_refusal(run(&p), CUBLAS_STATUS_INVALID_VALUE, "no such handle");
}

/* Bias and AUX must be at least as aligned as when the algorithm was found. */
TEST(beside_matrices)
{
    begin(DOUBLE_EAGER);
    product p = make_product(&rows[8]);
    char *aux = p.aux.device + 32, *bias = p.bias.device + 2;
    must((int)find(&p));
    must((int)run(&p));
    SET(&p, EPILOGUE_AUX_POINTER, aux);
    expect_refusal(run(&p), CUBLAS_STATUS_INVALID_VALUE, "aux buffer");
    SET(&p, EPILOGUE_AUX_POINTER, p.aux.device);
    SET(&p, BIAS_POINTER, bias);
    expect_refusal(run(&p), CUBLAS_STATUS_INVALID_VALUE, "bias");
    destroy(&p);
    must((int)cuda.cublasLtDestroy(handle));
}

/* As in the library, relu does not propagate NaN, but gelu does. */
TEST(relu_stops_nan)
{
    static const row of[] = {{5, 7, 3, 1, false, false, false, false, 1, 0, IR_f32, IR_f32, CUBLASLT_EPILOGUE_RELU},
                             {5, 7, 3, 1, false, false, false, false, 1, 0, IR_f32, IR_f32, CUBLASLT_EPILOGUE_GELU}};
    for (int i = 0; i < 2; i++) {
        begin(DOUBLE_EAGER);
        product p = make_product(&of[i]);
        ir_store_f64(IR_f32, p.a.host, NAN);
        upload(&p.a);
        must((int)find(&p));
        must((int)run(&p));
        download(&p.d);
        assert_true(i == 0 ? at(&p.d, 0, 0, 2) == 0 : isnan(at(&p.d, 0, 0, 2)));
        destroy(&p);
        must((int)cuda.cublasLtDestroy(handle));
    }
}

/* Device scalars are read when a graph is replayed, host scalars when it is captured. */
TEST(graphs_read_device_scalars)
{
    begin(DOUBLE_LAZY);
    product p = make_product(&rows[2]);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphInstantiateParams params = {.flags = 0};
    must((int)find(&p));
    must(cuda.cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    must((int)run(&p));
    must(cuda.cudaStreamEndCapture(stream, &graph));
    must(cuda.cudaGraphInstantiateWithParams(&exec, graph, &params));
    must(cuda.cudaGraphLaunch(exec, stream));
    download(&p.d);
    double once = at(&p.d, 0, 3, 3);
    const float twice = 2 * rows[2].alpha;
    memcpy(p.scalars.host, &twice, 4);
    upload(&p.scalars);
    must(cuda.cudaGraphLaunch(exec, stream));
    download(&p.d);
    assert_true(once != 0 && at(&p.d, 0, 3, 3) == 2 * once);
    destroy(&p);
    must((int)cuda.cublasLtDestroy(handle));
}

static int teardown(void **state)
{
    (void)state;
    double_reset();
    return 0;
}

TEST_GROUP(setup, teardown)
