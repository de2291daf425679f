/* pool.h - arguments of the kernels in pool.cu. */
#ifndef AMPC_CUDA_POOL_H
#define AMPC_CUDA_POOL_H

enum {
    POOL_BLOCK = 256,
    POOL_SEGMENT = 11264, /* f32 sums per block of max_pool_grad in shared memory: 44 KiB */
    POOL_SLOTS = 1024,    /* plus 4 KiB to order the writers */
    POOL_BATCH = 4,       /* gradients that a thread reads before adding them */
    POOL_NO_TAP = 255     /* POOL_MAX_TAPS of kernels/pooling.h */
};

typedef struct pool_span {
    int in, out, kernel, stride, dilation, before, after;
} pool_span;

/* [planes, size, channels] with three spatial axes: in NHWC a plane is an image with all its channels, in NCHW one
 * channel of an image. `wide` is the size of x and dx, `narrow` that of y and dy. */
typedef struct pool_shape {
    pool_span axis[3];
    long long planes;
    int channels;
    int wide, narrow; /* positions per plane */
} pool_shape;

typedef struct pool_args {
    pool_shape shape;
    const void *from;
    void *to;
    int dtype;
    long long *indices;  /* max pooling; NULL: not wanted */
    unsigned char *taps; /* max pooling: instead of indices (kernels/pooling.h) */
    int column_major;
    int padded; /* average: padding counts */
    int sum;    /* average: without division */
} pool_args;

/* Gradient of max pooling. Each block processes some channels of a range of planes or, if a plane is too large, of one
 * segment of a plane. */
typedef struct pool_scatter {
    const void *dy;
    const long long *indices;
    void *dx;
    int dtype;
    long long planes, wide, narrow;
    int channels;
    int block_planes; /* planes per block; 1 if planes have several segments */
    int span;         /* positions per segment */
} pool_scatter;

#endif
