/* custom.c - custom operators on CUDA: their functions enqueue work on the stream of the session. */
#include "kernels/custom.h"
#include "kernels/cuda/cuda.h"

static ampc_forward *forward(const ampc_operator *table) { return table->forward_cuda; }
static ampc_forward *gradient(const ampc_operator *table) { return table->gradient_cuda; }

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    static const custom_device cuda_device = {"cuda", forward, gradient};
    CUDA_FORWARD(cuda_check_dtypes(args));
    return custom_prepare(args, &cuda_device, state, workspace);
}

static ampc_status run(const k_args *args) { return custom_run(args, cuda_of(args->ctx)->stream); }

const k_kernel cuda_custom = {.prepare = prepare, .run = run, .release = custom_release};
const k_kernel cuda_custom_grad = {.prepare = prepare, .run = run, .release = custom_release};
