/* conv.c - convolution and its two gradients as cuDNN graphs.
 *
 * The graph consists of the convolution and, if needed, an f32 operation before the single rounding: adding the bias or
 * converting to a different result type. Strides express the layout. If cuDNN has no engine for the graph, operands and
 * results are converted to NCHW or to f32 in workspace; cuDNN always has an engine for f32 in NCHW. The bias gradient
 * is a separate sum.
 *
 * A convolution that also sums its result (kernels/statistics.h) has neither bias nor conversions. cuDNN 9.19 has
 * compiled engines for that on sm_90 in f16 and NHWC, if the numbers of channels are multiples of 8, for 1x1
 * convolutions too. It would have to compile all others, a second each, so they are refused. */
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/inner.h"
#include "kernels/statistics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { UID_X = 1, UID_W, UID_Y, UID_BIAS, UID_SUM, UID_TOTAL, UID_SQUARES, MAX_PARTS = 4, STATISTICS = 2 };

/* An operand or the result, with the conversions between view and graph: layout first, then type. */
typedef struct part {
    dnn_layout layout;
    ir_dtype dtype;        /* in the graph */
    cuda_inner turn, cast; /* conversions to the graph or, for the result, from it */
    size_t turned, casted; /* offsets in workspace, if there are conversions */
} part;

typedef struct conv_state {
    conv_kind kind;
    int n_fused;
    bool counts;           /* sums the result and its squares */
    part parts[MAX_PARTS]; /* x, w, y and, in the forward direction, the bias; in the order of their UIDs */
    const dnn_plan *plan;  /* NULL: nothing to sum, or only dbias is wanted */
    cuda_inner bias_sum;   /* computes dbias */
    cuda_fill fill;        /* computes the result if there is nothing to sum */
    size_t rest_at;        /* offset of the workspace shared by the plan and the conversions */
} conv_state;

static void release_parts(conv_state *s)
{
    for (int i = 0; i < MAX_PARTS; i++) {
        cuda_inner_release(&s->parts[i].turn);
        cuda_inner_release(&s->parts[i].cast);
    }
}

static void release(void *state)
{
    conv_state *s = state;
    if (!s) return;
    release_parts(s);
    cuda_inner_release(&s->bias_sum);
    cuda_fill_release(&s->fill);
    free(s);
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Returns the layout of a view for cuDNN. For a 1-d convolution, inserts a spatial axis of size 1 before the other. */
static dnn_layout layout_of(const k_view *v)
{
    dnn_layout l = {.rank = v->rank < 4 ? 4 : v->rank};
    int64_t stride = 1;
    for (int i = 0; i < l.rank; i++) l.dims[i] = 1;
    for (int i = 0; i < v->rank; i++) l.dims[v->rank == 3 && i == 2 ? 3 : i] = v->dims[i];
    for (int i = l.rank - 1; i >= 0; i--) { /* from the innermost axis to the outermost */
        const int axis = !v->channels_last || i == 0 ? i : i == l.rank - 1 ? 1 : i + 1;
        l.strides[axis] = stride;
        stride *= l.dims[axis];
    }
    return l;
}

/* [1, C, 1, 1]: a bias that broadcasts to a result of `rank` axes. */
static dnn_layout bias_layout(int64_t channels, int rank)
{
    dnn_layout l = {.rank = rank};
    for (int i = 0; i < rank; i++) l.dims[i] = l.strides[i] = 1;
    l.dims[1] = l.strides[0] = channels;
    return l;
}

/* Index of the result among x, w, y. */
static int result_of(conv_kind kind)
{
    return kind == CONV_FORWARD ? UID_Y - 1 : kind == CONV_GRAD_INPUT ? UID_X - 1 : UID_W - 1;
}

/* ---- engines that are wrong ------------------------------------------------------------------ */

static bool pads_differ(const conv_state *s, const conv_geometry *c)
{
    (void)s;
    for (int i = 0; i < c->spatial; i++)
        if (c->before[i] != c->after[i]) return true;
    return false;
}

static bool channels_need_padding(const conv_state *s, const conv_geometry *c)
{
    (void)s;
    return c->c % 8 || c->m % 8;
}

static bool reads_bf16(const conv_state *s, const conv_geometry *c)
{
    (void)c;
    return s->parts[UID_X - 1].dtype == IR_bf16;
}

static bool reads_f16(const conv_state *s, const conv_geometry *c)
{
    (void)c;
    return s->parts[UID_X - 1].dtype == IR_f16;
}

/* Engines of cuDNN 9.19 that accept a graph and compute wrong values on an H200, found there by running candidates
 * for rows of tests/ops/test_ops_conv.c, as `every_engine` does, and by the goldens: engine 2 is the only candidate
 * for the weights whose gradients were wrong. */
static const struct wrong_engine {
    conv_kind kind;
    int64_t engine;
    bool (*is_wrong)(const conv_state *s, const conv_geometry *c);
} wrong_engines[] = {
    {CONV_GRAD_WEIGHT, 1, pads_differ},           /* off by up to 8,000 tolerances, or NaN */
    {CONV_GRAD_WEIGHT, 2, channels_need_padding}, /* compiled for an f32 result of f16 or bf16, channels last */
    {CONV_GRAD_WEIGHT, 47, reads_bf16},           /* off by up to 5 tolerances, as if partial sums were rounded */
    {CONV_GRAD_WEIGHT, 61, reads_f16},            /* off by up to 10 tolerances, likewise */
};

static void refuse_wrong_engines(dnn_graph *g, const conv_state *s, const conv_geometry *c)
{
    for (size_t i = 0; i < sizeof wrong_engines / sizeof *wrong_engines; i++)
        if (wrong_engines[i].kind == s->kind && wrong_engines[i].is_wrong(s, c)) dnn_refuse(g, wrong_engines[i].engine);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Sums the result per channel. Engines that compile their kernel are excluded. */
static void append_statistics(dnn_graph *g, dnn_descriptor y, const dnn_layout *layout)
{
    const dnn_layout channels = bias_layout(layout->dims[1], layout->rank);
    dnn_descriptor sum = dnn_tensor(g, UID_TOTAL, IR_f32, &channels),
                   squares = dnn_tensor(g, UID_SQUARES, IR_f32, &channels);
    g->precompiled = true;
    dnn_append_statistics(g, y, sum, squares);
}

static ampc_status plan_graph(const k_args *args, conv_state *s, const conv_geometry *c, const char *key)
{
    dnn_graph g = dnn_begin(args->ctx);
    const int result = result_of(s->kind);
    const ir_dtype read = s->parts[result == 0 ? 1 : 0].dtype;
    const bool has_bias = s->n_fused == MAX_PARTS, changes = has_bias || s->parts[result].dtype != read;
    dnn_descriptor d[MAX_PARTS] = {NULL}, sum = NULL;
    g.exact = read == IR_f32;
    refuse_wrong_engines(&g, s, c);
    for (int i = 0; i < s->n_fused; i++) d[i] = dnn_tensor(&g, i + 1, s->parts[i].dtype, &s->parts[i].layout);
    dnn_descriptor xwy[] = {d[0], d[1], d[2]};
    if (changes) xwy[result] = sum = dnn_intermediate(&g, UID_SUM, IR_f32, &s->parts[result].layout);
    dnn_append_convolution(&g, s->kind, c, xwy);
    if (s->counts) append_statistics(&g, d[UID_Y - 1], &s->parts[UID_Y - 1].layout);
    if (has_bias) dnn_append_pointwise(&g, CUDNN_POINTWISE_ADD, sum, d[UID_BIAS - 1], d[result]);
    else if (changes) dnn_append_pointwise(&g, CUDNN_POINTWISE_IDENTITY, sum, NULL, d[result]);
    return dnn_plan_of(&g, key, &s->plan);
}

static void write_list(FILE *out, const char *name, int n, const int64_t *items)
{
    fprintf(out, " %s", name);
    for (int i = 0; i < n; i++) fprintf(out, "%s%" PRId64, i ? "x" : "", items[i]);
}

/* Returns a text with everything that the graph depends on, malloc'ed; NULL if out of memory. */
static char *make_key(const k_args *args, const conv_state *s, const conv_geometry *c)
{
    const struct {
        const char *name;
        const int64_t *items;
    } lists[] = {{"stride", c->stride}, {"dilation", c->dilation}, {"before", c->before}, {"after", c->after}};
    /* Whether a plan exists is asked before anything is timed. */
    static const char *const statistics[2][2] = {{"", ""}, {" and statistics, untuned", " and statistics"}};
    char *key = NULL;
    size_t bytes;
    FILE *out = open_memstream(&key, &bytes);
    if (!out) return NULL;
    fprintf(out, "%s%s g%" PRId64, ir_op_get(args->op)->name, statistics[s->counts][args->ctx->tune], c->groups);
    for (int i = 0; i < s->n_fused; i++) {
        const part *p = &s->parts[i];
        write_list(out, ir_dtype_name(p->dtype), p->layout.rank, p->layout.dims);
        write_list(out, "/", p->layout.rank, p->layout.strides);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        write_list(out, lists[i].name, c->spatial, lists[i].items);
    if (args->ctx->candidate) fprintf(out, " candidate %d", args->ctx->candidate);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed) return key;
    free(key);
    return NULL;
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Conversions before the graph: layout, type. */
typedef struct way {
    bool turns, casts;
} way;

static ampc_status find_plan(const k_args *args, conv_state *s, const conv *c)
{
    char *key = make_key(args, s, &c->g);
    if (!key) return cuda_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    s->plan = dnn_plan_find(args->ctx, key);
    const ampc_status status = s->plan ? AMPC_OK : plan_graph(args, s, &c->g, key);
    free(key);
    return status;
}

/* Reserves workspace for the result of a conversion, if there is one. */
static void place(conv_state *s, const cuda_inner *step, size_t bytes, size_t *at, size_t *inner)
{
    if (!step->kernel) return;
    *at = s->rest_at;
    s->rest_at += cuda_aligned(bytes);
    if (step->workspace > *inner) *inner = step->workspace;
}

static ampc_status prepare_turn(const k_args *args, const k_view *v, bool result, cuda_inner *turn)
{
    static const int64_t to_first[][DNN_MAX_AXES] = {{0, 2, 1}, {0, 3, 1, 2}, {0, 4, 1, 2, 3}};
    static const int64_t to_last[][DNN_MAX_AXES] = {{0, 2, 1}, {0, 2, 3, 1}, {0, 2, 3, 4, 1}};
    k_view first = *v, last = cuda_dense(v);
    if (!v->channels_last) return AMPC_OK;
    first.channels_last = false;
    *turn = (cuda_inner){
        .op = IR_OP_transpose, .kernel = &cuda_transpose, .in = result ? first : last, .out = result ? last : first};
    turn->attr[IR_ATTR(transpose, perm)].list.items = result ? to_last[v->rank - 3] : to_first[v->rank - 3];
    turn->attr[IR_ATTR(transpose, perm)].list.count = v->rank;
    return cuda_inner_prepare(args, turn);
}

static ampc_status prepare_part(const k_args *args, conv_state *s, const k_view *v, int i, way w, size_t *inner)
{
    part *p = &s->parts[i];
    const bool result = i == result_of(s->kind);
    const int64_t count = k_count(v);
    k_view seen = *v;
    if (w.turns) {
        CUDA_FORWARD(prepare_turn(args, v, result, &p->turn));
        place(s, &p->turn, k_bytes(v), &p->turned, inner);
        seen.channels_last = false;
    }
    p->dtype = w.casts ? IR_f32 : v->dtype;
    CUDA_FORWARD(cuda_inner_cast(args, count, result ? p->dtype : v->dtype, result ? v->dtype : p->dtype, &p->cast));
    place(s, &p->cast, (size_t)count * ir_dtype_size(p->dtype), &p->casted, inner);
    p->layout = i == UID_BIAS - 1 ? bias_layout(count, s->parts[0].layout.rank) : layout_of(&seen);
    return AMPC_OK;
}

/* Prepares the parts with conversions w, replacing earlier ones; *inner: workspace of the conversions. */
static ampc_status set_parts(const k_args *args, conv_state *s, const conv *c, way w, size_t *inner)
{
    const k_view *views[MAX_PARTS] = {c->x, c->w, c->y, c->bias};
    release_parts(s);
    s->kind = c->kind;
    s->n_fused = c->kind == CONV_FORWARD && c->bias ? MAX_PARTS : MAX_PARTS - 1;
    s->rest_at = *inner = 0;
    for (int i = 0; i < s->n_fused; i++) CUDA_FORWARD(prepare_part(args, s, views[i], i, w, inner));
    return AMPC_OK;
}

/* Whether conversions w yield a graph that earlier ones do not. In NCHW no engine converts types, so that combination
 * is skipped. */
static bool way_serves(const conv *c, way w)
{
    const bool changes = c->x->dtype != c->w->dtype || c->w->dtype != c->y->dtype;
    const bool exact = c->x->dtype == IR_f32 && !changes && (!c->bias || c->bias->dtype == IR_f32);
    if (w.casts) return !exact && (!w.turns || c->x->channels_last);
    return !w.turns || (c->x->channels_last && !changes);
}

static ampc_status prepare_plan(const k_args *args, conv_state *s, const conv *c, size_t *rest)
{
    static const way ways[] = {{false, false}, {true, false}, {false, true}, {true, true}};
    const size_t n_ways = s->counts ? 1 : sizeof ways / sizeof *ways;
    ampc_status status = AMPC_UNSUPPORTED;
    for (size_t i = 0; i < n_ways && status == AMPC_UNSUPPORTED; i++) {
        if (!way_serves(c, ways[i])) continue;
        CUDA_FORWARD(set_parts(args, s, c, ways[i], rest));
        status = find_plan(args, s, c);
    }
    if (status == AMPC_OK && dnn_plan_workspace(s->plan) > *rest) *rest = dnn_plan_workspace(s->plan);
    return status;
}

static ampc_status prepare_bias_sum(const k_args *args, conv_state *s, const conv *c, size_t *rest)
{
    static const int64_t axes[2][DNN_MAX_AXES - 1] = {{0, 2, 3, 4}, {0, 1, 2, 3}}; /* all but the channels */
    s->bias_sum = (cuda_inner){
        .op = IR_OP_reduce_sum, .kernel = &cuda_reduce_sum, .in = cuda_dense(c->y), .out = *c->bias};
    s->bias_sum.attr[IR_ATTR(reduce_sum, axes)].list.items = axes[c->y->channels_last];
    s->bias_sum.attr[IR_ATTR(reduce_sum, axes)].list.count = c->y->rank - 1;
    s->bias_sum.attr[IR_ATTR(reduce_sum, out)].dtype = c->bias->dtype;
    CUDA_FORWARD(cuda_inner_prepare(args, &s->bias_sum));
    if (s->bias_sum.workspace > *rest) *rest = s->bias_sum.workspace;
    return AMPC_OK;
}

/* Whether the step sums its result; sets *counts. */
static ampc_status find_statistics(const k_args *args, const conv *c, bool *counts)
{
    const ir_dtype t = c->y->dtype;
    const bool low = (t == IR_f16 || t == IR_bf16) && c->x->dtype == t && c->w->dtype == t,
               sums = k_extra_out(args, K_SLOT(statistics, sum)),
               squares = k_extra_out(args, K_SLOT(statistics, squares));
    *counts = sums && squares;
    if (!args->fused && sums == squares && (!sums || (low && !c->bias && !conv_is_empty(c)))) return AMPC_OK;
    return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "unsupported epilogue");
}

static ampc_status prepare_state(const k_args *args, conv_state *s, size_t *workspace)
{
    const conv c = conv_of(args);
    const k_view *result = conv_result(&c);
    const k_view dense = cuda_dense(result);
    size_t rest = 0;
    CUDA_FORWARD(find_statistics(args, &c, &s->counts));
    if (conv_is_empty(&c))
        CUDA_FORWARD(cuda_fill_prepare(args, c.kind == CONV_FORWARD ? c.bias : NULL,
                                       result->channels_last ? 0 : c.g.spatial, &dense, &s->fill, &rest));
    else if (result->data) CUDA_FORWARD(prepare_plan(args, s, &c, &rest));
    if (c.kind == CONV_GRAD_WEIGHT && c.bias) CUDA_FORWARD(prepare_bias_sum(args, s, &c, &rest));
    *workspace = s->rest_at + rest;
    return AMPC_OK;
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(conv_state), state));
    return prepare_state(args, *state, workspace);
}

/* ---- running --------------------------------------------------------------------------------- */

/* The address of a part after layout conversion, and its address in the graph. */
static void *turned(const k_args *args, const part *p, const k_view *v)
{
    return p->turn.kernel ? (char *)args->workspace + p->turned : v->data;
}

static void *casted(const k_args *args, const part *p, const k_view *v)
{
    return p->cast.kernel ? (char *)args->workspace + p->casted : turned(args, p, v);
}

static ampc_status run_plan(const k_args *args, const conv_state *s, const conv *c)
{
    int64_t uids[MAX_PARTS + STATISTICS] = {UID_X, UID_W, UID_Y, UID_BIAS};
    const k_view *views[MAX_PARTS] = {c->x, c->w, c->y, c->bias};
    char *rest = (char *)args->workspace + s->rest_at;
    const int result = result_of(s->kind);
    const part *last = &s->parts[result];
    void *data[MAX_PARTS + STATISTICS];
    int n = s->n_fused;
    for (int i = 0; i < s->n_fused; i++) {
        const part *p = &s->parts[i];
        void *between = turned(args, p, views[i]);
        data[i] = casted(args, p, views[i]);
        if (i == result) continue;
        CUDA_FORWARD(cuda_inner_run(args, &p->turn, views[i]->data, between, rest));
        CUDA_FORWARD(cuda_inner_run(args, &p->cast, between, data[i], rest));
    }
    for (int i = 0; i < STATISTICS && s->counts; i++, n++) {
        uids[n] = UID_TOTAL + i;
        data[n] = k_extra_out(args, K_SLOT(statistics, sum) + i)->data;
    }
    CUDA_FORWARD(dnn_run(args->ctx, s->plan, n, uids, data, rest));
    void *between = turned(args, last, views[result]);
    CUDA_FORWARD(cuda_inner_run(args, &last->cast, data[result], between, rest));
    return cuda_inner_run(args, &last->turn, between, views[result]->data, rest);
}

static ampc_status run(const k_args *args)
{
    const conv_state *s = args->state;
    const conv c = conv_of(args);
    /* dbias: dy may have elements although x or w has none. */
    const bool wants_bias = c.kind == CONV_GRAD_WEIGHT && c.bias;
    if (s->plan) CUDA_FORWARD(run_plan(args, s, &c));
    else if (conv_is_empty(&c) && conv_result(&c)->data)
        CUDA_FORWARD(cuda_fill_run(args, &s->fill, c.bias, conv_result(&c)));
    return wants_bias
               ? cuda_inner_run(args, &s->bias_sum, c.y->data, c.bias->data, (char *)args->workspace + s->rest_at)
               : AMPC_OK;
}

const k_kernel cuda_conv = {.prepare = prepare, .run = run, .release = release};
const k_kernel cuda_conv_grad_input = {.prepare = prepare, .run = run, .release = release};
const k_kernel cuda_conv_grad_weight = {.prepare = prepare, .run = run, .release = release};
