/* ranks_sum.h - sums of the elements of several ranks, always in the same order. */
#ifndef RT_RANKS_SUM_H
#define RT_RANKS_SUM_H

#include "kernels/ranks.h"

#include <stddef.h>

/* The additions of an element are a balanced tree over positions 0..: the sum of [first, last) is that of its first
 * half, which is the largest power of two below its size, and that of the rest. */
int rt_ranks_middle(int first, int last);

/* What is known of the sums that begin at a position: that of [position, last), at `data`; NULL: nothing. */
typedef struct rt_ranks_term {
    int last;
    const void *data;
} rt_ranks_term;

/* Stores the sums, or largest ones, of positions [first, last) of n elements at `to`, which may be data of a term. */
void rt_ranks_sum(const rt_ranks_term *terms, int first, int last, void *to, int64_t n, ir_dtype type, k_reduced by);

#endif
