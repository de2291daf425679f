/* softmax.c - launches of softmax, log_softmax and their gradients. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/softmax.h"

#include <stdio.h>

_Static_assert(IR_ATTR(softmax, axis) == 0 && IR_ATTR(softmax_grad, axis) == 0 && IR_ATTR(log_softmax, axis) == 0 &&
                   IR_ATTR(log_softmax_grad, axis) == 0,
               "one driver");

static ampc_status softmax_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    const cuda_rows rows = cuda_rows_of(&args->in[0], args->attr[0].i);
    char name[64];
    snprintf(name, sizeof name, "%s_%s", ir_op_get(args->op)->name, cuda_rows_kernel(&rows));
    return cuda_prepare_one(args, CUDA_FAMILY_softmax, name, state);
}

static ampc_status softmax_run(const k_args *args)
{
    const cuda_one *state = args->state;
    softmax_rows r = {.rows = cuda_rows_of(&args->in[0], args->attr[0].i),
                      .a = args->in[0].data,
                      .b = cuda_data(args->in, 1, args->n_in),
                      .y = args->out[0].data,
                      .in_dtype = (int)args->in[0].dtype,
                      .out_dtype = (int)args->out[0].dtype};
    return cuda_launch(args, state->kernel, cuda_rows_blocks(&r.rows), ROW_BLOCK, 0, (void *[]){&r});
}

#define KERNEL(op) const k_kernel cuda_##op = {.prepare = softmax_prepare, .run = softmax_run, .release = cuda_release};
KERNEL(softmax)
KERNEL(softmax_grad)
KERNEL(log_softmax)
KERNEL(log_softmax_grad)
