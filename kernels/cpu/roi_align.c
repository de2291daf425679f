/* roi_align.c - averages and maxima of samples in regions of images, and the gradient, which is computed for one
 * channel of one image at a time, over the regions in order. */
#include "kernels/cpu/wide.h"
#include "kernels/roi.h"
#include "ir/ops/real.h"

typedef struct wide {
    const void *x, *rois, *dy; /* in the carrier type */
    const int64_t *batch;
    void *y; /* or dx */
} wide;

#define REAL float
#include "kernels/roi_body.h"
#include "kernels/cpu/roi_align_body.h"
#undef REAL
#define REAL double
#include "kernels/roi_body.h"
#include "kernels/cpu/roi_align_body.h"
#undef REAL

/* The size of the copies in the carrier type; the image of each region comes after them. */
static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_view *batch = &args->in[args->n_in - 1];
    (void)state;
    if (args->op == IR_OP_roi_align && k_count(&args->in[0]) == 0 && k_count(&args->out[0]))
        return cpu_fail(args->ctx, AMPC_REJECTED, "the images have no elements");
    *workspace = cpu_wide_bytes(args, cpu_carrier(args->in[0].dtype)) + (size_t)k_count(batch) * sizeof(int64_t);
    return AMPC_OK;
}

static ampc_status read_batch(const k_args *args, const k_view *batch, int64_t images, int64_t *to)
{
    for (int64_t i = 0; i < k_count(batch); i++) {
        to[i] = ir_load_i64(batch->dtype, cpu_at(batch, i));
        if (to[i] < 0 || to[i] >= images)
            return cpu_fail(args->ctx, AMPC_REJECTED, "index %lld at position %lld is outside of [0,%lld)",
                            (long long)to[i], (long long)i, (long long)images);
    }
    return AMPC_OK;
}

static ampc_status align_run(const k_args *args)
{
    const k_view *x = &args->in[IR_IN(roi_align, x)], *rois = &args->in[IR_IN(roi_align, rois)], *y = &args->out[0];
    const roi_shape s = roi_shape_of(args, x, rois);
    const ir_dtype carrier = cpu_carrier(x->dtype);
    char *at = args->workspace;
    wide w = {.x = cpu_widen(x, carrier, &at), .rois = cpu_widen(rois, carrier, &at)};
    w.y = cpu_wide_target(y, carrier, &at);
    w.batch = (int64_t *)(void *)at;
    const ampc_status status = read_batch(args, &args->in[IR_IN(roi_align, batch)], s.images, (int64_t *)(void *)at);
    if (status != AMPC_OK || k_count(y) == 0) return status;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, 8 * k_count(y))) schedule(static)
    for (int64_t plane = 0; plane < s.regions * s.channels; plane++) {
        if (carrier == IR_f64) pool_region_double(&s, &w, plane);
        else pool_region_float(&s, &w, plane);
    }
    cpu_narrow(y, carrier, w.y);
    return AMPC_OK;
}

static ampc_status grad_run(const k_args *args)
{
    const k_view *dy = &args->in[IR_IN(roi_align_grad, dy)], *x = &args->in[IR_IN(roi_align_grad, x)],
                 *rois = &args->in[IR_IN(roi_align_grad, rois)], *dx = &args->out[0];
    const roi_shape s = roi_shape_of(args, x, rois);
    const ir_dtype carrier = cpu_carrier(x->dtype);
    char *at = args->workspace;
    wide w = {.dy = cpu_widen(dy, carrier, &at), .x = cpu_widen(x, carrier, &at)};
    w.rois = cpu_widen(rois, carrier, &at);
    w.y = cpu_wide_target(dx, carrier, &at);
    w.batch = (int64_t *)(void *)at;
    const ampc_status status = read_batch(args, &args->in[IR_IN(roi_align_grad, batch)], s.images,
                                          (int64_t *)(void *)at);
    if (status != AMPC_OK || k_count(dx) == 0) return status;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(dx) + 8 * k_count(dy))) schedule(static)
    for (int64_t plane = 0; plane < s.images * s.channels; plane++) {
        if (carrier == IR_f64) spread_plane_double(&s, &w, plane);
        else spread_plane_float(&s, &w, plane);
    }
    cpu_narrow(dx, carrier, w.y);
    return AMPC_OK;
}

const k_kernel cpu_roi_align = {.prepare = prepare, .run = align_run};
const k_kernel cpu_roi_align_grad = {.prepare = prepare, .run = grad_run};
