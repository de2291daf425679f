/* trust.h - arguments of the kernels in trust.cu. */
#ifndef AMPC_CUDA_TRUST_H
#define AMPC_CUDA_TRUST_H

enum {
    TRUST_BLOCK = 256,
    TRUST_SPANS = 256, /* tensors per launch, passed as kernel argument */
    TRUST_PARTS = 64   /* of each of two tensors */
};

typedef struct parts_span {
    const float *a, *b;
    float *parts;
    double root;             /* divides the norms */
    long long count, length; /* length: of a part */
} parts_span;

typedef struct parts_table {
    int spans;
    parts_span span[TRUST_SPANS];
} parts_table;

typedef struct trust_span {
    const float *parts;
    float *ratio;
} trust_span;

typedef struct trust_table {
    int spans;
    double coefficient, decay, eps; /* trust_ratio */
    double least, clip;             /* clipped_ratio */
    trust_span span[TRUST_SPANS];
} trust_table;

#endif
