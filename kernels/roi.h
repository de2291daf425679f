/* roi.h - averages and maxima of samples in regions of images, for host and device code. */
#ifndef AMPC_ROI_H
#define AMPC_ROI_H

#include <math.h>

enum { ROI_MAX_SAMPLES = 16384 /* per cell and axis, if their number follows from the region */ };

/* x [images, channels, height, width], rois [regions, 4], y [regions, channels, rows, columns] */
typedef struct roi_shape {
    long long images, channels, height, width, regions, rows, columns;
    int sampling, half_pixel, max;
    double scale;
} roi_shape;

#ifndef __cplusplus
#include "kernels/kernel.h"

_Static_assert(IR_ATTR(roi_align, size) == IR_ATTR(roi_align_grad, size), "one reader");
_Static_assert(IR_ATTR(roi_align, sampling) == IR_ATTR(roi_align_grad, sampling), "one reader");
_Static_assert(IR_ATTR(roi_align, scale) == IR_ATTR(roi_align_grad, scale), "one reader");
_Static_assert(IR_ATTR(roi_align, half_pixel) == IR_ATTR(roi_align_grad, half_pixel), "one reader");
_Static_assert(IR_ATTR(roi_align, max) == IR_ATTR(roi_align_grad, max), "one reader");

static inline roi_shape roi_shape_of(const k_args *args, const k_view *x, const k_view *rois)
{
    const ir_attr *attr = args->attr, *size = &attr[IR_ATTR(roi_align, size)];
    return (roi_shape){.images = x->dims[0],
                       .channels = x->dims[1],
                       .height = x->dims[2],
                       .width = x->dims[3],
                       .regions = rois->dims[0],
                       .rows = size->list.items[0],
                       .columns = size->list.items[1],
                       .sampling = (int)attr[IR_ATTR(roi_align, sampling)].i,
                       .half_pixel = attr[IR_ATTR(roi_align, half_pixel)].i != 0,
                       .max = attr[IR_ATTR(roi_align, max)].i != 0,
                       .scale = attr[IR_ATTR(roi_align, scale)].f};
}
#endif

#endif
