/* ranks.h - what the kernels of one rank need to know of the other ranks of a distributed training.
 *
 * A rank is a process, or a thread of a test. Every rank calls the functions in the same order with the same sizes and
 * types. Each returns AMPC_OK, or AMPC_DEVICE if a rank has ended or has not called within the time limit; then `error`
 * names it, and no function may be called again. */
#ifndef AMPC_RANKS_H
#define AMPC_RANKS_H

#include "ir/base/ampc_status.h"
#include "ir/ops/ops.h"

typedef enum k_reduced { /* the words of attribute `by` */
                         K_REDUCED_sum,
                         K_REDUCED_mean,
                         K_REDUCED_max
} k_reduced;

typedef enum k_number { /* the words of attribute `number` */
                        K_NUMBER_index,
                        K_NUMBER_count,
                        K_NUMBER_share
} k_number;

typedef struct k_ranks k_ranks;

/* What a rank has done so far. */
typedef struct k_ranks_counts {
    int64_t reductions, reduced; /* calls of all_reduce, and the bytes of their data */
    int64_t messages, sent;      /* to ranks on other hosts, and their bytes */
} k_ranks_counts;

struct k_ranks {
    int index, count; /* of this rank, from 0; of all ranks, at least 1 */
    double share;     /* of the samples of a step that this rank has; those of all ranks add up to 1 */
    char error[512];
    k_ranks_counts counts;
    size_t piece; /* the bytes that a reduction should have, so that they stay in the caches; 0: as many as there are */
    bool continues; /* set for a call of all_reduce after which more pieces of the same reduction follow */
    bool muted;     /* a collective op keeps its own operands */
    bool lost;      /* a kernel has failed in which the other ranks wait, or will, so this one must end */
    /* Replaces n elements at `data`, in host memory, by their sums, or the largest ones. Those of low types are added
     * in f32; every partial sum is rounded. The results are the same on all ranks. tree: the additions of an element
     * are a balanced tree over the ranks, ((0+1)+(2+3)).., so they are those that one rank would make. `by` is not
     * mean. */
    ampc_status (*all_reduce)(k_ranks *r, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree);
    /* Memory for at least `bytes` that the next all_reduce reads without a copy; NULL: there is none, any memory will
     * do. Valid until that call, whose results it then has, and after that until the next call of any function. */
    void *(*stage)(k_ranks *r, size_t bytes);
    /* Stores `bytes` of each rank in the order of the ranks at `all`, on all ranks. */
    ampc_status (*all_gather)(k_ranks *r, const void *mine, void *all, size_t bytes);
    /* Replaces the data by those of rank `root`. */
    ampc_status (*broadcast)(k_ranks *r, void *data, size_t bytes, int root);
    /* For a wait that is not in these functions. AMPC_DEVICE if a rank is known to have ended, or if `waited`, the
     * seconds so far, are more than the time limit. Never waits. */
    ampc_status (*check)(k_ranks *r, double waited);
};

/* The part of n elements that rank `index` of `count` has: [*first, *first + result). The parts differ by at most one
 * element, and are empty for some ranks if n < count. */
static inline int64_t k_rank_part(int64_t n, int index, int count, int64_t *first)
{
    const int64_t each = n / count, rest = n % count;
    *first = index * each + (index < rest ? index : rest);
    return each + (index < rest);
}

#endif
