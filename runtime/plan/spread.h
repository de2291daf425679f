/* spread.h - where the elements of a value are in the memory of another one.
 *
 * A spread lists the digits of a mixed-radix number, the most significant one first: element i of the value, in
 * row-major order, is at `at` plus the sum of digit times stride, in elements. Dimensions are not a part of it, so a
 * reshape changes nothing; operations on dimensions cut the digits at their boundaries. */
#ifndef RT_SPREAD_H
#define RT_SPREAD_H

#include "kernels/kernel.h"

enum { RT_MAX_DIGITS = 2 * IR_MAX_RANK };

typedef struct rt_digit {
    int64_t size, stride;
} rt_digit;

typedef struct rt_spread {
    int64_t at;
    int n;
    rt_digit digits[RT_MAX_DIGITS];
} rt_spread;

/* Of `count` neighbouring elements. */
rt_spread rt_spread_dense(int64_t count);
bool rt_spread_is_dense(const rt_spread *s);

/* These functions return false, and leave *s in any state, if the result has no such form: a digit crosses a boundary,
 * or there would be too many. `v` has the dimensions of the value before the operation, none of which is 0. */

/* Dimension i of the result is dimension order[i]. */
bool rt_spread_permute(rt_spread *s, const k_view *v, const int *order);
bool rt_spread_slice(rt_spread *s, const k_view *v, int axis, int64_t start, int64_t size);
/* Sets one stride per dimension, 1 along the last one. */
bool rt_spread_strides(const rt_spread *s, const k_view *v, int64_t *strides);

#endif
