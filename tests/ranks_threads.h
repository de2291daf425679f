/* ranks_threads.h - the ranks of a distributed training as threads of one process (kernels/ranks.h), for tests. */
#ifndef TESTS_RANKS_THREADS_H
#define TESTS_RANKS_THREADS_H

#include "kernels/ranks.h"

typedef struct ranks_threads ranks_threads;

/* shares: the part of the samples that each rank has; NULL: equal ones. Rank 0 has memory to stage, rank 1 has none, and
 * so on. */
ranks_threads *ranks_threads_new(int count, const double *shares);
void ranks_threads_free(ranks_threads *t);
k_ranks *ranks_threads_of(ranks_threads *t, int index);

/* Call number `call` of rank `index`, from 0, fails, and so do the calls of all others from then on. */
void ranks_threads_fail(ranks_threads *t, int index, int64_t call);
/* The number of all_reduce calls of a rank, and the elements that these had. */
int64_t ranks_threads_reductions(const ranks_threads *t, int index, int64_t *elements);

/* Runs the body for each rank in a thread of its own, and waits for all. A rank whose body returns has ended: the others
 * fail if they wait for it. The body must not use assertions of cmocka. */
void ranks_threads_run(ranks_threads *t, void (*body)(k_ranks *r, void *user), void *user);

#endif
