/* optimizer.h - arguments of the kernels in optimizer.cu. */
#ifndef AMPC_CUDA_OPTIMIZER_H
#define AMPC_CUDA_OPTIMIZER_H

enum {
    OPTIMIZER_BLOCK = 256,
    OPTIMIZER_UNIT = OPTIMIZER_BLOCK * 8, /* elements that a block handles at a time */
    UPDATE_STATES = 3,                    /* the parameter and what an optimizer keeps for it, at most */
    UPDATE_SPANS = 256,                   /* tensors of one launch; they travel as its argument */
    UNSCALE_SPANS = 512,
    SELECT_SPANS = 256,
    SELECT_CHUNK = 16,                    /* bytes of one access */
    SELECT_UNIT = OPTIMIZER_BLOCK * SELECT_CHUNK, /* bytes that a block handles at a time */
    CHECK_CHUNK = 16,                     /* bytes of one access */
    CHECK_CHUNKS = 4,                     /* that a thread has under way at a time */
    CHECK_UNIT = OPTIMIZER_BLOCK * CHECK_CHUNK * CHECK_CHUNKS /* bytes that a block handles at a time */
};

/* One tensor. States are the parameter, then velocity or m and v. It begins at unit `first` of the launch. */
typedef struct update_span {
    const float *old[UPDATE_STATES];
    float *made[UPDATE_STATES];           /* NULL: not wanted; may be the old one */
    const void *grad;
    void *low;                            /* the parameter in another type; NULL: not wanted */
    long long count;
    int first;
} update_span;

typedef struct update_table {
    int spans, units;
    int grad_dtype, low_dtype;            /* of all tensors */
    const float *lr, *scale;              /* of the loss that the gradients are of; NULL: 1 */
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
    float *to;                          /* NULL: not wanted */
    long long count;
    int first;
} unscale_span;

typedef struct unscale_table {
    int spans, units, dtype;            /* of all gradients */
    const float *scale;
    unsigned char *found;               /* raised when an element is not finite; NULL: not wanted */
    double *squares;                    /* check_and_square: `sums` of them, no fewer than blocks, added to `before` */
    const double *before;               /* may be `squares`; NULL: zeros */
    int sums;
    unscale_span span[UNSCALE_SPANS];
} unscale_table;

/* Result y of a choice between a and b. It begins at unit `first` of the launch. */
typedef struct select_span {
    const char *a, *b;
    char *y;
    long long count;                    /* bytes */
    int first;
} select_span;

typedef struct select_table {
    int spans, units;
    const unsigned char *cond;          /* of all */
    const int *fault;
    select_span span[SELECT_SPANS];
} select_table;

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
