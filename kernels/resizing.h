/* resizing.h - resize and its gradient in a common form: the axes in memory order, each resized or not. */
#ifndef AMPC_RESIZING_H
#define AMPC_RESIZING_H

#include "kernels/kernel.h"

#include <stdbool.h>

#ifndef K_FORMULA
#define K_FORMULA static inline
#endif
#include "kernels/resample.h"

/* `in` and `out` are sizes of the op's operand and result; axes without a `table` are copied. Adjacent axes that are
 * copied are one axis. */
typedef struct resizing_axis {
    int64_t in, out;
    bool resized;
    resample_axis axis; /* as in the forward direction */
} resizing_axis;

typedef struct resizing {
    int rank;
    resizing_axis axes[IR_MAX_RANK];
    bool backward;
} resizing;

#define RESIZE_SAME_ATTRIBUTE(name) \
    _Static_assert(IR_ATTR(resize, name) == IR_ATTR(resize_grad, name), "resize and resize_grad have one reader")
RESIZE_SAME_ATTRIBUTE(shape);
RESIZE_SAME_ATTRIBUTE(axes);
RESIZE_SAME_ATTRIBUTE(scales);
RESIZE_SAME_ATTRIBUTE(region);
RESIZE_SAME_ATTRIBUTE(method);
RESIZE_SAME_ATTRIBUTE(coordinates);
RESIZE_SAME_ATTRIBUTE(rounding);
RESIZE_SAME_ATTRIBUTE(cubic);
RESIZE_SAME_ATTRIBUTE(exclude_outside);
RESIZE_SAME_ATTRIBUTE(antialias);
RESIZE_SAME_ATTRIBUTE(outside);

static inline double resizing_quotient(const ir_attr *list, int i)
{
    return (double)list->list.items[2 * i] / (double)list->list.items[2 * i + 1];
}

/* Axis number i of those in the attribute, with these sizes of the unresized and the resized tensor. */
static inline resample_axis resizing_axis_of(const k_args *args, int i, int64_t in, int64_t out)
{
    const ir_attr *attr = args->attr, *scales = &attr[IR_ATTR(resize, scales)],
                  *region = &attr[IR_ATTR(resize, region)];
    const bool given = scales->list.count > 0;
    resample_axis a = {.in = in,
                       .out = out,
                       .scale = given ? resizing_quotient(scales, i) : (double)out / (double)in,
                       .end = 1,
                       .cubic = attr[IR_ATTR(resize, cubic)].f,
                       .method = (int)attr[IR_ATTR(resize, method)].i,
                       .coordinates = (int)attr[IR_ATTR(resize, coordinates)].i,
                       .rounding = (int)attr[IR_ATTR(resize, rounding)].i,
                       .exclude_outside = attr[IR_ATTR(resize, exclude_outside)].i != 0,
                       .antialias = attr[IR_ATTR(resize, antialias)].i != 0};
    if (region->list.count) {
        a.start = resizing_quotient(region, i);
        a.end = resizing_quotient(region, region->list.count / 4 + i);
    }
    a.falls = a.coordinates == IR_WORD(coordinates, tf_crop_and_resize) && a.end < a.start;
    a.width = given ? a.scale * (double)in : (double)out;
    if (a.method == IR_WORD(sampling, nearest)) a.scale = (double)(float)a.scale;
    const double taps = a.method == IR_WORD(sampling, nearest) ? 1 : 2 * resample_reach(&a) + 2;
    a.taps = taps < (double)in ? (int)taps : (int)in;
    return a;
}

static inline void resizing_append(resizing *r, const resizing_axis *a)
{
    resizing_axis *last = r->rank > 0 ? &r->axes[r->rank - 1] : NULL;
    if (last && !a->resized && !last->resized) last->in *= a->in, last->out *= a->out;
    else r->axes[r->rank++] = *a;
}

/* The axes of args->op in memory order. */
static inline resizing resizing_of(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const ir_attr *axes = &args->attr[IR_ATTR(resize, axes)];
    resizing r = {.rank = 0, .backward = args->op == IR_OP_resize_grad};
    for (int i = 0; i < x->rank; i++) {
        const int at = !x->channels_last || i == 0 ? i : i == x->rank - 1 ? 1 : i + 1;
        resizing_axis a = {.in = x->dims[at], .out = y->dims[at]};
        for (int k = 0; k < axes->list.count; k++) {
            if (axes->list.items[k] != at) continue;
            a.resized = true;
            a.axis = r.backward ? resizing_axis_of(args, k, a.out, a.in) : resizing_axis_of(args, k, a.in, a.out);
        }
        resizing_append(&r, &a);
    }
    return r;
}

#endif
