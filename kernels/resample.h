/* resample.h - resizing along one axis, for all devices: which input elements an output element combines, and their
 * weights. The includer defines K_FORMULA (ir/ops/formulas_body.h).
 *
 * An output element combines the input elements [start, start + count). Both ends of this range grow (or, if `falls`,
 * shrink) with the position of the output, so the outputs that use an input element are found by bisection. Elements
 * beyond the ends of the input equal those at the ends. */
#ifndef AMPC_RESAMPLE_H
#define AMPC_RESAMPLE_H

#include "ir/ops/words.h"

#include <math.h>

typedef struct resample_axis {
    long long in, out;
    int taps;     /* the largest count */
    double scale; /* output elements per input element */
    double width; /* of the output; a fraction if the scale was given */
    double start, end, cubic;
    int method, coordinates, rounding; /* of ir_words_sampling, ir_words_coordinates, ir_words_rounding */
    int exclude_outside, antialias, falls;
} resample_axis;

/* The position in the input of output o. The positions that select elements are rounded to f32 like everywhere, so that
 * 3 / 0.6 is 5. */
K_FORMULA double resample_rounded(const resample_axis *a, double v)
{
    return a->method == IR_WORD(sampling, nearest) || a->coordinates == IR_WORD(coordinates, tf_crop_and_resize)
               ? (double)(float)v
               : v;
}

K_FORMULA double resample_half_pixel(const resample_axis *a, double o)
{
    return resample_rounded(a, resample_rounded(a, (o + 0.5) / a->scale) - 0.5);
}

K_FORMULA double resample_crop(const resample_axis *a, double o)
{
    const double last = (double)(a->in - 1);
    if (a->out == 1) return resample_rounded(a, 0.5 * (a->start + a->end) * last);
    const double at = resample_rounded(a, resample_rounded(a, o * resample_rounded(a, a->end - a->start)) * last);
    return resample_rounded(a, resample_rounded(a, a->start * last) + resample_rounded(a, at / (double)(a->out - 1)));
}

K_FORMULA double resample_position(const resample_axis *a, long long output)
{
    const double o = (double)output;
    switch (a->coordinates) {
    case IR_WORD(coordinates, pytorch_half_pixel): return a->out > 1 ? resample_half_pixel(a, o) : 0;
    case IR_WORD(coordinates, half_pixel_symmetric):
        return resample_rounded(a, (double)a->in / 2 * (1 - (double)a->out / a->width) + resample_half_pixel(a, o));
    case IR_WORD(coordinates, align_corners):
        return a->width == 1 ? 0 : resample_rounded(a, o * (double)(a->in - 1) / (a->width - 1));
    case IR_WORD(coordinates, asymmetric): return resample_rounded(a, o / a->scale);
    case IR_WORD(coordinates, tf_half_pixel_for_nn): return resample_rounded(a, (o + 0.5) / a->scale);
    case IR_WORD(coordinates, tf_crop_and_resize): return resample_crop(a, o);
    default: return resample_half_pixel(a, o);
    }
}

K_FORMULA double resample_round(const resample_axis *a, double at)
{
    switch (a->rounding) {
    case IR_WORD(rounding, round_prefer_floor): return ceil(at - 0.5);
    case IR_WORD(rounding, round_prefer_ceil): return floor(at + 0.5);
    case IR_WORD(rounding, floor): return floor(at);
    default: return ceil(at);
    }
}

K_FORMULA long long resample_clamp(const resample_axis *a, double at)
{
    return at < 1 ? 0 : at > (double)(a->in - 1) ? a->in - 1 : (long long)at;
}

/* The weight of an element at this distance, in elements of the input or, if the filter is stretched, of the output. */
K_FORMULA double resample_filter(const resample_axis *a, double distance)
{
    const double d = fabs(distance), c = a->cubic;
    if (a->method == IR_WORD(sampling, linear)) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((c + 2) * d - (c + 3)) * d * d + 1;
    return d < 2 ? ((c * d - 5 * c) * d + 8 * c) * d - 4 * c : 0;
}

/* By how much distances shrink: less than 1 if the filter is stretched. */
K_FORMULA double resample_shrink(const resample_axis *a) { return a->antialias && a->scale < 1 ? a->scale : 1; }
K_FORMULA double resample_reach(const resample_axis *a)
{
    return (a->method == IR_WORD(sampling, linear) ? 1 : 2) / resample_shrink(a);
}

/* The elements that output o combines, some of them perhaps outside of the input; `clear` if it combines none. */
typedef struct resample_range {
    double at, first, last;
    long long start;
    int count;
    int clear;
} resample_range;

K_FORMULA resample_range resample_range_of(const resample_axis *a, long long o)
{
    resample_range r;
    r.at = resample_position(a, o);
    r.clear = a->coordinates == IR_WORD(coordinates, tf_crop_and_resize) && !(r.at >= 0 && r.at <= (double)(a->in - 1));
    if (a->method == IR_WORD(sampling, nearest)) {
        r.first = r.last = resample_round(a, r.at);
    } else {
        r.first = floor(r.at - resample_reach(a)) + 1;
        r.last = ceil(r.at + resample_reach(a)) - 1;
    }
    r.start = resample_clamp(a, r.first);
    r.count = (int)(resample_clamp(a, r.last) - r.start) + 1;
    return r;
}

/* The sum of the weights of the elements from `low` to `high`. */
K_FORMULA double resample_sum(const resample_axis *a, const resample_range *r, double low, double high)
{
    double sum = 0;
    if (low < r->first) low = r->first;
    if (high > r->last) high = r->last;
    for (double p = low; p <= high; p++) sum += resample_filter(a, (p - r->at) * resample_shrink(a));
    return sum;
}

/* By how much the weights of a range must be divided. */
K_FORMULA double resample_divisor(const resample_axis *a, const resample_range *r)
{
    const double last = (double)(a->in - 1);
    if (a->method == IR_WORD(sampling, nearest) || (!a->exclude_outside && !a->antialias)) return 1;
    return a->exclude_outside ? resample_sum(a, r, 0, last) : resample_sum(a, r, r->first, r->last);
}

/* The weight of tap t of a range, which includes elements beyond the ends. */
K_FORMULA double resample_weight(const resample_axis *a, const resample_range *r, double divisor, int t)
{
    const double p = (double)(r->start + t), last = (double)(a->in - 1);
    if (r->clear) return 0;
    if (a->method == IR_WORD(sampling, nearest) || (r->count == 1 && (r->first > last || r->last < 0))) return 1;
    const bool outside = !a->exclude_outside;
    return resample_sum(a, r, outside && p == 0 ? r->first : p, outside && p == last ? r->last : p) / divisor;
}

/* The first of the outputs [0, out), in rising order of their starts, whose start is not below `limit`. */
K_FORMULA long long resample_bisect(const resample_axis *a, const int *starts, long long limit)
{
    long long low = 0, high = a->out;
    while (low < high) {
        const long long middle = low + (high - low) / 2;
        if (starts[a->falls ? a->out - 1 - middle : middle] < limit) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The outputs that may use input i: `count` from `start` on. */
K_FORMULA long long resample_users(const resample_axis *a, const int *starts, long long i, int *count)
{
    const long long first = resample_bisect(a, starts, i - a->taps + 1), end = resample_bisect(a, starts, i + 1);
    *count = (int)(end - first);
    return a->falls ? a->out - end : first;
}

#endif
