/* attention.c - launches of attention. */
#include "kernels/attention.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_dnn.h"
#include "kernels/cuda/cuda.h"
#include "kernels/walk.h"

#include <stdlib.h>

_Static_assert((int)ATTENTION_RANK == (int)IR_MAX_RANK - 2, "one limit");
_Static_assert(IR_IN(attention, q) == IR_IN(attention_grad, q) && IR_IN(attention, k) == IR_IN(attention_grad, k) &&
                   IR_IN(attention, v) == IR_IN(attention_grad, v) &&
                   IR_ATTR(attention, scale) == IR_ATTR(attention_grad, scale) &&
                   IR_ATTR(attention, causal) == IR_ATTR(attention_grad, causal) &&
                   IR_ATTR(attention, ratio) == IR_ATTR(attention_grad, ratio) &&
                   IR_ATTR(attention, stream) == IR_ATTR(attention_grad, stream),
               "one shape");

static attention_dropout dropout_of(const k_args *args)
{
    const k_view *rng = attention_rng(args);
    const double ratio = args->attr[IR_ATTR(attention, ratio)].f;
    if (!rng) return (attention_dropout){.rng = NULL, .scale = 1};
    return (attention_dropout){.rng = rng->data,
                               .dtype = (int)rng->dtype,
                               .stream = (unsigned long long)args->attr[IR_ATTR(attention, stream)].i + 1,
                               .threshold = (unsigned long long)(ratio * 0x1p32),
                               .scale = (float)(1 / (1 - ratio))};
}

attention_shape cuda_attention_shape(const k_args *args)
{
    const k_view *q = &args->in[IR_IN(attention, q)], *k = &args->in[IR_IN(attention, k)],
                 *v = &args->in[IR_IN(attention, v)];
    const int rank = q->rank - 2;
    attention_shape s = {.rank = rank,
                         .items = 1,
                         .queries = q->dims[rank],
                         .keys = k->dims[rank],
                         .depth = q->dims[rank + 1],
                         .width = v->dims[rank + 1],
                         .scale = (float)args->attr[IR_ATTR(attention, scale)].f,
                         .dropout = dropout_of(args)};
    for (int d = 0; d < rank; d++) s.items *= s.dims[d] = q->dims[d];
    s.last = args->attr[IR_ATTR(attention, causal)].i ? s.keys - s.queries : s.keys;
    return s;
}

attention_view cuda_attention_view(const k_args *args, const k_view *v)
{
    const k_view *q = &args->in[IR_IN(attention, q)];
    const int missing = q->rank - v->rank, heads = q->rank - 3 - missing;
    int64_t strides[IR_MAX_RANK], own[IR_MAX_RANK] = {0};
    attention_view to = {.dtype = (int)v->dtype, .group = 1};
    if (!k_present(v) || !v->data) return to;
    k_strides(v, strides);
    for (int d = 0; d < v->rank; d++) own[d + missing] = v->dims[d] == 1 ? 0 : strides[d];
    for (int d = 0; d < q->rank - 2; d++) to.item[d] = own[d];
    if (heads >= 0 && v->dims[heads]) to.group = q->dims[q->rank - 3] / v->dims[heads];
    to.data = v->data;
    to.row = own[q->rank - 2];
    to.column = own[q->rank - 1];
    return to;
}

/* How a call is computed. */
typedef struct state {
    cudaKernel_t kernel;
    int64_t blocks;
    void *graph; /* of cuda_attention_dnn, which won a race; NULL: the kernel */
} state;

static void release(void *data)
{
    state *s = data;
    if (s && s->graph) cuda_attention_dnn.release(s->graph);
    free(s);
}

/* The name of the kernel for tensor cores, whose sizes are padded; NULL: the types or sizes have none. */
static const char *low_kernel(ir_dtype t, const attention_shape *s)
{
    static const struct {
        int size;
        const char *f16, *bf16;
    } kernels[] = {{32, "attention_f16_32", "attention_bf16_32"},
                   {64, "attention_f16_64", "attention_bf16_64"},
                   {128, "attention_f16_128", "attention_bf16_128"},
                   {256, "attention_f16_256", "attention_bf16_256"}};
    if (t != IR_f16 && t != IR_bf16) return NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (s->depth <= kernels[i].size && s->width <= kernels[i].size)
            return t == IR_f16 ? kernels[i].f16 : kernels[i].bf16;
    return NULL;
}

static ampc_status run_kernel(const k_args *args)
{
    const state *s = args->state;
    const bool has_lse = IR_OUT(attention, lse) < args->n_out;
    attention_args a = {.shape = cuda_attention_shape(args),
                        .q = cuda_attention_view(args, &args->in[IR_IN(attention, q)]),
                        .k = cuda_attention_view(args, &args->in[IR_IN(attention, k)]),
                        .v = cuda_attention_view(args, &args->in[IR_IN(attention, v)]),
                        .mask = cuda_attention_view(args, &args->in[IR_IN(attention, mask)]),
                        .y = cuda_attention_view(args, &args->out[IR_OUT(attention, y)])};
    if (has_lse) a.lse = cuda_attention_view(args, &args->out[IR_OUT(attention, lse)]);
    return cuda_launch(args, s->kernel, s->blocks, ATTENTION_BLOCK, 0, (void *[]){&a});
}

static ampc_status prepare(const k_args *args, void **out, size_t *workspace)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(state), out));
    const attention_shape s = cuda_attention_shape(args);
    const char *low = low_kernel(args->in[IR_IN(attention, q)].dtype, &s);
    const int64_t each = low ? ATTENTION_QUERIES : PLAIN_QUERIES,
                  parts = s.width > PLAIN_WIDTH ? (s.width + PLAIN_WIDTH - 1) / PLAIN_WIDTH : 1;
    state *to = *out;
    to->blocks = (s.queries + each - 1) / each * s.items * parts;
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_attention, low ? low : "attention_plain", &to->kernel));
    return cuda_attention_choose(args, run_kernel, to, &to->graph, workspace);
}

/* cuDNN needs alignments that are known only now. */
static ampc_status run(const k_args *args)
{
    const state *s = args->state;
    k_args call = *args;
    call.state = s->graph;
    const ampc_status status = s->graph ? cuda_attention_dnn.run(&call) : AMPC_UNSUPPORTED;
    return status == AMPC_UNSUPPORTED ? run_kernel(args) : status;
}

const k_kernel cuda_attention = {.prepare = prepare, .run = run, .release = release};
