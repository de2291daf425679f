/* dropout.h - arguments of the kernels in dropout.cu. */
#ifndef AMPC_CUDA_DROPOUT_H
#define AMPC_CUDA_DROPOUT_H

enum { DROPOUT_BLOCK = 256 };

typedef struct dropout_draw {
    const void *x, *rng; /* rng: seed, step counter */
    void *y, *mask;      /* NULL: not wanted */
    long long count;
    int dtype, rng_dtype;
    unsigned long long stream;    /* the op's stream plus 1 */
    unsigned long long threshold; /* ratio * 2^32; elements with smaller words are dropped */
    float scale;
} dropout_draw;

typedef struct dropout_apply {
    const void *dy, *mask;
    void *dx;
    long long count;
    int dtype;
    float scale;
} dropout_apply;

#endif
