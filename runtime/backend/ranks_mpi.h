/* ranks_mpi.h - the ranks of an MPI program: messages, waiting for others, and failures. */
#ifndef RT_RANKS_MPI_H
#define RT_RANKS_MPI_H

#include "runtime/backend/ranks_peers.h"
#include "runtime/backend/ranks_sum.h"
#include "runtime/mpi/plugin.h"

/* A message that has begun. */
typedef struct rt_transfer {
    ampc_mpi_request request;
    int peer;
    bool done;
} rt_transfer;

/* Positions [first, last) of the additions, which are a subtree of them, and whose ranks are all on one node. */
typedef struct rt_ranks_span {
    int first, last, node;
} rt_ranks_span;

/* Which rank is at which position of the additions, with the largest spans. */
typedef struct rt_ranks_order {
    int *ranks;
    rt_ranks_span *spans;
    int span_count;
} rt_ranks_order;

typedef struct rt_ranks {
    k_ranks table; /* first */
    const ampc_mpi *mpi;
    double timeout;
    rt_peers peers;
    int *node_first;          /* the ranks of node i are node_ranks[node_first[i], node_first[i + 1]) */
    int *node_ranks;          /* in the order of the ranks */
    int nodes, local;         /* and the place of this rank on its node */
    rt_ranks_order orders[2]; /* by `tree` of all_reduce: if it is false, the ranks of a node are together */
    uint64_t step;            /* barriers so far */
    rt_transfer *transfers;
    int transfer_count, transfer_room;
    struct rt_notices *notices; /* NULL: all ranks are on this host */
    bool failed;
    ampc_status status;   /* of the failure */
    int blamed;           /* for it */
    bool silent;          /* that rank has not answered, rather than ended */
    rt_ranks_term *terms; /* for ranks_sum.h */
    void *scratch;
    size_t scratch_bytes;
} rt_ranks;

/* Begin messages between two ranks; rt_ranks_finish waits for all. */
ampc_status rt_ranks_send(rt_ranks *r, const void *data, size_t bytes, int to);
ampc_status rt_ranks_receive(rt_ranks *r, void *data, size_t bytes, int from);
ampc_status rt_ranks_finish(rt_ranks *r);
/* Waits for the other ranks of this node to come here. */
ampc_status rt_ranks_barrier(rt_ranks *r);
/* Reports that the rank has ended, or not answered for the time limit. */
ampc_status rt_ranks_lost(rt_ranks *r, int rank, bool silent);
ampc_status rt_ranks_no_memory(rt_ranks *r);

/* ranks_notice.c. Each does nothing if there are no notices. */
bool rt_notices_open(rt_ranks *r);  /* false: out of memory */
void rt_notices_close(rt_ranks *r); /* every rank calls it */
/* The rank whose failure another one has reported, or -1. */
int rt_notices_hear(rt_ranks *r, bool *silent);
/* While this rank waits for `peer`: tells the others if it has waited long enough to suspect that one, or if another
 * rank has. The rank for which all wait, as far as they have told. */
int rt_notices_wait(rt_ranks *r, int peer, bool long_enough);
/* Tells the others of a failure. */
void rt_notices_lost(rt_ranks *r, int rank, bool silent);
/* Waits a while for the others to tell their users, too. */
void rt_notices_leave(rt_ranks *r, int failed, bool silent);

ampc_status rt_ranks_all_reduce(k_ranks *k, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree);
void *rt_ranks_stage(k_ranks *k, size_t bytes);
ampc_status rt_ranks_all_gather(k_ranks *k, const void *mine, void *all, size_t bytes);
ampc_status rt_ranks_broadcast(k_ranks *k, void *data, size_t bytes, int root);
ampc_status rt_ranks_check(k_ranks *k, double waited);

#endif
