/* matmul.c - y = op(a) op(b) + bias through cuBLASLt.
 *
 * The library is column-major: our y [m, n] is its D [n, m], computed from b and a in this order, and the bias is added
 * along the rows of D. Accumulation is in f32 for all types, including the partial sums of split-k. The last batch
 * dimension is a strided batch, in which shared operands have stride 0. If operands are shared differently in several
 * batch dimensions, each of the outer positions is a separate call. If the library cannot store the result type, D is
 * f32 in workspace and cast afterwards; a bias of another type than D is cast first.
 *
 * Fused operations (kernels/epilogue.h) are epilogues of the library: tanh GELU, optionally storing its pre-activation
 * (AUX); the gradient of GELU; and sums of an operand. An addend is the library's C, with beta 1; it may be the same
 * memory as D. AUX matrices have the layout of D, and their leading dimension must be a multiple of 8. Exact GELU is
 * left to cuDNN (matmul_dnn.h). relu is not fused, because the library's max(x, 0) turns NaN into 0, while our op
 * propagates NaN. Split-k algorithms round the sum to the type of D before they add a bias or apply GELU, so these
 * exclude them if D is f16 or bf16, and so does an addend.
 *
 * The heuristics may propose an algorithm that the library then refuses to run. Algorithms that pass
 * cublasLtMatmulAlgoCheck are tried first, and the first run moves on to the next one if the library refuses. */
#include "ir/base/text_buffer.h"
#include "kernels/cuda/inner.h"
#include "kernels/cuda/matmul_dnn.h"
#include "kernels/cuda/tune.h"
#include "kernels/epilogue.h"
#include "kernels/matmul.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_A = IR_IN(matmul, a), IN_B = IR_IN(matmul, b), IN_BIAS = IR_IN(matmul, bias) };
enum { MAX_RACED = 8, MAX_KEY = 512, AUX_STEP = 8 };
/* Epilogue parts stored as AUX matrix, and parts that the library writes through the bias pointer. */
enum { PARTS_AUX = K_PART_X | K_PART_AUX, PARTS_SUM = K_PART_SUM_A | K_PART_SUM_B };

typedef struct epilogue {
    const char *name; /* used in tuning keys */
    k_activation tail;
    unsigned parts;
    cublasLtEpilogue_t does;
} epilogue;

/* The library's B is our a, and its A is our b. */
static const epilogue epilogues[] = {
    {"", K_ACTIVATION_NONE, 0, CUBLASLT_EPILOGUE_DEFAULT},
    {" bias", K_ACTIVATION_NONE, K_PART_BIAS, CUBLASLT_EPILOGUE_BIAS},
    {" add", K_ACTIVATION_NONE, K_PART_ADDEND, CUBLASLT_EPILOGUE_DEFAULT},
    {" bias add", K_ACTIVATION_NONE, K_PART_BIAS | K_PART_ADDEND, CUBLASLT_EPILOGUE_BIAS},
    {" gelu", K_ACTIVATION_GELU_TANH, 0, CUBLASLT_EPILOGUE_GELU},
    {" bias gelu", K_ACTIVATION_GELU_TANH, K_PART_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS},
    {" gelu aux", K_ACTIVATION_GELU_TANH, K_PART_AUX, CUBLASLT_EPILOGUE_GELU_AUX},
    {" bias gelu aux", K_ACTIVATION_GELU_TANH, K_PART_BIAS | K_PART_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {" dgelu", K_ACTIVATION_GELU_TANH_GRAD, K_PART_X, CUBLASLT_EPILOGUE_DGELU},
    {" sum a", K_ACTIVATION_NONE, K_PART_SUM_A, CUBLASLT_EPILOGUE_BGRADB},
    {" sum b", K_ACTIVATION_NONE, K_PART_SUM_B, CUBLASLT_EPILOGUE_BGRADA},
};

typedef struct matmul {
    product p;
    ir_dtype read, stored; /* types of the operands and of D: the result type if equal to `read`, else f32 */
    int64_t calls, items;  /* number of calls, and matrices per call (strided batch) */
    const epilogue *epilogue;
    cublasLtMatmulDesc_t how; /* NULL: nothing to sum */
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algos[MAX_RACED]; /* in the order in which they are tried */
    int n_algos, algo;                     /* algo: index of the current one */
    bool has_run;                          /* the library has accepted the current algorithm */
    void *graph;                           /* state of cuda_matmul_dnn, which runs the step; NULL: the library does */
    cuda_inner bias, result;               /* casts */
    cuda_fill fill;
    size_t bias_at, inner_at; /* offsets in workspace: cast bias, workspace of the casts (D, if cast, is at 0) */
} matmul;

/* Addresses for one run. */
typedef struct matmul_data {
    char *a, *b, *c, *d; /* c: the addend; NULL: none */
    void *bias, *aux;    /* bias or sums; AUX matrix */
} matmul_data;

static void release(void *state)
{
    matmul *m = state;
    if (!m) return;
    if (m->how) cuda.cublasLtMatmulDescDestroy(m->how);
    if (m->a) cuda.cublasLtMatrixLayoutDestroy(m->a);
    if (m->b) cuda.cublasLtMatrixLayoutDestroy(m->b);
    if (m->d) cuda.cublasLtMatrixLayoutDestroy(m->d);
    cuda_inner_release(&m->bias);
    cuda_inner_release(&m->result);
    cuda_fill_release(&m->fill);
    if (m->graph) cuda_matmul_dnn.release(m->graph);
    free(m);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static cudaDataType_t data_type(ir_dtype t)
{
    return t == IR_f16 ? CUDA_R_16F : t == IR_bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Describes a matrix of `rows` x `columns` elements, row-major, with its batch. For the library it has `columns`
 * rows. */
static ampc_status make_layout(const k_args *args, const matmul *m, cublasLtMatrixLayout_t *out, ir_dtype t,
                               int64_t rows, int64_t columns, const bool *shared)
{
    int last = m->p.rank - 1;
    const int32_t count = (int32_t)m->items;
    const int64_t stride = shared && last >= 0 && shared[last] ? 0 : rows * columns;
    CUDA_LT_CALL(args->ctx, cublasLtMatrixLayoutCreate(out, data_type(t), (uint64_t)columns, (uint64_t)rows, columns));
    if (m->items == 1) return AMPC_OK;
    CUDA_LT_CALL(args->ctx,
                 cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    CUDA_LT_CALL(args->ctx, cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                             sizeof stride));
    return AMPC_OK;
}

/* bias and aux may be NULL: not set. */
static ampc_status set_pointers(const k_context *ctx, const matmul *m, void *bias, void *aux)
{
    if (bias)
        CUDA_LT_CALL(ctx,
                     cublasLtMatmulDescSetAttribute(m->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (aux)
        CUDA_LT_CALL(
            ctx, cublasLtMatmulDescSetAttribute(m->how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    return AMPC_OK;
}

/* Sets dummy aligned addresses, because the heuristics consider alignment before the real addresses are known. */
static ampc_status describe_epilogue(const k_context *ctx, const matmul *m)
{
    const unsigned parts = m->epilogue->parts;
    const cublasLtEpilogue_t does = m->epilogue->does;
    void *aligned = (void *)CUDA_ALIGNMENT;
    CUDA_LT_CALL(ctx, cublasLtMatmulDescSetAttribute(m->how, CUBLASLT_MATMUL_DESC_EPILOGUE, &does, sizeof does));
    if (parts & PARTS_AUX)
        CUDA_LT_CALL(
            ctx, cublasLtMatmulDescSetAttribute(m->how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &m->p.n, sizeof m->p.n));
    return set_pointers(ctx, m, parts & (K_PART_BIAS | PARTS_SUM) ? aligned : NULL, parts & PARTS_AUX ? aligned : NULL);
}

static ampc_status describe(const k_args *args, matmul *m)
{
    const k_context *ctx = args->ctx;
    const product *p = &m->p;
    const ir_dtype in = args->in[IN_A].dtype;
    const cublasOperation_t a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    CUDA_LT_CALL(ctx, cublasLtMatmulDescCreate(&m->how, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUDA_LT_CALL(ctx, cublasLtMatmulDescSetAttribute(m->how, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b));
    CUDA_LT_CALL(ctx, cublasLtMatmulDescSetAttribute(m->how, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a));
    CUDA_FORWARD(describe_epilogue(ctx, m));
    CUDA_FORWARD(make_layout(args, m, &m->a, in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->a_shared));
    CUDA_FORWARD(make_layout(args, m, &m->b, in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->b_shared));
    return make_layout(args, m, &m->d, m->stored, p->m, p->n, NULL);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Whether the library refused the call without enqueuing anything. Any other error may be a device fault. */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* Address of an operand's matrix for batch item `item`. */
static char *matrix_at(const product *p, char *data, const bool *shared, int64_t item, int64_t size, ir_dtype t)
{
    return data + product_offset(p, shared, item, size) * (int64_t)ir_dtype_size(t);
}

/* Returns AMPC_UNSUPPORTED if the library refuses the algorithm. */
static ampc_status multiply(const k_context *ctx, const matmul *m, const cublasLtMatmulAlgo_t *algo, matmul_data data)
{
    const float one = 1, beta = data.c ? 1 : 0;
    const product *p = &m->p;
    const cuda_context *c = cuda_of(ctx);
    CUDA_FORWARD(set_pointers(ctx, m, data.bias, data.aux));
    for (int64_t i = 0; i < m->calls; i++) {
        const int64_t item = i * m->items;
        const char *a = matrix_at(p, data.a, p->a_shared, item, p->m * p->k, m->read);
        const char *b = matrix_at(p, data.b, p->b_shared, item, p->k * p->n, m->read);
        const int64_t at = item * p->m * p->n * (int64_t)ir_dtype_size(m->stored);
        char *d = data.d + at, *added = data.c ? data.c + at : d;
        const cublasStatus_t answer = cuda.cublasLtMatmul(c->lt, m->how, &one, b, m->b, a, m->a, &beta, added, m->d, d,
                                                          m->d, algo, c->lt_workspace, CUDA_LT_WORKSPACE, c->stream);
        const ampc_status status = cuda_lt_status(ctx, answer, "cublasLtMatmul");
        if (status != AMPC_OK) return is_refusal(answer) ? AMPC_UNSUPPORTED : status;
    }
    return AMPC_OK;
}

/* Until an algorithm has been accepted, moves on to the next one if the library refuses. */
static ampc_status multiply_by_any(const k_context *ctx, matmul *m, matmul_data data)
{
    char reason[160];
    ampc_status status = multiply(ctx, m, &m->algos[m->algo], data);
    while (status == AMPC_UNSUPPORTED && !m->has_run && m->algo + 1 < m->n_algos)
        status = multiply(ctx, m, &m->algos[++m->algo], data);
    if (status == AMPC_OK) m->has_run = true;
    if (status != AMPC_UNSUPPORTED) return status;
    snprintf(reason, sizeof reason, "%s", ctx->error);
    return cuda_fail(ctx, AMPC_DEVICE, "%s; %d of %d algorithms were tried", reason, m->has_run ? 1 : m->n_algos,
                     m->n_algos);
}

/* Sets the addresses of epilogue operands and results; the bias before a possible cast. */
static void find_parts(const k_args *args, const matmul *m, matmul_data *data)
{
    const k_view *bias = &args->in[IN_BIAS], *addend = k_extra_in(args, K_SLOT(epilogue, addend));
    if (addend) data->c = addend->data;
    switch (m->epilogue->parts & (PARTS_AUX | PARTS_SUM)) {
    case K_PART_X: data->aux = k_extra_in(args, K_SLOT(epilogue, x))->data; break;
    case K_PART_AUX: data->aux = k_extra_out(args, K_SLOT(epilogue, aux))->data; break;
    case K_PART_SUM_A: data->bias = k_extra_out(args, K_SLOT(epilogue, sum_a))->data; break;
    case K_PART_SUM_B: data->bias = k_extra_out(args, K_SLOT(epilogue, sum_b))->data; break;
    }
    if (k_present(bias)) data->bias = bias->data;
}

static ampc_status run_graph(const k_args *args, void *graph)
{
    k_args call = *args;
    call.state = graph;
    return cuda_matmul_dnn.run(&call);
}

static ampc_status run(const k_args *args)
{
    matmul *m = args->state;
    const k_view *bias = &args->in[IN_BIAS], *y = &args->out[0];
    char *workspace = args->workspace;
    if (m->graph) return run_graph(args, m->graph);
    if (!m->how) return cuda_fill_run(args, &m->fill, bias, y);
    void *rest = workspace + m->inner_at;
    matmul_data data = {
        .a = args->in[IN_A].data, .b = args->in[IN_B].data, .d = m->result.kernel ? workspace : y->data};
    find_parts(args, m, &data);
    if (m->bias.kernel) {
        data.bias = workspace + m->bias_at;
        CUDA_FORWARD(cuda_inner_run(args, &m->bias, bias->data, data.bias, rest));
    }
    CUDA_FORWARD(multiply_by_any(args->ctx, m, data));
    return cuda_inner_run(args, &m->result, data.d, y->data, rest);
}

/* ---- the algorithm --------------------------------------------------------------------------- */

typedef struct contest {
    const k_args *args;
    const matmul *m;
    cublasLtMatmulHeuristicResult_t found[MAX_RACED];
    matmul_data data;
} contest;

static ampc_status contest_run(void *user, int i)
{
    contest *c = user;
    return multiply(c->args->ctx, c->m, &c->found[i].algo, c->data);
}

static ampc_status contest_open(contest *c)
{
    const k_context *ctx = c->args->ctx;
    const k_view *in = c->args->in;
    const product *p = &c->m->p;
    const unsigned parts = c->m->epilogue->parts;
    const size_t size = ir_dtype_size(c->m->stored), d = (size_t)k_count(&c->args->out[0]) * size,
                 bias = (size_t)(parts & K_PART_SUM_A ? p->m : p->n) * size;
    CUDA_FORWARD(cuda_tune_buffer(ctx, k_bytes(&in[IN_A]), (void **)&c->data.a));
    CUDA_FORWARD(cuda_tune_buffer(ctx, k_bytes(&in[IN_B]), (void **)&c->data.b));
    if (parts & (K_PART_BIAS | PARTS_SUM)) CUDA_FORWARD(cuda_tune_buffer(ctx, bias, &c->data.bias));
    if (parts & PARTS_AUX) CUDA_FORWARD(cuda_tune_buffer(ctx, d, &c->data.aux));
    if (parts & K_PART_ADDEND) CUDA_FORWARD(cuda_tune_buffer(ctx, d, (void **)&c->data.c));
    return cuda_tune_buffer(ctx, d, (void **)&c->data.d);
}

/* Finds the fastest algorithm; the first if there is not enough memory to race. */
static ampc_status race(contest *c, const char *key, int n, int *best)
{
    int which[MAX_RACED];
    for (int i = 0; i < n; i++) which[i] = i;
    ampc_status status = contest_open(c);
    if (status == AMPC_OK) status = cuda_tune(c->args->ctx, CUDA_LT, key, n, which, contest_run, c, best);
    cuda_tune_free(c->data.a);
    cuda_tune_free(c->data.b);
    cuda_tune_free(c->data.c);
    cuda_tune_free(c->data.d);
    cuda_tune_free(c->data.bias);
    cuda_tune_free(c->data.aux);
    return status == AMPC_NO_MEMORY ? AMPC_OK : status;
}

static void write_key(const matmul *m, char *out, size_t size)
{
    const product *p = &m->p;
    text_buffer t = text_in(out, size);
    text_add(&t, "matmul %s->%s %" PRId64 "x%" PRId64 "x%" PRId64 "%s%s%s", ir_dtype_name(m->read),
             ir_dtype_name(m->stored), p->m, p->n, p->k, p->trans_a ? " ta" : "", p->trans_b ? " tb" : "",
             m->epilogue->name);
    for (int i = 0; i < p->rank; i++)
        text_add(&t, " *%" PRId64 "%s%s", p->batch[i], p->a_shared[i] ? "a" : "", p->b_shared[i] ? "b" : "");
}

/* Common alignment of a matrix's addresses in all calls, at most that of storage. */
static uint32_t alignment(int64_t step, ir_dtype t)
{
    uint64_t bytes = (uint64_t)step * ir_dtype_size(t) | CUDA_ALIGNMENT;
    return (uint32_t)(bytes & -bytes);
}

static ampc_status prefer(const k_context *ctx, const matmul *m, cublasLtMatmulPreference_t preference)
{
    const product *p = &m->p;
    const uint64_t workspace = CUDA_LT_WORKSPACE;
    const bool follows = m->epilogue->tail != K_ACTIVATION_NONE || m->epilogue->parts & (K_PART_BIAS | K_PART_ADDEND);
    const bool splits = !follows || m->stored == IR_f32;
    const uint32_t schemes = splits ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    const bool many = m->calls > 1;
    const uint32_t a = alignment(many ? p->m * p->k : 0, m->read), b = alignment(many ? p->k * p->n : 0, m->read),
                   d = alignment(many ? p->m * p->n : 0, m->stored);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } wishes[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                  {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d}};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        CUDA_LT_CALL(ctx,
                     cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].name, wishes[i].value, wishes[i].size));
    return AMPC_OK;
}

static ampc_status ask(const k_context *ctx, const matmul *m, cublasLtMatmulHeuristicResult_t *found, int *n)
{
    cublasLtMatmulPreference_t preference;
    CUDA_LT_CALL(ctx, cublasLtMatmulPreferenceCreate(&preference));
    ampc_status status = prefer(ctx, m, preference);
    if (status == AMPC_OK) {
        cublasStatus_t answer = cuda.cublasLtMatmulAlgoGetHeuristic(cuda_of(ctx)->lt, m->how, m->b, m->a, m->d, m->d,
                                                                    preference, MAX_RACED, found, n);
        if (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_INVALID_VALUE)
            *n = 0; /* both statuses may mean that these types do not support the epilogue */
        else status = cuda_lt_status(ctx, answer, "cublasLtMatmulAlgoGetHeuristic");
    }
    cuda.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static ampc_status check_algorithm(const k_context *ctx, const matmul *m, const cublasLtMatmulAlgo_t *algo,
                                   bool *passes)
{
    cublasLtMatmulHeuristicResult_t result;
    const cublasStatus_t answer = cuda.cublasLtMatmulAlgoCheck(cuda_of(ctx)->lt, m->how, m->b, m->a, m->d, m->d, algo,
                                                               &result);
    *passes = answer == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= CUDA_LT_WORKSPACE;
    return is_refusal(answer) ? AMPC_OK : cuda_lt_status(ctx, answer, "cublasLtMatmulAlgoCheck");
}

/* Orders all n algorithms: `best` first, then the others in the library's order; those that fail its check come
 * last. */
static ampc_status order_algorithms(const contest *c, matmul *m, int n, int best)
{
    bool passes[MAX_RACED];
    for (int i = 0; i < n; i++) CUDA_FORWARD(check_algorithm(c->args->ctx, m, &c->found[i].algo, &passes[i]));
    for (int pass = 1; pass >= 0; pass--) {
        if (passes[best] == pass) m->algos[m->n_algos++] = c->found[best].algo;
        for (int i = 0; i < n; i++)
            if (i != best && passes[i] == pass) m->algos[m->n_algos++] = c->found[i].algo;
    }
    return AMPC_OK;
}

static ampc_status choose(const k_args *args, matmul *m)
{
    contest c = {.args = args, .m = m};
    char key[MAX_KEY];
    int n = 0;
    write_key(m, key, sizeof key);
    CUDA_FORWARD(ask(args->ctx, m, c.found, &n));
    if (n == 0) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "cuBLASLt has no algorithm for %s", key);
    if (args->ctx->candidate > n) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "%s has %d algorithms", key, n);
    if (args->ctx->candidate) {
        m->algos[m->n_algos++] = c.found[args->ctx->candidate - 1].algo;
        return AMPC_OK;
    }
    int tuned = cuda_tuned(args->ctx, CUDA_LT, key), best = tuned >= 0 && tuned < n ? tuned : 0;
    if (args->ctx->tune && (tuned < 0 || tuned >= n)) CUDA_FORWARD(race(&c, key, n, &best));
    return order_algorithms(&c, m, n, best);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Workspace: D if it is cast, the bias if it is cast, workspace of the casts. */
static ampc_status prepare_casts(const k_args *args, matmul *m, size_t *workspace)
{
    const k_view *y = &args->out[0], *bias = &args->in[IN_BIAS];
    CUDA_FORWARD(cuda_inner_cast(args, k_count(y), m->stored, y->dtype, &m->result));
    if (k_present(bias)) CUDA_FORWARD(cuda_inner_cast(args, m->p.n, bias->dtype, m->stored, &m->bias));
    if (m->result.kernel) m->bias_at = cuda_aligned((size_t)k_count(y) * ir_dtype_size(m->stored));
    m->inner_at = m->bias_at;
    if (m->bias.kernel) m->inner_at += cuda_aligned((size_t)m->p.n * ir_dtype_size(m->stored));
    *workspace = m->inner_at + (m->result.workspace > m->bias.workspace ? m->result.workspace : m->bias.workspace);
    return AMPC_OK;
}

/* Returns NULL if the library has no matching epilogue. */
static const epilogue *epilogue_of(const k_args *args, const product *p)
{
    const k_activation tail = k_activation_of(args);
    const unsigned parts = k_parts_of(args);
    const bool simple = tail == K_ACTIVATION_NONE && !(parts & ~(unsigned)K_PART_BIAS);
    const k_view *a = &args->in[IN_A], *y = &args->out[0];
    const bool stores = a->dtype == y->dtype || y->dtype == IR_f32; /* the library writes the result itself */
    if (!simple && (k_count(y) == 0 || p->k == 0)) return NULL;
    if (parts & (PARTS_AUX | PARTS_SUM) && p->rank) return NULL;
    if (parts & (PARTS_AUX | PARTS_SUM | K_PART_ADDEND) && !stores) return NULL;
    if (parts & PARTS_AUX && p->n % AUX_STEP) return NULL;
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
        if (epilogues[i].tail == tail && epilogues[i].parts == parts) return &epilogues[i];
    return NULL;
}

static ampc_status prepare_steps(const k_args *args, matmul *m, size_t *workspace)
{
    const k_view *y = &args->out[0], *bias = &args->in[IN_BIAS];
    product *p = &m->p;
    *p = product_of(args);
    m->epilogue = epilogue_of(args, p);
    if (!m->epilogue) return cuda_matmul_dnn.prepare(args, &m->graph, workspace);
    if (k_count(y) == 0 || p->k == 0)
        return cuda_fill_prepare(args, k_present(bias) ? bias : NULL, 0, y, &m->fill, workspace);
    m->read = args->in[IN_A].dtype;
    m->stored = m->read == y->dtype ? y->dtype : IR_f32;
    m->items = p->rank ? p->batch[p->rank - 1] : 1;
    m->calls = k_count(y) / (p->m * p->n * m->items);
    if (m->items > INT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "a batch of %" PRId64 " matrices is too large", m->items);
    CUDA_FORWARD(prepare_casts(args, m, workspace));
    if (cuda_is_described(args->ctx)) return AMPC_OK; /* cuBLASLt answers no queries without a device */
    CUDA_FORWARD(cuda_open_lt(args->ctx));
    CUDA_FORWARD(describe(args, m));
    return choose(args, m);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(matmul), state));
    return prepare_steps(args, *state, workspace);
}

const k_kernel cuda_matmul = {.prepare = prepare, .run = run, .release = release, .adds = true};
