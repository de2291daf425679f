/* infer_resample.c - resizing, sampling at positions and in regions, and their gradients. */
#include "ir/infer/infer.h"

#include <inttypes.h>

/* Checks a list of quotients: numerators, and denominators that are not 0. */
static ampc_status check_quotients(const inference *x, const char *name, int count, int64_t low)
{
    const ir_attr *list = infer_attr(x, name);
    if (!list->list.count) return AMPC_OK;
    if (list->list.count != 2 * count)
        return infer_reject(x, "%s needs %d entries, has %d", name, 2 * count, list->list.count);
    for (int i = 0; i < count; i++)
        if (list->list.items[2 * i] < low || list->list.items[2 * i + 1] < 1)
            return infer_reject(x, "%s %" PRId64 "/%" PRId64 " is out of range", name, list->list.items[2 * i],
                                list->list.items[2 * i + 1]);
    return AMPC_OK;
}

/* `from` has the sizes before resizing, `to` those after it; they differ only in the listed axes. */
static ampc_status check_resize(const inference *x, const ir_type *from, const ir_type *to)
{
    const ir_attr *axes = infer_attr(x, "axes");
    bool resized[IR_MAX_RANK] = {false};
    for (int i = 0; i < axes->list.count; i++) {
        const int64_t axis = axes->list.items[i];
        if (axis < 0 || axis >= from->rank || resized[axis])
            return infer_reject(x, "axis %" PRId64 " is out of range or listed twice", axis);
        resized[axis] = true;
    }
    bool same = from->rank == to->rank;
    for (int i = 0; i < from->rank && same; i++) {
        same = resized[i] || from->dims[i] == to->dims[i];
        if (resized[i] && from->dims[i] == 0 && to->dims[i] != 0 && !ir_dim_is_symbolic(to->dims[i]))
            return infer_reject(x, "axis %d has no elements to resize", i);
    }
    if (!same) return infer_reject(x, "cannot resize %s to %s", infer_show(x, from), infer_show(x, to));
    TRY(check_quotients(x, "scales", axes->list.count, 1));
    return check_quotients(x, "region", 2 * axes->list.count, INT64_MIN);
}

ampc_status infer_resize(const inference *x)
{
    ir_type to;
    TRY(infer_shape(x, &to));
    TRY(check_resize(x, infer_in(x, 0), &to));
    return infer_result(x, 0, to);
}

ampc_status infer_resize_grad(const inference *x)
{
    ir_type from;
    TRY(infer_shape(x, &from));
    TRY(check_resize(x, &from, infer_in(x, 0)));
    return infer_result(x, 0, from);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The samples of x [N,C,spatial] at grid [N,points,spatial axes]. */
static ampc_status sample_shape(const inference *x, ir_type *y)
{
    const ir_type *in = infer_operand(x, "x"), *grid = infer_operand(x, "grid");
    if (in->rank < 3 || in->rank > 5)
        return infer_reject(x, "the input has %d spatial dimensions, 1 to 3 are supported", in->rank - 2);
    if (grid->rank != in->rank || grid->dims[0] != in->dims[0] || grid->dims[grid->rank - 1] != in->rank - 2)
        return infer_reject(x, "grid %s does not hold positions for %s", infer_show(x, grid), infer_show(x, in));
    *y = infer_untyped(in->rank, in->dims);
    for (int i = 2; i < in->rank; i++) y->dims[i] = grid->dims[i - 1];
    return AMPC_OK;
}

ampc_status infer_grid_sample(const inference *x)
{
    ir_type y;
    TRY(sample_shape(x, &y));
    return infer_result(x, 0, y);
}

ampc_status infer_grid_sample_grad(const inference *x)
{
    const ir_type *in = infer_operand(x, "x"), *grid = infer_operand(x, "grid");
    ir_type y;
    TRY(sample_shape(x, &y));
    TRY(infer_expect_operand(x, "dy", &y));
    TRY(infer_result(x, IR_OUT(grid_sample_grad, dx), infer_untyped(in->rank, in->dims)));
    return infer_result(x, IR_OUT(grid_sample_grad, dgrid), infer_untyped(grid->rank, grid->dims));
}

/* ---- regions --------------------------------------------------------------------------------- */

static ampc_status region_shape(const inference *x, ir_type *y)
{
    const ir_type *in = infer_operand(x, "x"), *rois = infer_operand(x, "rois");
    const int64_t *size;
    TRY(infer_list(x, "size", 2, &size));
    if (in->rank != 4) return infer_reject(x, "x must have 4 dimensions, is %s", infer_show(x, in));
    if (rois->rank != 2 || rois->dims[1] != 4)
        return infer_reject(x, "rois must have 4 numbers per region, is %s", infer_show(x, rois));
    for (int i = 0; i < 2; i++)
        if (size[i] < 1 || size[i] > INT32_MAX) return infer_reject(x, "size %" PRId64 " is out of range", size[i]);
    ir_type batch = infer_untyped(1, rois->dims);
    TRY(infer_expect_operand(x, "batch", &batch));
    *y = infer_untyped(4, (ir_dim[]){rois->dims[0], in->dims[1], size[0], size[1]});
    return AMPC_OK;
}

ampc_status infer_roi_align(const inference *x)
{
    ir_type y;
    TRY(region_shape(x, &y));
    return infer_result(x, 0, y);
}

ampc_status infer_roi_align_grad(const inference *x)
{
    const ir_type *in = infer_operand(x, "x");
    ir_type y;
    TRY(region_shape(x, &y));
    TRY(infer_expect_operand(x, "dy", &y));
    return infer_result(x, 0, infer_untyped(in->rank, in->dims));
}
