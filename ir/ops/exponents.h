/* exponents.h - the numbers of a tensor as mixed precision sees them: range, binary exponents, what is not finite. */
#ifndef AMPC_EXPONENTS_H
#define AMPC_EXPONENTS_H

#include "ir/ops/dtype.h"

/* Exponent e stands for 2^e <= |x| < 2^(e+1); numbers beyond the ends, which f32 does not have, count there. */
enum { IR_EXPONENT_LEAST = -150, IR_EXPONENT_MOST = 128, IR_EXPONENTS = IR_EXPONENT_MOST - IR_EXPONENT_LEAST + 1 };

typedef struct ir_exponents {
    int64_t count, zero, nan, inf; /* of all elements */
    int64_t large;                 /* finite, and larger than the largest number of f16 */
    double min, max;               /* of the finite elements; unset if there are none */
    int64_t bins[IR_EXPONENTS];    /* by exponent - IR_EXPONENT_LEAST */
} ir_exponents;

/* Adds n elements of a float type, divided by `divisor`. */
void ir_exponents_add(ir_exponents *e, ir_dtype type, const void *data, int64_t n, double divisor);
void ir_exponents_merge(ir_exponents *into, const ir_exponents *from);

/* The number of finite elements; the largest magnitude among them, 0 if there are none. */
static inline int64_t ir_exponents_finite(const ir_exponents *e) { return e->count - e->nan - e->inf; }
double ir_exponents_largest(const ir_exponents *e);

/* Shares of the elements that are neither zero nor NaN or infinite; all 0 if there are none. */
typedef struct ir_exponent_shares {
    double below_subnormal; /* smaller than the smallest number of the type above zero */
    double below_normal;    /* smaller than its smallest normal number: these and the ones before */
    double flushed;         /* rounded to zero */
    double above;           /* larger than its largest number; after a shift, those that become infinite */
} ir_exponent_shares;
/* What a low type would do to the elements, multiplied by 2^shift. */
ir_exponent_shares ir_exponents_in(const ir_exponents *e, ir_dtype low, int shift);

#endif
