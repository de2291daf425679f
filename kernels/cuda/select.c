/* select.c - launches of arg_max and top_k. */
#include "kernels/cuda/select.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>

enum { SHORT_ROW = 1024 }; /* longest row that a warp processes */

static ampc_status select_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    char name[64];
    snprintf(name, sizeof name, "select_%s", cuda_carrier_name(args->in[0].dtype));
    return cuda_prepare_one(args, CUDA_FAMILY_select, name, state);
}

/* Completes r, which has the results and the order. */
static ampc_status launch(const k_args *args, int64_t axis, select_rows r)
{
    const cuda_one *state = args->state;
    const k_view *x = &args->in[0];
    r.rows = cuda_rows_of(x, axis);
    r.x = x->data;
    r.x_dtype = (int)x->dtype;
    r.lanes = r.rows.inner > 1 ? 1 : r.rows.length <= SHORT_ROW ? 32 : ROW_BLOCK;
    const int64_t rows = r.rows.outer * r.rows.inner;
    if (rows == 0 || r.rows.length == 0 || r.count == 0) return AMPC_OK;
    return cuda_launch(args, state->kernel, cuda_blocks(rows, ROW_BLOCK / r.lanes), ROW_BLOCK, 0, (void *[]){&r});
}

static ampc_status arg_max_run(const k_args *args)
{
    const bool largest = args->attr[IR_ATTR(arg_max, largest)].i, last = args->attr[IR_ATTR(arg_max, last)].i;
    return launch(args, args->attr[IR_ATTR(arg_max, axis)].i,
                  (select_rows){.indices = args->out[0].data,
                                .index_dtype = (int)args->out[0].dtype,
                                .count = 1,
                                .largest = largest,
                                .nan_first = true,
                                .last = last});
}

static ampc_status top_k_run(const k_args *args)
{
    const bool largest = args->attr[IR_ATTR(top_k, largest)].i;
    return launch(args, args->attr[IR_ATTR(top_k, axis)].i,
                  (select_rows){.values = args->out[0].data,
                                .indices = cuda_data(args->out, IR_OUT(top_k, indices), args->n_out),
                                .index_dtype = (int)args->out[1].dtype,
                                .count = args->attr[IR_ATTR(top_k, count)].list.items[0],
                                .largest = largest,
                                .nan_first = largest});
}

const k_kernel cuda_arg_max = {.prepare = select_prepare, .run = arg_max_run, .release = cuda_release};
const k_kernel cuda_top_k = {.prepare = select_prepare, .run = top_k_run, .release = cuda_release};
