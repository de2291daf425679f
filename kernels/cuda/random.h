/* random.h - arguments of the kernel in random.cu. */
#ifndef AMPC_CUDA_RANDOM_H
#define AMPC_CUDA_RANDOM_H

enum { RANDOM_BLOCK = 256 };

typedef struct random_draw {
    const void *rng; /* seed, step counter */
    void *y;
    long long count;
    int dtype, rng_dtype;
    unsigned long long stream; /* the op's stream plus 1 */
    int normal;
    float offset, scale;
} random_draw;

#endif
