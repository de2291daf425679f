/* grid.h - samples of images at positions of a grid: rules for host and device code. */
#ifndef AMPC_GRID_H
#define AMPC_GRID_H

#include "ir/ops/words.h"

#include <math.h>

enum {
    GRID_AXES = 3,
    GRID_FAR = 1 << 28, /* beyond all elements */
    GRID_MAX_TAPS = 64
};

typedef struct grid_rule {
    int method, border; /* of ir_words_sampling, ir_words_border */
    int corners, absolute;
} grid_rule;

/* x [images, channels, size], grid [images, points, axes], y [images, channels, points]; axes that x does not have come
 * first, with one element and one tap. */
typedef struct grid_shape {
    grid_rule rule;
    int axes;
    int taps[GRID_AXES];
    long long size[GRID_AXES];
    long long images, channels, points, plane; /* plane: elements of an image channel */
} grid_shape;

#ifndef __cplusplus
#include "kernels/kernel.h"

_Static_assert(IR_ATTR(grid_sample, method) == IR_ATTR(grid_sample_grad, method), "one reader");
_Static_assert(IR_ATTR(grid_sample, border) == IR_ATTR(grid_sample_grad, border), "one reader");
_Static_assert(IR_ATTR(grid_sample, align_corners) == IR_ATTR(grid_sample_grad, align_corners), "one reader");
_Static_assert(IR_ATTR(grid_sample, absolute) == IR_ATTR(grid_sample_grad, absolute), "one reader");

static inline grid_shape grid_shape_of(const k_args *args, const k_view *x, const k_view *grid)
{
    const ir_attr *attr = args->attr;
    grid_shape s = {.rule = {.method = (int)attr[IR_ATTR(grid_sample, method)].i,
                             .border = (int)attr[IR_ATTR(grid_sample, border)].i,
                             .corners = attr[IR_ATTR(grid_sample, align_corners)].i != 0,
                             .absolute = attr[IR_ATTR(grid_sample, absolute)].i != 0},
                    .axes = x->rank - 2,
                    .images = x->dims[0],
                    .channels = x->dims[1],
                    .points = 1,
                    .plane = 1};
    for (int i = 0; i < GRID_AXES; i++) {
        const int at = i - (GRID_AXES - s.axes);
        s.size[i] = at < 0 ? 1 : x->dims[2 + at];
        s.taps[i] = at < 0 ? 1 : 1 << s.rule.method;
        s.plane *= s.size[i];
    }
    for (int i = 1; i < grid->rank - 1; i++) s.points *= grid->dims[i];
    return s;
}
#endif

#endif
