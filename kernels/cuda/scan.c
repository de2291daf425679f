/* scan.c - launches of cum_sum. */
#include "kernels/cuda/scan.h"
#include "kernels/cuda/cuda.h"

static ampc_status cum_sum_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    const bool floats = ir_dtype_is_float(args->in[0].dtype);
    return cuda_prepare_one(args, CUDA_FAMILY_scan, floats ? "scan_float" : "scan_int64_t", state);
}

static ampc_status cum_sum_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_view *x = &args->in[0], *y = &args->out[0];
    scan_rows r = {.rows = cuda_rows_of(x, args->attr[IR_ATTR(cum_sum, axis)].i),
                   .x = x->data,
                   .y = y->data,
                   .x_dtype = (int)x->dtype,
                   .y_dtype = (int)y->dtype,
                   .exclusive = (int)args->attr[IR_ATTR(cum_sum, exclusive)].i,
                   .reverse = (int)args->attr[IR_ATTR(cum_sum, reverse)].i};
    r.lanes = r.rows.inner > 1 ? 1 : 32;
    if (k_count(x) == 0) return AMPC_OK;
    const int64_t blocks = cuda_blocks(r.rows.outer * r.rows.inner, ROW_BLOCK / r.lanes);
    return cuda_launch(args, state->kernel, blocks, ROW_BLOCK, 0, (void *[]){&r});
}

const k_kernel cuda_cum_sum = {.prepare = cum_sum_prepare, .run = cum_sum_run, .release = cuda_release};
