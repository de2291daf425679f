/* fused.h - arguments of fused kernels. */
#ifndef AMPC_CUDA_FUSED_H
#define AMPC_CUDA_FUSED_H

enum {
    PROGRAM_BLOCK = 256,
    PROGRAM_OPERANDS = 24, /* K_MAX_OPERANDS */
    PROGRAM_RESULTS = 8    /* K_MAX_RESULTS */
};

typedef struct program_arguments {
    const void *operand[PROGRAM_OPERANDS]; /* entries that the kernel does not read are undefined */
    void *result[PROGRAM_RESULTS];         /* if folded in groups: buffer of f32 partial sums */
    const int *fault;
} program_arguments;

#endif
