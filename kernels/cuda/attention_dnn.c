/* attention_dnn.c - attention as a cuDNN graph, and the race between it and our kernel.
 *
 * cuDNN recognises the graph by its operations and runs it as one kernel, which it compiles for the shape:
 *
 *     scores = q k^T * scale, -inf at keys after the query if causal
 *     p      = exp(scores - max(scores)) / sum(exp(scores - max(scores)))
 *     y      = p v,  statistic = max(scores) + log(sum(exp(scores - max(scores))))
 *
 * Keys and values may have fewer heads than queries. The op's lse is the pair (statistic, 0). Every query must see a
 * key, so causal calls have as many queries as keys; others would need another graph. cuDNN 9.19 plans the graph for an
 * H200 with engines 1 and 2, for packed and unpacked operands.
 *
 * The gradient is left to our kernel: cuDNN does not document that its own adds to dq in a fixed order, and 9.19 fails
 * to compile the graph with a workspace quadratic in the number of tokens, with which its frontend makes results
 * deterministic. */
#include "kernels/cuda/attention_dnn.h"

#include "ir/base/text_buffer.h"
#include "kernels/attention.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/inner.h"
#include "kernels/cuda/tune.h"
#include "kernels/walk.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, Y, N_VIEWS, STATISTIC = N_VIEWS, N_TENSORS }; /* numbered by their UID - 1 */
enum { UID_SCALE = N_TENSORS + 1, UID_MINUS_INFINITY, UID_VALUES };
enum { AXES = 4, ROWS = 2, COLUMNS = 3 }; /* batch, heads, rows, columns */
enum { VECTOR = 8, MAX_COLUMNS = 256, ADDRESS = 16, MIN_SCORES = 1 << 17, MAX_KEY = 512 };
enum { OWN, CUDNN, N_WAYS };

typedef struct attention_graph {
    const dnn_plan *plan;
    cuda_inner pair; /* makes lse of the statistic */
    size_t rest_at;  /* offset of the workspace that the plan and `pair` share; the statistic is at 0 */
} attention_graph;

static void release(void *state)
{
    attention_graph *s = state;
    if (!s) return;
    cuda_inner_release(&s->pair);
    free(s);
}

/* ---- what is supported ----------------------------------------------------------------------- */

static void find_views(const k_args *args, const k_view *found[N_VIEWS])
{
    found[Q] = &args->in[IR_IN(attention, q)];
    found[K] = &args->in[IR_IN(attention, k)];
    found[V] = &args->in[IR_IN(attention, v)];
    found[Y] = &args->out[IR_OUT(attention, y)];
}

/* The layout of a view of up to 4 dimensions; missing ones have size 1. */
static dnn_layout layout_of(const k_view *v)
{
    dnn_layout l = {.rank = AXES};
    int64_t strides[IR_MAX_RANK];
    k_strides(v, strides);
    for (int i = AXES - 1, at = v->rank - 1; i >= 0; i--, at--) {
        l.dims[i] = at < 0 ? 1 : v->dims[at];
        l.strides[i] = at >= 0 ? strides[at] : l.dims[i + 1] * l.strides[i + 1];
    }
    return l;
}

static dnn_layout crossed(dnn_layout l)
{
    const int64_t rows = l.dims[ROWS], row = l.strides[ROWS];
    l.dims[ROWS] = l.dims[COLUMNS];
    l.strides[ROWS] = l.strides[COLUMNS];
    l.dims[COLUMNS] = rows;
    l.strides[COLUMNS] = row;
    return l;
}

static bool has_vectors(const dnn_layout *l)
{
    bool whole = l->strides[COLUMNS] == 1 && l->dims[COLUMNS] % VECTOR == 0 && l->dims[COLUMNS] <= MAX_COLUMNS;
    for (int i = 0; i < COLUMNS; i++) whole = whole && l->strides[i] % VECTOR == 0;
    return whole;
}

static const k_view *lse_of(const k_args *args)
{
    const int at = IR_OUT(attention, lse);
    return at < args->n_out && cuda_is_used(&args->out[at]) ? &args->out[at] : NULL;
}

static bool is_supported(const k_args *args)
{
    const int mask = IR_IN(attention, mask);
    const k_view *views[N_VIEWS], *lse = lse_of(args);
    dnn_layout l[N_VIEWS];
    find_views(args, views);
    const ir_dtype t = views[Q]->dtype;
    if ((t != IR_f16 && t != IR_bf16) || (lse && lse->strides)) return false;
    if (k_present(&args->in[mask]) || attention_rng(args)) return false;
    for (int i = 0; i < N_VIEWS; i++) {
        if (views[i]->rank > AXES || views[i]->rank != views[Q]->rank || views[i]->dtype != t) return false;
        l[i] = layout_of(views[i]);
        if (!has_vectors(&l[i]) || k_count(views[i]) == 0 || l[i].dims[0] != l[Q].dims[0]) return false;
    }
    const int64_t queries = l[Q].dims[ROWS], keys = l[K].dims[ROWS];
    return l[Q].dims[0] * l[Q].dims[1] * queries * keys >= MIN_SCORES &&
           (queries == keys || !args->attr[IR_ATTR(attention, causal)].i);
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct builder {
    dnn_graph g;
    int64_t uid; /* of the next value */
    dnn_layout scores, rows;
} builder;

static dnn_layout dense_layout(int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
    return (dnn_layout){.rank = AXES,
                        .dims = {batch, heads, rows, columns},
                        .strides = {heads * rows * columns, rows * columns, columns, 1}};
}

static dnn_descriptor value(builder *b, ir_dtype t, const dnn_layout *l)
{
    return dnn_intermediate(&b->g, b->uid++, t, l);
}

static dnn_descriptor combine(builder *b, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor y,
                              const dnn_layout *l)
{
    const dnn_descriptor out = value(b, IR_f32, l);
    dnn_append_pointwise(&b->g, mode, x, y, out);
    return out;
}

static dnn_descriptor reduce(builder *b, cudnnReduceTensorOp_t operator, dnn_descriptor x)
{
    const dnn_descriptor out = value(b, IR_f32, &b->rows);
    dnn_append_reduction(&b->g, operator, x, out);
    return out;
}

/* Replaces the scores of keys after the query. */
static dnn_descriptor hide_later_keys(builder *b, dnn_descriptor scores)
{
    const dnn_descriptor hidden = dnn_scalar(&b->g, UID_MINUS_INFINITY, AXES, -INFINITY),
                         query = value(b, IR_i32, &b->scores), key = value(b, IR_i32, &b->scores),
                         seen = value(b, IR_bool, &b->scores), out = value(b, IR_f32, &b->scores);
    dnn_append_index(&b->g, ROWS, scores, query);
    dnn_append_index(&b->g, COLUMNS, scores, key);
    dnn_append_pointwise(&b->g, CUDNN_POINTWISE_CMP_GE, query, key, seen);
    dnn_append_select(&b->g, scores, hidden, seen, out);
    return out;
}

static ampc_status plan_graph(const k_args *args, const char *key, const dnn_plan **plan)
{
    builder b = {.g = dnn_begin(args->ctx), .uid = UID_VALUES};
    const k_view *views[N_VIEWS];
    dnn_descriptor d[N_VIEWS];
    find_views(args, views);
    const dnn_layout q = layout_of(views[Q]), k = layout_of(views[K]);
    b.g.alignment = ADDRESS;
    b.scores = dense_layout(q.dims[0], q.dims[1], q.dims[ROWS], k.dims[ROWS]);
    b.rows = dense_layout(q.dims[0], q.dims[1], q.dims[ROWS], 1);
    for (int i = 0; i < N_VIEWS; i++) {
        const dnn_layout l = layout_of(views[i]), seen = i == K ? crossed(l) : l;
        d[i] = dnn_tensor(&b.g, i + 1, views[i]->dtype, &seen);
    }
    const dnn_descriptor statistic = dnn_tensor(&b.g, STATISTIC + 1, IR_f32, &b.rows),
                         scale = dnn_scalar(&b.g, UID_SCALE, AXES, (float)args->attr[IR_ATTR(attention, scale)].f),
                         product = value(&b, IR_f32, &b.scores);
    dnn_append_matmul(&b.g, d[Q], d[K], product);
    dnn_descriptor scores = combine(&b, CUDNN_POINTWISE_MUL, product, scale, &b.scores);
    if (args->attr[IR_ATTR(attention, causal)].i) scores = hide_later_keys(&b, scores);
    const dnn_descriptor most = reduce(&b, CUDNN_REDUCE_TENSOR_MAX, scores),
                         less = combine(&b, CUDNN_POINTWISE_SUB, scores, most, &b.scores),
                         e = combine(&b, CUDNN_POINTWISE_EXP, less, NULL, &b.scores),
                         sum = reduce(&b, CUDNN_REDUCE_TENSOR_ADD, e),
                         log = combine(&b, CUDNN_POINTWISE_LOG, sum, NULL, &b.rows),
                         p = value(&b, views[Q]->dtype, &b.scores);
    dnn_append_pointwise(&b.g, CUDNN_POINTWISE_ADD, most, log, statistic);
    dnn_append_pointwise(&b.g, CUDNN_POINTWISE_DIV, e, sum, p);
    dnn_append_matmul(&b.g, p, d[V], d[Y]);
    return dnn_plan_of(&b.g, key, plan);
}

/* ---- preparing and running ------------------------------------------------------------------- */

static void write_key(const k_args *args, char *out)
{
    text_buffer t = text_in(out, MAX_KEY);
    const k_view *views[N_VIEWS];
    find_views(args, views);
    text_add(&t, "attention %s %.9g%s", ir_dtype_name(views[Q]->dtype), args->attr[IR_ATTR(attention, scale)].f,
             args->attr[IR_ATTR(attention, causal)].i ? " causal" : "");
    for (int i = 0; i < N_VIEWS; i++) {
        const dnn_layout l = layout_of(views[i]);
        for (int k = 0; k < AXES; k++) text_add(&t, "%c%" PRId64 "/%" PRId64, k ? 'x' : ' ', l.dims[k], l.strides[k]);
    }
    if (args->ctx->candidate) text_add(&t, " candidate %d", args->ctx->candidate);
}

/* lse is the statistic, padded with a column of zeros. */
static ampc_status prepare_pair(const k_args *args, attention_graph *s, int64_t rows)
{
    static const int64_t none[] = {0, 0}, one_column[] = {0, 1};
    if (!lse_of(args)) return AMPC_OK;
    s->pair = (cuda_inner){.op = IR_OP_pad,
                           .kernel = &cuda_pad,
                           .in = {.dtype = IR_f32, .rank = 2, .dims = {rows, 1}},
                           .out = {.dtype = IR_f32, .rank = 2, .dims = {rows, 2}}};
    s->pair.attr[IR_ATTR(pad, before)].list.items = none;
    s->pair.attr[IR_ATTR(pad, after)].list.items = one_column;
    s->pair.attr[IR_ATTR(pad, before)].list.count = s->pair.attr[IR_ATTR(pad, after)].list.count = 2;
    s->pair.attr[IR_ATTR(pad, mode)].i = IR_WORD(pad, constant);
    return cuda_inner_prepare(args, &s->pair);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    char key[MAX_KEY];
    if (!is_supported(args)) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "cuDNN does not support this attention");
    CUDA_FORWARD(cuda_open_optional_dnn(args->ctx));
    CUDA_FORWARD(cuda_new_state(args, sizeof(attention_graph), state));
    attention_graph *s = *state;
    const dnn_layout q = layout_of(&args->in[IR_IN(attention, q)]);
    const int64_t rows = q.dims[0] * q.dims[1] * q.dims[ROWS];
    write_key(args, key);
    s->plan = dnn_plan_find(args->ctx, key);
    if (!s->plan) CUDA_FORWARD(plan_graph(args, key, &s->plan));
    CUDA_FORWARD(prepare_pair(args, s, rows));
    s->rest_at = cuda_aligned((size_t)rows * sizeof(float));
    const size_t plan = dnn_plan_workspace(s->plan), rest = s->pair.workspace;
    *workspace = s->rest_at + (plan > rest ? plan : rest);
    return AMPC_OK;
}

static ampc_status run(const k_args *args)
{
    const attention_graph *s = args->state;
    const k_view *views[N_VIEWS], *lse = lse_of(args);
    char *workspace = args->workspace;
    int64_t uids[N_TENSORS] = {[STATISTIC] = STATISTIC + 1};
    void *data[N_TENSORS] = {[STATISTIC] = workspace};
    find_views(args, views);
    for (int i = 0; i < N_VIEWS; i++) {
        uids[i] = i + 1;
        data[i] = views[i]->data;
        if ((uintptr_t)data[i] % ADDRESS) return AMPC_UNSUPPORTED;
    }
    CUDA_FORWARD(dnn_run(args->ctx, s->plan, N_TENSORS, uids, data, workspace + s->rest_at));
    return lse ? cuda_inner_run(args, &s->pair, workspace, lse->data, workspace + s->rest_at) : AMPC_OK;
}

const k_kernel cuda_attention_dnn = {.prepare = prepare, .run = run, .release = release};

/* ---- the race -------------------------------------------------------------------------------- */

typedef struct contest {
    k_args args;
    ampc_status (*run[N_WAYS])(const k_args *args);
    void *states[N_WAYS];
    k_view in[IR_IN(attention, mask) + 1], out[IR_OUT(attention, lse) + 1];
} contest;

static ampc_status contest_run(void *user, int way)
{
    contest *c = user;
    c->args.state = c->states[way];
    return c->run[way](&c->args);
}

/* Replaces the data of n views, up to the last element of each, by buffers. */
static ampc_status contest_views(const k_args *args, k_view *to, const k_view *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = (k_view){.dtype = IR_NO_DTYPE};
    for (int i = 0; i < n; i++) {
        if (!cuda_is_used(&from[i])) continue;
        const dnn_layout l = layout_of(&from[i]);
        int64_t last = 0;
        for (int k = 0; k < AXES; k++) last += (l.dims[k] - 1) * l.strides[k];
        to[i] = from[i];
        to[i].data = NULL;
        CUDA_FORWARD(cuda_tune_buffer(args->ctx, (size_t)(last + 1) * ir_dtype_size(from[i].dtype), &to[i].data));
    }
    return AMPC_OK;
}

static ampc_status race(const k_args *args, contest *c, const char *key, size_t workspace, int *best)
{
    static const int ways[N_WAYS] = {OWN, CUDNN};
    const int n_in = IR_IN(attention, mask) + 1, n_out = lse_of(args) ? IR_OUT(attention, lse) + 1 : 1;
    c->args = *args;
    c->args.in = c->in;
    c->args.out = c->out;
    c->args.n_in = n_in;
    c->args.n_out = n_out;
    c->args.workspace = NULL;
    ampc_status status = contest_views(args, c->in, args->in, n_in);
    if (status == AMPC_OK) status = contest_views(args, c->out, args->out, n_out);
    if (status == AMPC_OK) status = cuda_tune_buffer(args->ctx, workspace, &c->args.workspace);
    if (status == AMPC_OK) status = cuda_tune(args->ctx, CUDA_DNN, key, N_WAYS, ways, contest_run, c, best);
    for (int i = 0; i < n_in; i++) cuda_tune_free(c->in[i].data);
    for (int i = 0; i < n_out; i++) cuda_tune_free(c->out[i].data);
    cuda_tune_free(c->args.workspace);
    return status == AMPC_NO_MEMORY ? AMPC_OK : status;
}

/* Decides between the two ways, which are prepared. */
static ampc_status decide(const k_args *args, contest *c, size_t workspace, int *best)
{
    char key[MAX_KEY + 16];
    *best = CUDNN;
    if (args->ctx->candidate) return AMPC_OK; /* a configuration of cuDNN's */
    write_key(args, key);
    strcat(key, ", own or cuDNN");
    *best = cuda_tuned(args->ctx, CUDA_DNN, key);
    if (*best == OWN || *best == CUDNN) return AMPC_OK;
    *best = OWN;
    return race(args, c, key, workspace, best);
}

ampc_status cuda_attention_choose(const k_args *args, ampc_status (*own)(const k_args *args), void *state, void **graph,
                                  size_t *workspace)
{
    size_t needed = 0;
    int best = OWN;
    if ((!args->ctx->tune && !args->ctx->candidate) || !is_supported(args)) return AMPC_OK;
    ampc_status status = cuda_attention_dnn.prepare(args, graph, &needed);
    const size_t both = needed > *workspace ? needed : *workspace;
    contest c = {.run = {own, run}, .states = {state, *graph}};
    if (status == AMPC_OK) status = decide(args, &c, both, &best);
    if (status == AMPC_OK && best == CUDNN) *workspace = both;
    if (status == AMPC_OK && best == CUDNN) return AMPC_OK;
    cuda_attention_dnn.release(*graph);
    *graph = NULL;
    return status == AMPC_UNSUPPORTED ? AMPC_OK : status;
}
