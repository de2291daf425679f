/* lower_nchwc.c - com.microsoft.nchwc: what onnxruntime's layout optimisation makes of convolutions and pools.
 *
 * There, channels come in blocks of 8 or 16, [N,C/block,H,W,block], and are padded to whole blocks. Here, such tensors
 * stay [N,C,H,W], with the padding: the operators between those that enter and leave the layout do not depend on it.
 * Only weights are in the order of the layout. They are, with o and i for the positions in a block of output and input
 * channels,
 *
 *     [O/block,I/block,H,W,i,o]   if a group has at least a block of input channels
 *     [O/block,I,H,W,o]           otherwise: depthwise, or the input is not in blocks
 *
 * The block depends on the processor for which the file was written, and the file does not name it. It follows from
 * the numbers of channels, unless all are multiples of 16; then it is that of this processor, as in onnxruntime. */
#include "frontend/lower/lower.h"

#include <string.h>

enum { SMALL = 8, LARGE = 16 };

static int64_t rounded_up(int64_t channels, int64_t block) { return (channels + block - 1) / block * block; }

/* ---- the size of a block ----------------------------------------------------------------------- */

static bool is_blocked_node(const Onnx__NodeProto *p) { return strcmp(p->domain, "com.microsoft.nchwc") == 0; }

static bool is_node(const Onnx__NodeProto *p, const char *op)
{
    return p && is_blocked_node(p) && strcmp(p->op_type, op) == 0;
}

typedef struct evidence {
    const Onnx__GraphProto *graph;
    strmap *nodes, *tensors; /* by the name of a result, of an initializer */
    bool small, large;       /* what only a file with such blocks has */
} evidence;

/* The node of the domain that made a value, perhaps before other operators changed its elements; NULL: none.
 * `same`: these do not add channels. */
static const Onnx__NodeProto *origin(const evidence *e, const char *name, bool same)
{
    const Onnx__NodeProto *p = strmap_get(e->nodes, name);
    for (size_t i = 0; p && !is_blocked_node(p) && i < e->graph->n_node; i++)
        p = p->n_input && !(same && strcmp(p->op_type, "Concat") == 0) ? strmap_get(e->nodes, p->input[0]) : NULL;
    return p && is_blocked_node(p) ? p : NULL;
}

/* The sizes of the weights of a convolution: output channels, input channels of a group. */
static const int64_t *weight_sizes(const evidence *e, const Onnx__NodeProto *p)
{
    const Onnx__TensorProto *w = p->n_input > 1 ? strmap_get(e->tensors, p->input[1]) : NULL;
    return w && w->n_dims == 4 ? w->dims : NULL;
}

static void weigh_convolution(evidence *e, const Onnx__NodeProto *p)
{
    const int64_t *w = weight_sizes(e, p);
    if (!w) return;
    const int64_t out = w[0], in = w[1];
    const Onnx__NodeProto *from = origin(e, p->input[0], false);
    const bool blocked = from && !is_node(from, "ReorderOutput");
    e->small |= out % LARGE != 0 || (in > LARGE && in % LARGE != 0) || (in == SMALL && blocked);
    e->large |= (in > SMALL && in < LARGE) || (in == SMALL && !blocked);
}

static void weigh_output(evidence *e, const Onnx__NodeProto *p)
{
    const Onnx__NodeProto *from = p->n_input ? origin(e, p->input[0], true) : NULL;
    const int64_t *w = is_node(from, "Conv") ? weight_sizes(e, from) : NULL;
    for (size_t i = 0; w && i < p->n_attribute; i++) {
        const int64_t channels = p->attribute[i]->i;
        if (strcmp(p->attribute[i]->name, "channels") != 0 || channels < 1 || channels > INT32_MAX) continue;
        e->small |= rounded_up(channels, LARGE) != w[0];
        e->large |= rounded_up(channels, SMALL) != w[0];
    }
}

static void weigh_graph(onnx_importer *im, const Onnx__GraphProto *g, evidence *e)
{
    e->graph = g;
    e->nodes = strmap_new_borrowing(im->scratch);
    e->tensors = strmap_new_borrowing(im->scratch);
    for (size_t i = 0; i < g->n_initializer; i++) strmap_put(e->tensors, g->initializer[i]->name, g->initializer[i]);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++) strmap_put(e->nodes, g->node[i]->output[k], g->node[i]);
    for (size_t i = 0; i < g->n_node; i++) {
        if (is_node(g->node[i], "Conv")) weigh_convolution(e, g->node[i]);
        if (is_node(g->node[i], "ReorderOutput")) weigh_output(e, g->node[i]);
    }
}

/* As onnxruntime has it. */
static int processor_block(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_supports("avx512f") ? LARGE : SMALL;
#else
    return LARGE;
#endif
}

static int block_of(onnx_node *n)
{
    onnx_importer *im = n->importer;
    if (im->channel_block) return im->channel_block;
    evidence e = {0};
    weigh_graph(im, im->file->model->graph, &e);
    if (n->scope->graph != im->file->model->graph) weigh_graph(im, n->scope->graph, &e);
    if (e.small && e.large) onnx_reject(n, "the numbers of channels fit neither blocks of 8 nor of 16 channels");
    im->channel_block = e.small ? SMALL : e.large ? LARGE : processor_block();
    if (!e.small && !e.large)
        diag_warning(im->diag, (diag_loc){.file = im->path},
                     "the file does not tell whether its blocks have 8 or 16 channels: %d are assumed, as on this "
                     "processor",
                     im->channel_block);
    return im->channel_block;
}

/* ---- operators ----------------------------------------------------------------------------------- */

/* The weights of a convolution [O,I,H,W], in the order of ONNX. */
static ir_value *unblocked(onnx_node *n, ir_value *w)
{
    static const int64_t both[] = {0, 5, 1, 4, 2, 3}, outer[] = {0, 4, 1, 2, 3};
    const ir_type *t = &w->type;
    if (t->rank != 4) {
        onnx_reject(n, "the weight has %d dimensions, not 4", t->rank);
        return NULL;
    }
    const int64_t block = block_of(n), out = onnx_size(n, t->dims[0], "the number of output channels"),
                  in = onnx_size(n, t->dims[1], "the number of input channels");
    const bool inner = in >= block;
    if (out % block || (inner && in % block))
        onnx_reject(n, "%lld and %lld channels are not whole blocks of %lld", (long long)out, (long long)in,
                    (long long)block);
    if (n->failed) return NULL;
    const ir_dim dims[] = {out / block, inner ? in / block : in, t->dims[2], t->dims[3], block, block};
    ir_value *parts = ir_reshape(n->b, w, dims, inner ? 6 : 5);
    return parts ? ir_reshape_like(n->b, ir_transpose(n->b, parts, inner ? both : outer), t) : NULL;
}

void onnx_lower_nchwc_conv(onnx_node *n)
{
    ir_value *own = n->in[1];
    n->in[1] = unblocked(n, own);
    if (n->in[1]) onnx_lower_fused_conv(n);
    n->in[1] = own;
}

/* Between [N,H,W,C] and [N,C,H,W]; v itself without the attribute channels_last. */
static ir_value *turned(onnx_node *n, ir_value *v, const int64_t *perm)
{
    const bool last = onnx_bool(n, "channels_last", false);
    if (v && v->type.rank != 4) onnx_reject(n, "the input has %d dimensions, not 4", v->type.rank);
    if (n->failed || !v) return NULL;
    return last ? ir_transpose(n->b, v, perm) : v;
}

/* Pads the channels. */
void onnx_lower_nchwc_reorder_input(onnx_node *n)
{
    ir_value *x = turned(n, n->in[0], (const int64_t[]){0, 3, 1, 2});
    if (!x) return;
    const int64_t channels = onnx_size(n, x->type.dims[1], "the number of channels"),
                  after[4] = {0, rounded_up(channels, block_of(n)) - channels}, before[4] = {0};
    n->out[0] = x;
    if (n->failed || !after[1]) return;
    ir_node *pad = ir_new(n->b, IR_OP_pad, 2, x, NULL);
    ir_set_list(pad, IR_ATTR(pad, before), before, 4);
    ir_set_list(pad, IR_ATTR(pad, after), after, 4);
    n->out[0] = ir_done(n->b, pad);
}

void onnx_lower_nchwc_reorder_output(onnx_node *n)
{
    ir_value *x = n->in[0];
    if (x->type.rank != 4) onnx_reject(n, "the input has %d dimensions, not 4", x->type.rank);
    if (n->failed) return;
    const int64_t all = onnx_size(n, x->type.dims[1], "the number of channels"), channels = onnx_int(n, "channels", 0);
    if (channels < 1 || channels > all)
        onnx_reject(n, "channels is %lld, but the input has %lld", (long long)channels, (long long)all);
    if (n->failed) return;
    n->out[0] = turned(n, onnx_slice_axis(n, x, 1, 0, channels), (const int64_t[]){0, 2, 3, 1});
}
