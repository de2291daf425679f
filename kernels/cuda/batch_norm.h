/* batch_norm.h - arguments of the kernels in batch_norm.cu. */
#ifndef AMPC_CUDA_BATCH_NORM_H
#define AMPC_CUDA_BATCH_NORM_H

#include "kernels/cuda/rows.h"

enum {
    NORM_SPLITS = 32,       /* most blocks per channel (except for strips), so that one warp can combine their sums */
    NORM_INTERLEAVED = 32,  /* images smaller than this are read 32 channels at a time */
    NORM_STRIP_BLOCKS = 528 /* blocks that sum strips of a large array */
};

/* [batch, channels, size]. In NHWC, or without spatial axes, size is 1 and batch counts pixels. */
typedef struct norm_shape {
    long long batch, channels, size;
    int splits; /* partial sums per channel, one per block */
    int pack;   /* adjacent pixels treated as one, to make rows whole tiles */
    int lanes;  /* adjacent threads per such row */
    int relu;   /* the gradient of a relu is computed, too */
} norm_shape;

/* Forward: sums of x and of its squares. Backward: sums of dy and of dy (x - mean). */
typedef struct norm_sums {
    double first, second;
} norm_sums;

typedef struct norm_input {
    norm_shape shape;
    const void *x, *dy;
    const float *mean;
    int dtype;
    norm_sums *sums; /* [pack][channels][splits] */
} norm_input;

/* Forward: y = (x - centre) a + b. Backward: dx = a dy - (b + d (x - centre)). */
typedef struct norm_factors {
    float centre, a, b, d;
} norm_factors;

typedef struct norm_forward {
    norm_input in;
    const void *scale, *bias, *mean, *var;
    const float *sum, *squares; /* of x, if they are known (kernels/statistics.h); NULL: in.sums */
    void *mean_out, *var_out;   /* results; NULL: not wanted */
    float *saved_mean, *saved_rstd;
    int dtype; /* of scale, bias and the running statistics */
    int training;
    double eps, momentum;
    norm_factors *factors; /* [channels] */
} norm_forward;

/* Backward, if a relu follows the normalisation (kernels/norm_grad.h). */
typedef struct norm_relu {
    const void *addend; /* NULL: none */
    const void *y;      /* NULL: recomputed from x */
    void *masked;       /* NULL: not wanted */
    const float *rstd;
    const void *scale, *bias;
    int dtype; /* of scale and bias */
} norm_relu;

typedef struct norm_backward {
    norm_input in;
    const void *scale;
    const float *rstd;
    void *dscale, *dbias; /* NULL: not wanted */
    int dtype;            /* of scale, dscale, dbias */
    int training;
    norm_factors *factors;
} norm_backward;

#endif
