/* spread.c - where the elements of a value are in the memory of another one. */
#include "runtime/plan/spread.h"

rt_spread rt_spread_dense(int64_t count) { return (rt_spread){.n = 1, .digits = {{count, 1}}}; }

/* Joins neighbouring digits that are one, and removes those of a single value. */
static void simplify(rt_spread *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const rt_digit d = s->digits[i];
        if (d.size == 1) continue;
        if (n > 0 && s->digits[n - 1].stride == d.size * d.stride)
            s->digits[n - 1] = (rt_digit){s->digits[n - 1].size * d.size, d.stride};
        else s->digits[n++] = d;
    }
    s->n = n;
}

bool rt_spread_is_dense(const rt_spread *s)
{
    rt_spread simple = *s;
    simplify(&simple);
    return simple.n == 0 || (simple.n == 1 && simple.digits[0].stride == 1);
}

/* Cuts the digits at the boundaries of the dimensions. Digits begin[i] to begin[i + 1] are those of dimension i. */
static bool cut(rt_spread *s, const k_view *v, int *begin)
{
    rt_digit cuts[RT_MAX_DIGITS], d = {1, 1};
    int from = s->n, at = RT_MAX_DIGITS;
    for (int i = v->rank - 1; i >= 0; i--) {
        begin[i + 1] = at;
        for (int64_t left = v->dims[i]; left > 1;) {
            while (d.size == 1 && from > 0) d = s->digits[--from];
            const int64_t size = d.size < left ? d.size : left;
            if (size <= 1 || left % size || d.size % size || at == 0) return false;
            cuts[--at] = (rt_digit){size, d.stride};
            d = (rt_digit){d.size / size, d.stride * size};
            left /= size;
        }
    }
    begin[0] = at;
    for (int i = 0; i <= v->rank; i++) begin[i] -= at;
    s->n = RT_MAX_DIGITS - at;
    for (int i = 0; i < s->n; i++) s->digits[i] = cuts[at + i];
    return true;
}

bool rt_spread_permute(rt_spread *s, const k_view *v, const int *order)
{
    int begin[IR_MAX_RANK + 1], n = 0;
    if (!cut(s, v, begin)) return false;
    const rt_spread from = *s;
    for (int i = 0; i < v->rank; i++)
        for (int j = begin[order[i]]; j < begin[order[i] + 1]; j++) s->digits[n++] = from.digits[j];
    simplify(s);
    return true;
}

bool rt_spread_slice(rt_spread *s, const k_view *v, int axis, int64_t start, int64_t size)
{
    int begin[IR_MAX_RANK + 1];
    int64_t inner = v->dims[axis];
    if (!cut(s, v, begin)) return false;
    for (int i = begin[axis]; i < begin[axis + 1]; i++) {
        rt_digit *d = &s->digits[i];
        inner /= d->size;
        s->at += start / inner * d->stride;
        const bool is_one = start % inner + size <= inner;
        if (!is_one && (start % inner || size % inner)) return false;
        d->size = is_one ? 1 : size / inner;
        if (!is_one) break;
        start %= inner;
    }
    simplify(s);
    return true;
}

bool rt_spread_strides(const rt_spread *s, const k_view *v, int64_t *strides)
{
    rt_spread copy = *s;
    int begin[IR_MAX_RANK + 1];
    if (!cut(&copy, v, begin)) return false;
    for (int i = 0; i < v->rank; i++) {
        rt_spread dim = {.n = begin[i + 1] - begin[i]};
        for (int j = 0; j < dim.n; j++) dim.digits[j] = copy.digits[begin[i] + j];
        simplify(&dim);
        if (dim.n > 1) return false;
        strides[i] = dim.n ? dim.digits[0].stride : 1;
    }
    return v->rank == 0 || strides[v->rank - 1] == 1;
}
