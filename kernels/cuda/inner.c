/* inner.c - calls the kernel of another op with different operands (see inner.h). */
#include "kernels/cuda/inner.h"

#include <assert.h>

/* A placeholder address, so that `prepare` treats views without memory yet as present. */
static void *const somewhere = (void *)CUDA_ALIGNMENT;

static k_args inner_args(const k_args *outer, const cuda_inner *part, k_view *in, k_view *out)
{
    *in = part->in;
    *out = part->out;
    return (k_args){.op = part->op,
                    .step = outer->step,
                    .in = in,
                    .out = out,
                    .n_in = 1,
                    .n_out = 1,
                    .attr = part->attr,
                    .state = part->state,
                    .ctx = outer->ctx};
}

k_view cuda_dense(const k_view *v)
{
    k_view dense = *v;
    if (!v->channels_last) return dense;
    for (int i = 1; i + 1 < v->rank; i++) dense.dims[i] = v->dims[i + 1];
    dense.dims[v->rank - 1] = v->dims[1];
    dense.channels_last = false;
    return dense;
}

ampc_status cuda_inner_prepare(const k_args *outer, cuda_inner *part)
{
    k_view in, out;
    assert(ir_op_get(part->op)->n_attr <= CUDA_INNER_ATTRS); /* depends only on the op table, not on the model */
    k_args args = inner_args(outer, part, &in, &out);
    in.data = out.data = somewhere;
    return part->kernel->prepare ? part->kernel->prepare(&args, &part->state, &part->workspace) : AMPC_OK;
}

ampc_status cuda_inner_run(const k_args *outer, const cuda_inner *part, void *in_data, void *out_data, void *workspace)
{
    k_view in, out;
    if (!part->kernel) return AMPC_OK;
    k_args args = inner_args(outer, part, &in, &out);
    in.data = in_data;
    out.data = out_data;
    args.workspace = workspace;
    return part->kernel->run(&args);
}

void cuda_inner_release(cuda_inner *part)
{
    if (part->kernel && part->kernel->release) part->kernel->release(part->state);
    part->kernel = NULL;
}

ampc_status cuda_inner_cast(const k_args *outer, int64_t count, ir_dtype from, ir_dtype to, cuda_inner *part)
{
    if (from == to) return AMPC_OK;
    *part = (cuda_inner){.op = IR_OP_cast,
                         .kernel = &cuda_cast,
                         .in = {.dtype = from, .rank = 1, .dims = {count}},
                         .out = {.dtype = to, .rank = 1, .dims = {count}},
                         .attr = {[IR_ATTR(cast, to)] = {.dtype = to}}};
    return cuda_inner_prepare(outer, part);
}

/* ---- fill ------------------------------------------------------------------------------------ */

ampc_status cuda_fill_prepare(const k_args *outer, const k_view *bias, int trailing, const k_view *y, cuda_fill *fill,
                              size_t *workspace)
{
    *workspace = 0;
    if (!bias || k_count(y) == 0) return AMPC_OK;
    CUDA_FORWARD(cuda_inner_cast(outer, k_count(bias), bias->dtype, y->dtype, &fill->cast));
    for (int i = 0; i < y->rank; i++) fill->dims[i] = y->dims[i];
    fill->spread = (cuda_inner){.op = IR_OP_expand, .kernel = &cuda_expand, .in = *bias, .out = *y};
    fill->spread.in.dtype = y->dtype;
    for (int i = 0; i < trailing; i++) fill->spread.in.dims[fill->spread.in.rank++] = 1;
    ir_attr *shape = &fill->spread.attr[IR_ATTR(expand, shape)];
    shape->list.items = fill->dims;
    shape->list.count = y->rank;
    CUDA_FORWARD(cuda_inner_prepare(outer, &fill->spread));
    *workspace = cuda_aligned((size_t)k_count(bias) * ir_dtype_size(y->dtype)) + fill->spread.workspace;
    return AMPC_OK;
}

ampc_status cuda_fill_run(const k_args *outer, const cuda_fill *fill, const k_view *bias, const k_view *y)
{
    const k_context *ctx = outer->ctx;
    if (k_count(y) == 0) return AMPC_OK;
    if (!fill->spread.kernel) {
        CUDA_CALL(ctx, cudaMemsetAsync(y->data, 0, k_bytes(y), cuda_of(ctx)->stream));
        return AMPC_OK;
    }
    void *from = fill->cast.kernel ? outer->workspace : bias->data;
    char *rest = (char *)outer->workspace + cuda_aligned((size_t)k_count(bias) * ir_dtype_size(y->dtype));
    CUDA_FORWARD(cuda_inner_run(outer, &fill->cast, bias->data, from, rest));
    return cuda_inner_run(outer, &fill->spread, from, y->data, rest);
}

void cuda_fill_release(cuda_fill *fill)
{
    cuda_inner_release(&fill->cast);
    cuda_inner_release(&fill->spread);
}
