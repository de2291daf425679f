/* roi_align.c - launches of roi_align and its gradient. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/roi_align.h"

static ampc_status align_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    if (k_count(&args->in[0]) == 0 && k_count(&args->out[0]))
        return cuda_fail(args->ctx, AMPC_REJECTED, "the images have no elements");
    return cuda_prepare_one(args, CUDA_FAMILY_roi_align, "roi_align", state);
}

static ampc_status grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return cuda_prepare_one(args, CUDA_FAMILY_roi_align, "roi_align_spread", state);
}

static roi_args arguments(const k_args *args, const k_view *x, const k_view *rois, const k_view *batch)
{
    return (roi_args){.shape = roi_shape_of(args, x, rois),
                      .x = x->data,
                      .rois = rois->data,
                      .batch = batch->data,
                      .to = args->out[0].data,
                      .dtype = (int)x->dtype,
                      .batch_dtype = (int)batch->dtype,
                      .step = args->step,
                      .fault = cuda_of(args->ctx)->fault};
}

static ampc_status align_run(const k_args *args)
{
    const cuda_one *state = args->state;
    roi_args a = arguments(args, &args->in[IR_IN(roi_align, x)], &args->in[IR_IN(roi_align, rois)],
                           &args->in[IR_IN(roi_align, batch)]);
    const int64_t blocks = cuda_grid(args, k_count(&args->out[0]), ROI_BLOCK);
    return cuda_launch(args, state->kernel, blocks, ROI_BLOCK, 0, (void *[]){&a});
}

static ampc_status grad_run(const k_args *args)
{
    const cuda_one *state = args->state;
    roi_args a = arguments(args, &args->in[IR_IN(roi_align_grad, x)], &args->in[IR_IN(roi_align_grad, rois)],
                           &args->in[IR_IN(roi_align_grad, batch)]);
    const int64_t area = a.shape.height * a.shape.width;
    if (k_count(&args->out[0]) == 0) return AMPC_OK;
    a.dy = args->in[IR_IN(roi_align_grad, dy)].data;
    a.span = area < ROI_SEGMENT ? (int)area : ROI_SEGMENT;
    const int64_t segments = (area + a.span - 1) / a.span;
    const int64_t blocks = cuda_blocks(a.shape.images * a.shape.channels * segments, 1);
    return cuda_launch(args, state->kernel, blocks, ROI_BLOCK, 0, (void *[]){&a});
}

const k_kernel cuda_roi_align = {.prepare = align_prepare, .run = align_run, .release = cuda_release};
const k_kernel cuda_roi_align_grad = {.prepare = grad_prepare, .run = grad_run, .release = cuda_release};
