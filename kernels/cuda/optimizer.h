/* optimizer.h - arguments of the kernels in optimizer.cu. */
#ifndef AMPC_CUDA_OPTIMIZER_H
#define AMPC_CUDA_OPTIMIZER_H

enum {
    OPTIMIZER_BLOCK = 256,
    OPTIMIZER_UNIT = OPTIMIZER_BLOCK * 8, /* elements that a block handles at a time */
    UPDATE_STATES = 3,                    /* the parameter and what an optimizer keeps for it, at most */
    UPDATE_SPANS = 256,                   /* tensors of one launch; they travel as its argument */
    UNSCALE_SPANS = 512
};

/* One tensor; everything is f32. States are the parameter, then velocity or m and v. It begins at unit `first` of the
 * launch. */
typedef struct update_span {
    const float *old[UPDATE_STATES], *grad;
    float *made[UPDATE_STATES];           /* NULL: not wanted; may be the old one */
    long long count;
    int first;
} update_span;

typedef struct update_table {
    int spans, units;
    const float *lr;
    const void *step;                     /* adamw: accepted steps before this one */
    int step_dtype;
    int variant;                          /* momentum: nesterov; adamw: decoupled */
    const unsigned char *skip;            /* NULL: never */
    const int *fault;
    double decay, beta1, beta2;
    float mu, eps;
    update_span span[UPDATE_SPANS];
} update_table;

/* One gradient; it begins at unit `first` of the launch. */
typedef struct unscale_span {
    const void *grad;
    float *to;
    long long count;
    int first;
} unscale_span;

typedef struct unscale_table {
    int spans, units, dtype;            /* of all gradients */
    const float *scale;
    int *found;                         /* one for each block of the launch */
    unscale_span span[UNSCALE_SPANS];
} unscale_table;

typedef struct loss_scaling {
    const unsigned char *found;
    const float *scale;
    const void *good, *bad;
    float *scale_out;                   /* results: NULL when not wanted */
    void *good_out, *bad_out;
    int good_dtype, bad_dtype;
    long long incr_every, decr_every;
    double incr_ratio, decr_ratio, min;
    int late;
    const int *fault;
} loss_scaling;

#endif
