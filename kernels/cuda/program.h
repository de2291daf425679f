/* program.h - arguments of the kernels that are made from programs. */
#ifndef AMPC_CUDA_PROGRAM_H
#define AMPC_CUDA_PROGRAM_H

enum {
    PROGRAM_BLOCK = 256,
    PROGRAM_OPERANDS = 24, /* K_MOST_OPERANDS */
    PROGRAM_RESULTS = 8    /* K_MOST_RESULTS */
};

typedef struct program_arguments {
    const void *operand[PROGRAM_OPERANDS]; /* those that are not read may be anything */
    void *result[PROGRAM_RESULTS];         /* a folded one: where its parts go, f32, if its rows are cut into groups */
    const int *fault;
} program_arguments;

#endif
