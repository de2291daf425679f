/* trust.c - launches of the ratios of norms that scale the updates of LAMB, LARS and Adafactor. */
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
    parts_table t = {.spans = n};
    for (int i = 0; i < n; i++)
        t.span[i] = (parts_span){.a = args[i].in[IR_IN(norm_parts, a)].data,
                                 .b = args[i].in[IR_IN(norm_parts, b)].data,
                                 .parts = args[i].out[0].data,
                                 .root = k_norm_root(&args[i]),
                                 .count = k_count(&args[i].in[0]),
                                 .length = k_norm_part_length(k_count(&args[i].in[0]))};
    return cuda_launch(args, state->kernel, cuda_blocks((int64_t)n * TRUST_PARTS, 1), TRUST_BLOCK, 0, (void *[]){&t});
}

/* Completes the table of n calls that have one result each, and launches their kernel. */
static ampc_status launch_ratios(const k_args *args, int n, trust_table *t)
{
    const cuda_one *state = args->state;
    t->spans = n;
    for (int i = 0; i < n; i++) t->span[i] = (trust_span){.parts = args[i].in[0].data, .ratio = args[i].out[0].data};
    return cuda_launch(args, state->kernel, cuda_blocks(n, 1), TRUST_PARTS, 0, (void *[]){t});
}

static ampc_status trust_ratio_all(const k_args *args, int n)
{
    const ir_attr *attr = args->attr;
    return launch_ratios(args, n,
                         &(trust_table){.coefficient = attr[IR_ATTR(trust_ratio, coefficient)].f,
                                        .decay = attr[IR_ATTR(trust_ratio, weight_decay)].f,
                                        .eps = attr[IR_ATTR(trust_ratio, eps)].f});
}

static ampc_status clipped_ratio_all(const k_args *args, int n)
{
    const ir_attr *attr = args->attr;
    return launch_ratios(
        args, n,
        &(trust_table){.least = attr[IR_ATTR(clipped_ratio, least)].f, .clip = attr[IR_ATTR(clipped_ratio, clip)].f});
}

#define TRUST_KERNEL(op) \
    static ampc_status op##_run(const k_args *args) { return op##_all(args, 1); } \
    const k_kernel cuda_##op = {.prepare = trust_prepare, \
                                .run = op##_run, \
                                .release = cuda_release, \
                                .max_batch = TRUST_SPANS, \
                                .run_batch = op##_all};
TRUST_KERNEL(norm_parts)
TRUST_KERNEL(trust_ratio)
TRUST_KERNEL(clipped_ratio)
