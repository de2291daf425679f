/* numbers.c - counts and range of the elements of a tensor. */
#include "runtime/inspect/numbers.h"

#include <math.h>

int64_t rt_tensor_count(const rt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

static void add_not_finite(rt_numbers *n, double x, int64_t at)
{
    if (isnan(x)) n->nan++;
    else n->inf++;
    n->negative_inf += x < 0;
    if (n->first_bad < 0) n->first_bad = at;
}

rt_numbers rt_numbers_of(const rt_tensor *t)
{
    const size_t size = ir_dtype_size(t->dtype);
    rt_numbers n = {.count = rt_tensor_count(t), .first_bad = -1, .min = INFINITY, .max = -INFINITY};
    double sum = 0;
    for (int64_t i = 0; i < n.count; i++) {
        const double x = ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * size);
        if (!isfinite(x)) {
            add_not_finite(&n, x, i);
            continue;
        }
        n.zero += x == 0;
        n.min = fmin(n.min, x);
        n.max = fmax(n.max, x);
        sum += x;
    }
    const int64_t finite = n.count - n.nan - n.inf;
    n.mean = finite ? sum / (double)finite : NAN;
    if (!finite) n.min = n.max = NAN;
    return n;
}

double rt_numbers_top(const rt_numbers *n)
{
    if (n->inf > n->negative_inf) return INFINITY;
    return isnan(n->max) && n->inf ? -INFINITY : n->max;
}

double rt_numbers_bottom(const rt_numbers *n)
{
    if (n->negative_inf) return -INFINITY;
    return isnan(n->min) && n->inf ? INFINITY : n->min;
}

double rt_numbers_mean(const rt_numbers *n)
{
    if (n->nan || (n->negative_inf && n->inf > n->negative_inf)) return NAN;
    if (n->inf) return n->negative_inf ? -INFINITY : INFINITY;
    return n->mean;
}
