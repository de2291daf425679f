/* table.c - the kernel of each op, from the kernel column of ops.def. A missing kernel is a link error that names
 * it. */
#include "kernels/cpu/cpu.h"

/* Ops without a kernel. */
const k_kernel cpu_none = {0};
const k_kernel cpu_view = {0};

static const k_kernel *const kernels[IR_OP_COUNT] = {
#define OP(name, amp, traits, infer, fold, grad, kernel) [IR_OP_##name] = &cpu_##kernel,
#include "ir/ops/ops.def"
};

const k_kernel *cpu_kernel(ir_op op) { return kernels[op]->run ? kernels[op] : NULL; }

ampc_status cpu_supports_epilogue(const k_args *args)
{
    return ir_op_has(args->op, IR_EPILOGUE) ? k_prepares(kernels[args->op], args) : AMPC_UNSUPPORTED;
}
