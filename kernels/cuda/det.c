/* det.c - launches of det and its gradient. */
#include "kernels/cuda/det.h"
#include "kernels/cuda/cuda.h"

static det_batch batch_of(const k_args *args)
{
    const bool back = args->op == IR_OP_det_grad;
    const k_view *x = &args->in[back ? IR_IN(det_grad, x) : 0];
    det_batch b = {.dy = back ? args->in[0].data : NULL,
                   .x = x->data,
                   .y = args->out[0].data,
                   .space = args->workspace,
                   .count = 1,
                   .size = x->dims[x->rank - 1],
                   .dtype = (int)x->dtype};
    for (int i = 0; i < x->rank - 2; i++) b.count *= x->dims[i];
    b.each = back ? b.size * (2 * b.size + 3) : b.size * b.size;
    return b;
}

static ampc_status det_prepare(const k_args *args, void **state, size_t *workspace)
{
    const det_batch b = batch_of(args);
    *workspace = (size_t)(b.count * b.each) * sizeof(double);
    return cuda_prepare_one(args, CUDA_FAMILY_det, ir_op_get(args->op)->name, state);
}

static ampc_status det_run(const k_args *args)
{
    const cuda_one *state = args->state;
    det_batch b = batch_of(args);
    if (b.count == 0) return AMPC_OK;
    return cuda_launch(args, state->kernel, cuda_blocks(b.count, DET_BLOCK), DET_BLOCK, 0, (void *[]){&b});
}

const k_kernel cuda_det = {.prepare = det_prepare, .run = det_run, .release = cuda_release};
const k_kernel cuda_det_grad = {.prepare = det_prepare, .run = det_run, .release = cuda_release};
