/* dropout.c - launches of dropout and its gradient. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dropout.h"

static ampc_status dropout_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return cuda_prepare_one(args, CUDA_FAMILY_dropout, ir_op_get(args->op)->name, state);
}

static ampc_status launch(const k_args *args, int64_t count, void *arguments)
{
    const cuda_one *state = args->state;
    return cuda_launch(args, state->kernel, cuda_grid(args, count, DROPOUT_BLOCK * CUDA_TILE), DROPOUT_BLOCK, 0,
                       (void *[]){arguments});
}

static ampc_status dropout_run(const k_args *args)
{
    const k_view *x = &args->in[IR_IN(dropout, x)], *rng = &args->in[IR_IN(dropout, rng)];
    const double ratio = args->attr[IR_ATTR(dropout, ratio)].f;
    dropout_draw a = {.x = x->data,
                      .rng = rng->data,
                      .y = cuda_data(args->out, IR_OUT(dropout, y), args->n_out),
                      .mask = cuda_data(args->out, IR_OUT(dropout, mask), args->n_out),
                      .count = k_count(x),
                      .dtype = (int)x->dtype,
                      .rng_dtype = (int)rng->dtype,
                      .stream = (unsigned long long)args->attr[IR_ATTR(dropout, stream)].i + 1,
                      .threshold = (unsigned long long)(ratio * 0x1p32),
                      .scale = (float)(1 / (1 - ratio))};
    return launch(args, a.count, &a);
}

static ampc_status dropout_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[IR_IN(dropout_grad, dy)];
    dropout_apply a = {.dy = dy->data,
                       .mask = args->in[IR_IN(dropout_grad, mask)].data,
                       .dx = args->out[0].data,
                       .count = k_count(dy),
                       .dtype = (int)dy->dtype,
                       .scale = (float)(1 / (1 - args->attr[IR_ATTR(dropout_grad, ratio)].f))};
    return launch(args, a.count, &a);
}

const k_kernel cuda_dropout = {.prepare = dropout_prepare, .run = dropout_run, .release = cuda_release};
const k_kernel cuda_dropout_grad = {.prepare = dropout_prepare, .run = dropout_grad_run, .release = cuda_release};
