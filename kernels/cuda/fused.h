/* fused.h - arguments of fused kernels. */
#ifndef AMPC_CUDA_FUSED_H
#define AMPC_CUDA_FUSED_H

enum {
    FUSED_BLOCK = 256,
    FUSED_OPERANDS = 24, /* K_MAX_OPERANDS */
    FUSED_RESULTS = 8    /* K_MAX_RESULTS */
};

typedef struct fused_arguments {
    const void *operand[FUSED_OPERANDS]; /* entries that the kernel does not read are undefined */
    void *result[FUSED_RESULTS];         /* if folded in groups: buffer of f32 partial sums */
    const int *fault;
} fused_arguments;

#endif
