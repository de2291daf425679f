/* gather.h - arguments of the kernels in gather.cu. */
#ifndef AMPC_CUDA_GATHER_H
#define AMPC_CUDA_GATHER_H

enum {
    GATHER_BLOCK = 256,
    GATHER_SIZES = 5,       /* kernels exist for elements of 1, 2, 4, 8 and 16 bytes */
    SORT_DIGITS = 256,      /* of a key, in a pass */
    SORT_TURN = GATHER_BLOCK, /* keys that a block places at a time */
    SORT_TURNS = 4,         /* of a block, at least */
    SORT_BLOCKS = 256,      /* at most */
    GATHER_AHEAD = 4,       /* rows that it reads at a time */
    GATHER_RUN = 32         /* sorted indices whose rows one group of threads adds up */
};

/* Table [outer, entries, inner], result [outer, indices, inner]. */
typedef struct gather_rows {
    const void *table, *indices;
    void *y;
    int dtype;              /* of the indices */
    int step, *fault;
    long long outer, entries, inner, count;
} gather_rows;

/* One pass of a stable sort: keys (rows of the table) with the positions that they had. */
typedef struct gather_sort {
    const void *indices;    /* the first pass makes its keys of them; NULL later */
    const unsigned *keys, *positions;
    unsigned *sorted_keys, *sorted_positions;
    unsigned *counts;       /* [SORT_DIGITS, blocks] */
    int dtype;
    int step, *fault;
    int shift;              /* of the pass's digit */
    long long entries, count, each; /* keys of a block */
    int blocks;
} gather_sort;

/* dy [outer, count, inner] into dx [outer, entries, inner], which is zero. */
typedef struct gather_sums {
    const void *dy;
    void *dx;
    int dy_dtype, dx_dtype;
    const unsigned *keys, *positions; /* sorted */
    float *partial;         /* [outer, runs, 2, inner]: the run's sum for a row that it shares with the run before it,
                               and for one that it shares with the run after it alone */
    long long outer, entries, inner, count, runs;
    int lanes;              /* neighbouring threads that share a run, each with a tile of columns */
} gather_sums;

#endif
