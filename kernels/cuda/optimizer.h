/* optimizer.h - arguments of the kernels in optimizer.cu. */
#ifndef AMPC_CUDA_OPTIMIZER_H
#define AMPC_CUDA_OPTIMIZER_H

#include "ir/ops/updates.h"

enum {
    OPTIMIZER_BLOCK = 256,
    OPTIMIZER_UNIT = OPTIMIZER_BLOCK * 8, /* elements per block and iteration */
    UPDATE_SPANS = 256,                   /* tensors per launch, passed as kernel argument */
    UNSCALE_SPANS = 512,
    SELECT_SPANS = 256,
    SELECT_CHUNK = 16,                                        /* bytes per access */
    SELECT_UNIT = OPTIMIZER_BLOCK * SELECT_CHUNK,             /* bytes per block and iteration */
    CHECK_CHUNK = 16,                                         /* bytes per access */
    CHECK_CHUNKS = 4,                                         /* accesses in flight per thread */
    CHECK_UNIT = OPTIMIZER_BLOCK * CHECK_CHUNK * CHECK_CHUNKS /* bytes per block and iteration */
};

/* One tensor. States are the parameter, then its slots. Starts at unit `first` of the launch. */
typedef struct update_span {
    const float *old[UPDATE_STATES];
    float *made[UPDATE_STATES]; /* NULL: not wanted; may equal `old` (in place) */
    const void *grad;
    const float *ratio; /* NULL: none */
    void *low;          /* the parameter cast to low_dtype; NULL: not wanted */
    long long count;
    int first;
} update_span;

typedef struct update_table {
    int spans, units;
    int grad_dtype, low_dtype; /* common to all tensors */
    const float *lr, *scale;   /* scale: loss scale of the gradients; NULL: 1 */
    const void *step;          /* number of good steps so far; NULL: none, as for lr */
    int step_dtype;
    const unsigned char *skip; /* NULL: never skip */
    const int *fault;
    double attr[UPDATE_ATTRS];
    update_span span[UPDATE_SPANS];
} update_table;

/* One gradient; starts at unit `first` of the launch. */
typedef struct unscale_span {
    const void *grad;
    float *to; /* NULL: not wanted */
    long long count;
    int first;
} unscale_span;

typedef struct unscale_table {
    int spans, units, dtype; /* dtype: common to all gradients */
    const float *scale;
    unsigned char *found; /* set to 1 if any element is not finite; NULL: not wanted */
    double *squares;      /* check_and_square: `sums` of them, >= blocks, added to `before` */
    const double *before; /* may equal `squares`; NULL: zeros */
    int sums;
    unscale_span span[UNSCALE_SPANS];
} unscale_table;

/* y = cond ? a : b. Starts at unit `first` of the launch. */
typedef struct select_span {
    const char *a, *b;
    char *y;
    long long count; /* in bytes */
    int first;
} select_span;

typedef struct select_table {
    int spans, units;
    const unsigned char *cond; /* common to all */
    const int *fault;
    select_span span[SELECT_SPANS];
} select_table;

typedef struct loss_scaling {
    const unsigned char *found;
    const float *scale;
    const void *good, *bad;
    float *scale_out; /* results; NULL: not wanted */
    void *good_out, *bad_out;
    int good_dtype, bad_dtype;
    long long incr_every, decr_every;
    double incr_ratio, decr_ratio, min, max;
    int late, hysteresis;
    const int *fault;
} loss_scaling;

#endif
