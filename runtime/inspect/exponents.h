/* exponents.h - how many elements of a tensor have which binary exponent, and what f16 would do to them. */
#ifndef RT_EXPONENTS_H
#define RT_EXPONENTS_H

#include "runtime/session/session.h"

/* Exponent e stands for 2^e <= |x| < 2^(e+1); numbers beyond the ends, which f32 does not have, count there. */
enum { RT_EXPONENT_LEAST = -150, RT_EXPONENT_MOST = 128, RT_EXPONENTS = RT_EXPONENT_MOST - RT_EXPONENT_LEAST + 1 };

typedef struct rt_exponents {
    int64_t count, zero, not_finite; /* of all elements */
    int64_t bins[RT_EXPONENTS];      /* by exponent - RT_EXPONENT_LEAST */
} rt_exponents;

/* Adds the elements of a float tensor, divided by `divisor`. */
void rt_exponents_add(rt_exponents *e, const rt_tensor *t, double divisor);
void rt_exponents_merge(rt_exponents *into, const rt_exponents *from);

/* Shares of the elements that are neither zero nor NaN or infinite; all 0 if there are none. */
typedef struct rt_f16_shares {
    double flushed;   /* rounded to zero */
    double subnormal; /* below the smallest normal number, so with fewer digits */
    double above;     /* infinite */
} rt_f16_shares;
/* What f16 would do to the elements, multiplied by 2^shift. */
rt_f16_shares rt_exponents_in_f16(const rt_exponents *e, int shift);

#endif
