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

enum { PLACES_RANK = 12 /* IR_MAX_RANK */ };

/* The rows that indices address: see kernels/places.h. */
typedef struct cuda_places {
    const void *indices;
    int dtype; /* of the indices */
    int step, *fault;
    int rank, depth;
    long long dims[PLACES_RANK], base[PLACES_RANK]; /* of the items */
    long long size[PLACES_RANK], stride[PLACES_RANK];
    long long count, rows, inner;
} cuda_places;

/* One pass of a stable radix sort of keys (rows of the table) with their original positions. */
typedef struct gather_sort {
    cuda_places places;
    int is_first; /* the first pass computes its keys from the places */
    const unsigned *keys, *positions;
    unsigned *sorted_keys, *sorted_positions;
    unsigned *counts;      /* [SORT_DIGITS, blocks] */
    int shift;             /* bit position of this pass's digit */
    long long count, each; /* each: keys per block */
    int blocks;
} gather_sort;

/* Reduces dy [outer, count, inner] into dx [outer, entries, inner]. */
typedef struct row_sums {
    const void *dy;
    void *dx;
    int dy_dtype, dx_dtype;
    const unsigned *keys, *positions; /* sorted */
    void *partial; /* [outer, runs, 2, inner] carriers: the run's sum for the row shared with the previous run, and
                               for the row shared only with the next run */
    int mode;      /* of a scatter: ir_words_scatter */
    long long outer, entries, inner, count, runs;
    int lanes; /* adjacent threads per run, each with one tile of columns */
} row_sums;

#endif
