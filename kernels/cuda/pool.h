/* pool.h - arguments of the kernels in pool.cu. */
#ifndef AMPC_CUDA_POOL_H
#define AMPC_CUDA_POOL_H

enum {
    POOL_BLOCK = 256,
    POOL_SEGMENT = 11264, /* f32 sums that a block of max_pool_grad holds in shared memory: 44 KiB */
    POOL_SLOTS = 1024,    /* and 4 KiB for who writes next */
    POOL_AHEAD = 4        /* gradients that a thread of it looks at before it adds them */
};

typedef struct pool_span {
    int in, out, kernel, stride, dilation, before, after;
} pool_span;

/* [planes, size, channels] with three spatial axes: a plane is an image with all its channels (channels last) or one
 * channel of an image. `wide` is the side of x and dx, `narrow` that of y and dy. */
typedef struct pool_shape {
    pool_span axis[3];
    long long planes;
    int channels;
    int wide, narrow; /* positions of a plane */
} pool_shape;

typedef struct pool_args {
    pool_shape shape;
    const void *from;
    void *to;
    int dtype;
    long long *indices; /* maximum: NULL when not wanted */
    int column_major;
    int padded;         /* average: the padding counts */
} pool_args;

/* The gradient of the maximum: a block has some channels of a range of planes, or of a segment of a plane that is too
 * large for it. */
typedef struct pool_scatter {
    const void *dy;
    const long long *indices;
    void *dx;
    int dtype;
    long long planes, wide, narrow;
    int channels;
    int block_planes; /* planes of a block; 1 where a plane has several segments */
    int span;         /* positions of a segment */
} pool_scatter;

#endif
