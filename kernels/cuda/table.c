/* table.c - the CUDA kernel of each op, from the kernel column of ir/ops/ops.def. */
#include "kernels/cuda/conv_race.h"

/* Ops without a kernel. */
const k_kernel cuda_none = {0};
const k_kernel cuda_view = {0};

/* Sizes that depend on data are only supported by the CPU, because the host would have to wait for them. */
const k_kernel cuda_nonzero = {0};
const k_kernel cuda_nms = {0};
const k_kernel cuda_unique = {0};
const k_kernel cuda_rank_part = {0};
const k_kernel cuda_reduce_scatter = {0};
const k_kernel cuda_all_gather = {0};

static const k_kernel *const kernels[IR_OP_COUNT] = {
#define OP(name, amp, traits, infer, fold, grad, kernel) [IR_OP_##name] = &cuda_##kernel,
#include "ir/ops/ops.def"
};

const k_kernel *cuda_kernel(ir_op op) { return kernels[op]->run ? kernels[op] : NULL; }

ampc_status cuda_supports_epilogue(const k_args *args)
{
    const bool races = ir_op_has(args->op, IR_SPATIAL) && args->ctx->tune && !args->ctx->candidate;
    if (!ir_op_has(args->op, IR_ABSORBS)) return AMPC_UNSUPPORTED;
    CUDA_FORWARD(k_prepares(kernels[args->op], args));
    return races ? cuda_race_statistics(args) : AMPC_OK;
}
