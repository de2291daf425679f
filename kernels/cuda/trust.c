/* trust.c - launches of the ratios of norms that scale the updates of LAMB and LARS. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/trust.h"
#include "kernels/update.h"

_Static_assert((int)TRUST_PARTS == (int)IR_NORM_PARTS, "as the op says");

static ampc_status trust_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return cuda_prepare_one(args, CUDA_FAMILY_trust, ir_op_get(args->op)->name, state);
}

static ampc_status norm_parts_all(const k_args *args, int n)
{
    const cuda_one *state = args->state;
    norm_table t = {.spans = n};
    for (int i = 0; i < n; i++)
        t.span[i] = (norm_span){.a = args[i].in[IR_IN(norm_parts, a)].data,
                                .b = args[i].in[IR_IN(norm_parts, b)].data,
                                .parts = args[i].out[0].data,
                                .count = k_count(&args[i].in[0]),
                                .length = k_norm_part_length(k_count(&args[i].in[0]))};
    return cuda_launch(args, state->kernel, cuda_blocks((int64_t)n * TRUST_PARTS, 1), TRUST_BLOCK, 0, (void *[]){&t});
}

static ampc_status trust_ratio_all(const k_args *args, int n)
{
    const cuda_one *state = args->state;
    const ir_attr *attr = args->attr;
    trust_table t = {.spans = n,
                     .coefficient = attr[IR_ATTR(trust_ratio, coefficient)].f,
                     .decay = attr[IR_ATTR(trust_ratio, weight_decay)].f,
                     .eps = attr[IR_ATTR(trust_ratio, eps)].f};
    for (int i = 0; i < n; i++) t.span[i] = (trust_span){.parts = args[i].in[0].data, .ratio = args[i].out[0].data};
    return cuda_launch(args, state->kernel, cuda_blocks(n, 1), TRUST_PARTS, 0, (void *[]){&t});
}

static ampc_status norm_parts_run(const k_args *args) { return norm_parts_all(args, 1); }
static ampc_status trust_ratio_run(const k_args *args) { return trust_ratio_all(args, 1); }

const k_kernel cuda_norm_parts = {.prepare = trust_prepare,
                                  .run = norm_parts_run,
                                  .release = cuda_release,
                                  .max_batch = TRUST_SPANS,
                                  .run_batch = norm_parts_all};
const k_kernel cuda_trust_ratio = {.prepare = trust_prepare,
                                   .run = trust_ratio_run,
                                   .release = cuda_release,
                                   .max_batch = TRUST_SPANS,
                                   .run_batch = trust_ratio_all};
