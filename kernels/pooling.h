/* pooling.h - pooling and its gradients as their kernels see them: three spatial axes, the missing ones of one element.
 *
 * x [N, C, spatial] with 1 to 3 spatial axes is planes of one image and one channel. */
#ifndef AMPC_POOLING_H
#define AMPC_POOLING_H

#include "kernels/kernel.h"

#include <assert.h>

enum { POOL_AXES = 3 };

typedef struct pool_axis {
    int64_t in, out, kernel, stride, dilation, before, after;
} pool_axis;

/* The pooling ops share names and order of these attributes. */
#define POOL_SAME_ATTRIBUTES(op)                                                                             \
    _Static_assert(IR_ATTR(op, strides) == IR_ATTR(op, kernel) + 1 &&                                        \
                       IR_ATTR(op, pads) == IR_ATTR(op, kernel) + 2 &&                                       \
                       IR_ATTR(op, dilations) == IR_ATTR(op, kernel) + 3,                                    \
                   "one reader")
POOL_SAME_ATTRIBUTES(max_pool);
POOL_SAME_ATTRIBUTES(avg_pool);
POOL_SAME_ATTRIBUTES(avg_pool_grad);

static inline int64_t pool_item(const ir_attr *attr, int i, int64_t absent)
{
    return i < attr->list.count ? attr->list.items[i] : absent;
}

/* `wide` is the larger side, `narrow` the pooled one; attr points at the `kernel` attribute. */
static inline void pool_axes_of(const k_view *wide, const k_view *narrow, const ir_attr *attr,
                                pool_axis axes[POOL_AXES])
{
    int spatial = wide->rank - 2;
    assert(spatial >= 1 && spatial <= POOL_AXES); /* infer_conv.c refuses any other number of spatial axes */
    for (int i = 0; i < POOL_AXES; i++) {
        int k = i - (POOL_AXES - spatial);
        axes[i] = (pool_axis){1, 1, 1, 1, 1, 0, 0};
        if (k < 0) continue;
        axes[i] = (pool_axis){wide->dims[2 + k],         narrow->dims[2 + k],
                              pool_item(&attr[0], k, 1), pool_item(&attr[1], k, 1),
                              pool_item(&attr[3], k, 1), pool_item(&attr[2], k, 0),
                              pool_item(&attr[2], k + spatial, 0)};
    }
}

/* Elements of an image of one channel. */
static inline int64_t pool_plane(const k_view *v)
{
    int64_t n = 1;
    for (int i = 2; i < v->rank; i++) n *= v->dims[i];
    return n;
}

#endif
