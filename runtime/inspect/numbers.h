/* numbers.h - counts and range of the elements of a tensor. */
#ifndef RT_NUMBERS_H
#define RT_NUMBERS_H

#include "runtime/session/session.h"

typedef struct rt_numbers {
    int64_t count, nan, zero;
    int64_t inf, negative_inf; /* inf: of either sign */
    int64_t first_bad;         /* index of the first NaN or infinity; -1: none */
    double min, max, mean;     /* of the finite elements; NAN if there are none */
} rt_numbers;

int64_t rt_tensor_count(const rt_tensor *t); /* number of elements */
/* The numbers of a tensor of any dtype; an integer or bool is finite. */
rt_numbers rt_numbers_of(const rt_tensor *t);
static inline bool rt_numbers_finite(const rt_numbers *n) { return n->nan == 0 && n->inf == 0; }

/* The largest and smallest element as comparisons see them: infinities count, a NaN does not; NAN if there are only
 * NaN. The mean of all elements. */
double rt_numbers_top(const rt_numbers *n);
double rt_numbers_bottom(const rt_numbers *n);
double rt_numbers_mean(const rt_numbers *n);

#endif
