/* exponents.c - histograms of binary exponents. */
#include "runtime/inspect/exponents.h"

#include "runtime/inspect/numbers.h"

#include <math.h>

/* Of f16: a smaller number is rounded to zero; the smallest normal number; a larger number is infinite. */
enum { ROUNDED_UP = -25, NORMAL = -14, LARGEST = 15 };

void rt_exponents_add(rt_exponents *e, const rt_tensor *t, double divisor)
{
    const size_t size = ir_dtype_size(t->dtype);
    const int64_t n = rt_tensor_count(t);
    e->count += n;
    for (int64_t i = 0; i < n; i++) {
        const double x = ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * size) / divisor;
        if (x == 0) e->zero++;
        else if (!isfinite(x)) e->not_finite++;
        else e->bins[(int)fmin(fmax(ilogb(x), RT_EXPONENT_LEAST), RT_EXPONENT_MOST) - RT_EXPONENT_LEAST]++;
    }
}

void rt_exponents_merge(rt_exponents *into, const rt_exponents *from)
{
    into->count += from->count;
    into->zero += from->zero;
    into->not_finite += from->not_finite;
    for (int i = 0; i < RT_EXPONENTS; i++) into->bins[i] += from->bins[i];
}

rt_f16_shares rt_exponents_in_f16(const rt_exponents *e, int shift)
{
    rt_f16_shares s = {.flushed = 0};
    const double total = (double)(e->count - e->zero - e->not_finite);
    for (int i = 0; i < RT_EXPONENTS && total > 0; i++) {
        const int exponent = i + RT_EXPONENT_LEAST + shift;
        const double share = (double)e->bins[i] / total;
        if (exponent < ROUNDED_UP) s.flushed += share;
        else if (exponent < NORMAL) s.subnormal += share;
        else if (exponent > LARGEST) s.above += share;
    }
    return s;
}
