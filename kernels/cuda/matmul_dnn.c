/* matmul_dnn.c - matmuls with exact GELU as cuDNN graphs; cuBLASLt only has the approximation with tanh.
 *
 * The graph computes in f32 and rounds each result once:
 *
 *     forward    aux = a b + bias, y = gelu(a b + bias); without a bias or aux if the call has none
 *     gradient   y = (a b) * gelu'(x)
 *
 * For low types and rows of whole 16-byte vectors cuDNN 9.19 has one engine on an H200, 7, in two or three
 * configurations. It compiles its kernel, which needs about a second for each form. Small products do not repay that:
 * their results stay in the cache between separate steps. */
#include "kernels/cuda/matmul_dnn.h"

#include "ir/base/text_buffer.h"
#include "kernels/cuda/dnn.h"
#include "kernels/epilogue.h"
#include "kernels/matmul.h"

#include <inttypes.h>

/* The tensors of a graph, numbered by their UID - 1. */
enum { A, B, BIAS, X, AUX, Y, N_TENSORS };
enum { UID_PRODUCT = N_TENSORS + 1, UID_SUM }; /* never in memory */
enum { VECTOR = 8, MIN_RESULTS = 1 << 20, MAX_KEY = 128 };

typedef struct matmul_graph {
    const dnn_plan *plan;
} matmul_graph;

/* Lists the operands and results of a call; NULL: absent. */
static void find_tensors(const k_args *args, const k_view *found[N_TENSORS])
{
    const k_view *bias = &args->in[IR_IN(matmul, bias)];
    found[A] = &args->in[IR_IN(matmul, a)];
    found[B] = &args->in[IR_IN(matmul, b)];
    found[BIAS] = k_present(bias) ? bias : NULL;
    found[X] = k_extra_in(args, K_SLOT(epilogue, x));
    found[AUX] = k_extra_out(args, K_SLOT(epilogue, aux));
    found[Y] = &args->out[IR_OUT(matmul, y)];
}

/* A matrix of rows x columns, stored transposed if `crossed`; as a batch of one. */
static dnn_layout matrix(int64_t rows, int64_t columns, bool crossed)
{
    return (dnn_layout){
        .rank = 3, .dims = {1, rows, columns}, .strides = {rows * columns, crossed ? 1 : columns, crossed ? rows : 1}};
}

static dnn_layout layout_of(const product *p, int tensor)
{
    switch (tensor) {
    case A: return matrix(p->m, p->k, p->trans_a);
    case B: return matrix(p->k, p->n, p->trans_b);
    case BIAS: return matrix(1, p->n, false);
    default: return matrix(p->m, p->n, false);
    }
}

static ampc_status plan_graph(const k_args *args, const product *p, const char *key, const dnn_plan **plan)
{
    dnn_graph g = dnn_begin(args->ctx);
    const dnn_layout result = layout_of(p, Y);
    const k_view *tensors[N_TENSORS];
    dnn_descriptor d[N_TENSORS] = {NULL};
    find_tensors(args, tensors);
    for (int i = 0; i < N_TENSORS; i++) {
        const dnn_layout layout = layout_of(p, i);
        if (tensors[i]) d[i] = dnn_tensor(&g, i + 1, tensors[i]->dtype, &layout);
    }
    dnn_descriptor last = dnn_intermediate(&g, UID_PRODUCT, IR_f32, &result);
    dnn_append_matmul(&g, d[A], d[B], last);
    if (tensors[BIAS]) {
        const dnn_descriptor sum = dnn_intermediate(&g, UID_SUM, IR_f32, &result);
        dnn_append_pointwise(&g, CUDNN_POINTWISE_ADD, last, d[BIAS], sum);
        last = sum;
    }
    if (tensors[AUX]) dnn_append_pointwise(&g, CUDNN_POINTWISE_IDENTITY, last, NULL, d[AUX]);
    if (tensors[X]) dnn_append_pointwise_grad(&g, CUDNN_POINTWISE_GELU_BWD, last, d[X], d[Y]);
    else dnn_append_pointwise(&g, CUDNN_POINTWISE_GELU_FWD, last, NULL, d[Y]);
    return dnn_plan_of(&g, key, plan);
}

static void write_key(const k_args *args, const product *p, char *out)
{
    text_buffer t = text_in(out, MAX_KEY);
    const k_view *tensors[N_TENSORS];
    find_tensors(args, tensors);
    text_add(&t, "matmul %s %" PRId64 "x%" PRId64 "x%" PRId64 "%s%s %s%s%s", ir_dtype_name(tensors[Y]->dtype), p->m,
             p->n, p->k, p->trans_a ? " ta" : "", p->trans_b ? " tb" : "", tensors[X] ? "dgelu" : "gelu",
             tensors[BIAS] ? " bias" : "", tensors[AUX] ? " aux" : "");
    if (args->ctx->candidate) text_add(&t, " candidate %d", args->ctx->candidate);
}

static bool is_supported(const k_args *args, const product *p)
{
    const k_activation tail = k_activation_of(args);
    const unsigned parts = k_parts_of(args);
    const ir_dtype t = args->out[0].dtype;
    const k_view *tensors[N_TENSORS];
    if (tail == K_ACTIVATION_GELU ? parts & ~(unsigned)(K_PART_BIAS | K_PART_AUX)
                                  : tail != K_ACTIVATION_GELU_GRAD || parts != K_PART_X)
        return false;
    find_tensors(args, tensors);
    for (int i = 0; i < N_TENSORS; i++)
        if (tensors[i] && tensors[i]->dtype != t) return false;
    return (t == IR_f16 || t == IR_bf16) && p->rank == 0 && p->m * p->n >= MIN_RESULTS && p->k > 0 &&
           p->n % VECTOR == 0 && p->k % VECTOR == 0 && (!p->trans_a || p->m % VECTOR == 0);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    const product p = product_of(args);
    char key[MAX_KEY];
    if (!is_supported(args, &p)) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "unsupported epilogue");
    CUDA_FORWARD(cuda_open_optional_dnn(args->ctx));
    CUDA_FORWARD(cuda_new_state(args, sizeof(matmul_graph), state));
    matmul_graph *s = *state;
    write_key(args, &p, key);
    s->plan = dnn_plan_find(args->ctx, key);
    if (!s->plan) CUDA_FORWARD(plan_graph(args, &p, key, &s->plan));
    *workspace = dnn_plan_workspace(s->plan);
    return AMPC_OK;
}

static ampc_status run(const k_args *args)
{
    const matmul_graph *s = args->state;
    const k_view *tensors[N_TENSORS];
    int64_t uids[N_TENSORS];
    void *data[N_TENSORS];
    int n = 0;
    find_tensors(args, tensors);
    for (int i = 0; i < N_TENSORS; i++) {
        if (!tensors[i]) continue;
        uids[n] = i + 1;
        data[n++] = tensors[i]->data;
    }
    return dnn_run(args->ctx, s->plan, n, uids, data, args->workspace);
}

const k_kernel cuda_matmul_dnn = {.prepare = prepare, .run = run, .release = cuda_release};
