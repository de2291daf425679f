/* gather.h - arguments of the kernels in gather.cu. */
#ifndef AMPC_CUDA_GATHER_H
#define AMPC_CUDA_GATHER_H

enum {
    GATHER_BLOCK = 256,
    GATHER_SIZES = 5,         /* kernels exist for elements of 1, 2, 4, 8 and 16 bytes */
    SORT_DIGITS = 256,        /* values of a key digit; one digit per pass */
    SORT_TURN = GATHER_BLOCK, /* keys that a block places per turn */
    SORT_TURNS = 4,           /* minimum turns per block */
    SORT_BLOCKS = 256,        /* maximum */
    GATHER_BATCH = 4,         /* rows that a thread reads at a time */
    GATHER_RUN = 32           /* sorted indices whose rows one group of threads sums */
};

/* Table [outer, entries, inner], result [outer, indices, inner]. */
typedef struct gather_rows {
    const void *table, *indices;
    void *y;
    int dtype; /* of the indices */
    int step, *fault;
    long long outer, entries, inner, count;
} gather_rows;

/* One pass of a stable radix sort of keys (rows of the table) with their original positions. */
typedef struct gather_sort {
    const void *indices; /* the first pass computes its keys from them; NULL in later passes */
    const unsigned *keys, *positions;
    unsigned *sorted_keys, *sorted_positions;
    unsigned *counts; /* [SORT_DIGITS, blocks] */
    int dtype;
    int step, *fault;
    int shift;                      /* bit position of this pass's digit */
    long long entries, count, each; /* each: keys per block */
    int blocks;
} gather_sort;

/* Adds dy [outer, count, inner] into dx [outer, entries, inner], which is zero before. */
typedef struct gather_sums {
    const void *dy;
    void *dx;
    int dy_dtype, dx_dtype;
    const unsigned *keys, *positions; /* sorted */
    float *partial; /* [outer, runs, 2, inner]: the run's sum for the row shared with the previous run, and for
                               the row shared only with the next run */
    long long outer, entries, inner, count, runs;
    int lanes; /* adjacent threads per run, each with one tile of columns */
} gather_sums;

#endif
