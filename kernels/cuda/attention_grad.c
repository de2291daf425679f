/* attention_grad.c - launches of the gradient of attention. */
#include "kernels/cuda/attention_grad.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>

typedef struct gradient_state {
    cudaKernel_t delta, keys, queries;
    int columns; /* of a gradient that a block computes */
    unsigned threads;
    int shared; /* bytes; 0: the kernels in f32 */
} gradient_state;

static attention_view result(const k_args *args, int i)
{
    const k_view none = {.dtype = IR_NO_DTYPE};
    return cuda_attention_view(args, i < args->n_out ? &args->out[i] : &none);
}

static attention_backward backward_of(const k_args *args)
{
    const k_view *q = &args->in[IR_IN(attention_grad, q)], *k = &args->in[IR_IN(attention_grad, k)];
    const int heads = q->rank - 3;
#define OPERAND(name) .name = cuda_attention_view(args, &args->in[IR_IN(attention_grad, name)])
#define RESULT(name) .name = result(args, IR_OUT(attention_grad, name))
    return (attention_backward){.shape = cuda_attention_shape(args),
                                OPERAND(q),
                                OPERAND(k),
                                OPERAND(v),
                                OPERAND(mask),
                                OPERAND(y),
                                OPERAND(dy),
                                OPERAND(lse),
                                RESULT(dq),
                                RESULT(dk),
                                RESULT(dv),
                                .group = heads >= 0 && k->dims[heads] ? q->dims[heads] / k->dims[heads] : 1,
                                .delta = args->workspace};
#undef OPERAND
#undef RESULT
}

/* Finds the kernel for one side, "keys" or "queries". */
static ampc_status find_side(const k_args *args, const gradient_state *s, const char *side, cudaKernel_t *out)
{
    const ir_dtype t = args->in[0].dtype;
    char name[64];
    snprintf(name, sizeof name, "attention_grad_%s", side);
    if (s->shared == 0) return cuda_find(args->ctx, CUDA_FAMILY_attention_grad, name, out);
    snprintf(name, sizeof name, "attention_grad_%s_%s_%d", side, t == IR_f16 ? "f16" : "bf16", s->columns);
    return cuda_find_large(args->ctx, CUDA_FAMILY_attention_grad, name, (size_t)s->shared, out);
}

static ampc_status attention_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    const attention_shape shape = cuda_attention_shape(args);
    const int64_t columns = shape.depth > shape.width ? shape.depth : shape.width;
    CUDA_FORWARD(cuda_new_state(args, sizeof(gradient_state), state));
    gradient_state *s = *state;
    *s = (gradient_state){.columns = GRAD_COLUMNS, .threads = GRAD_BLOCK};
    if (args->in[0].dtype != IR_f32 && columns <= GRAD_LOW_COLUMNS) {
        s->columns = columns <= GRAD_LOW_COLUMNS / 2 ? GRAD_LOW_COLUMNS / 2 : GRAD_LOW_COLUMNS;
        s->threads = GRAD_LOW_BLOCK;
        s->shared = GRAD_LOW_BYTES(s->columns);
    }
    *workspace = (size_t)(shape.items * shape.queries) * sizeof(float);
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_attention_grad, "attention_grad_delta", &s->delta));
    CUDA_FORWARD(find_side(args, s, "keys", &s->keys));
    return find_side(args, s, "queries", &s->queries);
}

static int64_t ceil_div(int64_t n, int64_t each) { return (n + each - 1) / each; }

static ampc_status attention_grad_run(const k_args *args)
{
    const gradient_state *state = args->state;
    attention_backward a = backward_of(args);
    const attention_shape *s = &a.shape;
    void *arguments[] = {&a};
    const int64_t rows = s->items * s->queries, columns = s->depth > s->width ? s->depth : s->width;
    const int64_t key_blocks = s->items / a.group * ceil_div(s->keys, GRAD_TILE) * ceil_div(columns, state->columns),
                  query_blocks = s->items * ceil_div(s->queries, GRAD_TILE) * ceil_div(s->depth, state->columns);
    CUDA_FORWARD(cuda_launch(args, state->delta, cuda_grid(args, rows, GRAD_BLOCK / 32), GRAD_BLOCK, 0, arguments));
    if (a.dk.data || a.dv.data)
        CUDA_FORWARD(cuda_launch(args, state->keys, key_blocks, state->threads, (size_t)state->shared, arguments));
    if (!a.dq.data) return AMPC_OK;
    return cuda_launch(args, state->queries, query_blocks, state->threads, (size_t)state->shared, arguments);
}

const k_kernel cuda_attention_grad = {
    .prepare = attention_grad_prepare, .run = attention_grad_run, .release = cuda_release};
