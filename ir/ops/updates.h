/* updates.h - the numbers of an elementwise optimizer update that are the same for all elements, from updates.def.
 * update_once_OP computes them in f64 from the op's attributes, the learning rate and the number of the step. UPDATE_FN
 * qualifies functions. */
#ifndef AMPC_UPDATES_H
#define AMPC_UPDATES_H

#include "ir/ops/slots.h"

#include <math.h>
#include <stdbool.h>

#ifndef UPDATE_FN
#define UPDATE_FN static inline
#endif

enum { UPDATE_STATES = 4, UPDATE_ATTRS = 8 }; /* maximum of any row */

#define UPDATE_NUMBERS(X) \
    X(rate) X(l2) X(shrink) X(mu) X(direct) X(share) X(b1) X(c1) X(b2) X(c2) X(root) X(eps) X(base)

typedef struct update_numbers {
#define FIELD(name) double name;
    UPDATE_NUMBERS(FIELD)
#undef FIELD
} update_numbers;

/* mu_t of NAdam. */
UPDATE_FN double update_nadam_momentum(double beta1, double decay, double t)
{
    return beta1 * (1 - 0.5 * pow(0.96, t * decay));
}

/* The product of mu_1 .. mu_t. Its logarithm is t log(beta1) + sum of log(1 - q^i / 2) with q = 0.96^decay, a double
 * sum whose inner ones are geometric: the terms of log(1 - x) are -x^n / n. */
UPDATE_FN double update_nadam_product(double beta1, double decay, double t)
{
    const double log_q = decay * log(0.96);
    double sum = 0, half = 1;
    if (beta1 == 0) return 0;
    for (int n = 1; n <= 60; n++) {
        half *= 0.5;
        sum += half / n * (log_q == 0 ? t : exp(n * log_q) * expm1(n * t * log_q) / expm1(n * log_q));
    }
    return exp(t * log(beta1) - sum);
}

#define A(op, name) attr[IR_ATTR(op, name)]
#define UPDATE(op, states, lr, step, ratio, once, ...) \
    UPDATE_FN void update_once_##op(update_numbers *k, const double *attr, double RATE, double T) \
    { \
        (void)attr, (void)RATE, (void)T; \
        once \
    }
#include "ir/ops/updates.def"
#undef A

#endif
