/* reductions.h - ranks that measure the time of the reductions in a training step. */
#ifndef RT_REDUCTIONS_H
#define RT_REDUCTIONS_H

#include "kernels/ranks.h"
#include "runtime/files/trace.h"

/* What a rank has spent in reductions, waits for the others included. */
typedef struct rt_reduction_time {
    double seconds;
    int64_t calls, bytes;
} rt_reduction_time;

typedef struct rt_reductions {
    k_ranks table; /* first */
    k_ranks *through;
    rt_reduction_time time;
    double began;    /* of a reduction whose pieces are not complete; 0: there is none */
    rt_trace *trace; /* receives each reduction; NULL: none */
} rt_reductions;

/* Ranks that call those of `through`, which must outlive them. */
void rt_reductions_open(rt_reductions *r, k_ranks *through);

#endif
