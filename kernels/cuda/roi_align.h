/* roi_align.h - arguments of the kernels in roi_align.cu. */
#ifndef AMPC_CUDA_ROI_ALIGN_H
#define AMPC_CUDA_ROI_ALIGN_H

#include "kernels/roi.h"

enum {
    ROI_BLOCK = 256,
    ROI_SEGMENT = 8192, /* f32 sums per block of the gradient in shared memory */
    ROI_SLOTS = 1024    /* plus 4 KiB to order the writers */
};

typedef struct roi_args {
    roi_shape shape;
    const void *x, *rois, *batch, *dy;
    void *to;
    int dtype, batch_dtype;
    int span; /* elements per segment of an image channel */
    int step, *fault;
} roi_args;

#endif
