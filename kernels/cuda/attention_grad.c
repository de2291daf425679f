/* attention_grad.c - launches of the gradient of attention. */
#include "kernels/cuda/attention_grad.h"
#include "kernels/cuda/cuda.h"

typedef struct gradient_state {
    cudaKernel_t delta, keys, queries;
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

static ampc_status attention_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    const attention_shape s = cuda_attention_shape(args);
    CUDA_FORWARD(cuda_new_state(args, sizeof(gradient_state), state));
    gradient_state *to = *state;
    *workspace = (size_t)(s.items * s.queries) * sizeof(float);
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_attention_grad, "attention_grad_delta", &to->delta));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_attention_grad, "attention_grad_keys", &to->keys));
    return cuda_find(args->ctx, CUDA_FAMILY_attention_grad, "attention_grad_queries", &to->queries);
}

static int64_t ceil_div(int64_t n, int64_t each) { return (n + each - 1) / each; }

static ampc_status attention_grad_run(const k_args *args)
{
    const gradient_state *state = args->state;
    attention_backward a = backward_of(args);
    const attention_shape *s = &a.shape;
    void *arguments[] = {&a};
    const int64_t rows = s->items * s->queries, columns = s->depth > s->width ? s->depth : s->width;
    const int64_t key_blocks = s->items / a.group * ceil_div(s->keys, GRAD_TILE) * ceil_div(columns, GRAD_COLUMNS),
                  query_blocks = s->items * ceil_div(s->queries, GRAD_TILE) * ceil_div(s->depth, GRAD_COLUMNS);
    CUDA_FORWARD(cuda_launch(args, state->delta, cuda_grid(args, rows, GRAD_BLOCK / 32), GRAD_BLOCK, 0, arguments));
    if (a.dk.data || a.dv.data) CUDA_FORWARD(cuda_launch(args, state->keys, key_blocks, GRAD_BLOCK, 0, arguments));
    if (!a.dq.data) return AMPC_OK;
    return cuda_launch(args, state->queries, query_blocks, GRAD_BLOCK, 0, arguments);
}

const k_kernel cuda_attention_grad = {
    .prepare = attention_grad_prepare, .run = attention_grad_run, .release = cuda_release};
