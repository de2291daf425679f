/* pooling.h - pooling and its gradients in one form, with three spatial axes; missing ones have one element.
 *
 * x [N, C, spatial] has 1 to 3 spatial axes. A plane is one channel of one image. */
#ifndef AMPC_POOLING_H
#define AMPC_POOLING_H

#include "kernels/kernel.h"

#include <assert.h>

enum { POOL_AXES = 3 };

/* Sizes, window and pads along one axis. */
typedef struct pool_axis {
    int64_t in, out, kernel, stride, dilation, before, after;
} pool_axis;

/* The pooling ops have these attributes in the same order. */
#define POOL_SAME_ATTRIBUTES(op) \
    _Static_assert(IR_ATTR(op, strides) == IR_ATTR(op, kernel) + 1 && IR_ATTR(op, pads) == IR_ATTR(op, kernel) + 2 && \
                       IR_ATTR(op, dilations) == IR_ATTR(op, kernel) + 3, \
                   "one reader")
POOL_SAME_ATTRIBUTES(max_pool);
POOL_SAME_ATTRIBUTES(avg_pool);
POOL_SAME_ATTRIBUTES(avg_pool_grad);

static inline int64_t pool_item(const ir_attr *attr, int i, int64_t absent)
{
    return i < attr->list.count ? attr->list.items[i] : absent;
}

/* Fills `axes`. `wide` is the unpooled view, `narrow` the pooled one; attr points at the `kernel` attribute. */
static inline void pool_axes_of(const k_view *wide, const k_view *narrow, const ir_attr *attr,
                                pool_axis axes[POOL_AXES])
{
    int spatial = wide->rank - 2;
    assert(spatial >= 1 && spatial <= POOL_AXES); /* infer_conv.c rejects other numbers of spatial axes */
    for (int i = 0; i < POOL_AXES; i++) {
        int k = i - (POOL_AXES - spatial);
        axes[i] = (pool_axis){1, 1, 1, 1, 1, 0, 0};
        if (k < 0) continue;
        axes[i] = (pool_axis){wide->dims[2 + k],
                              narrow->dims[2 + k],
                              pool_item(&attr[0], k, 1),
                              pool_item(&attr[1], k, 1),
                              pool_item(&attr[3], k, 1),
                              pool_item(&attr[2], k, 0),
                              pool_item(&attr[2], k + spatial, 0)};
    }
}

/* On CUDA, the indices of max pooling may be u8: the number of the tap in its window, in row-major order, of at most
 * POOL_MAX_TAPS; POOL_MAX_TAPS: the window has no element. Attributes of max_pool_grad are then followed by those of
 * max_pool. */
enum { POOL_MAX_TAPS = 255 };

/* The number of elements per plane. */
static inline int64_t pool_plane(const k_view *v)
{
    int64_t n = 1;
    for (int i = 2; i < v->rank; i++) n *= v->dims[i];
    return n;
}

#endif
