/* peers.h - what the ranks of a distributed training agree on, besides the values of the graph.
 *
 * Every collective call of a training except rt_peers_agree comes right after one, so a rank that fails calls it next,
 * when the others do too: they learn of the failure before they would wait for the rank. All functions accept NULL:
 * then there are no other ranks. */
#ifndef RT_PEERS_H
#define RT_PEERS_H

#include "ir/base/diag.h"
#include "kernels/ranks.h"

typedef struct rt_peers rt_peers;

/* Collective. `r` must outlive *out, which is NULL if there is only one rank. AMPC_DEVICE, AMPC_NO_MEMORY. */
ampc_status rt_peers_open(k_ranks *r, diag *d, rt_peers **out);
void rt_peers_close(rt_peers *p);

k_ranks *rt_peers_ranks(const rt_peers *p); /* NULL: this is the only one */
bool rt_peers_first(const rt_peers *p);     /* whether this rank writes the files and prints */
const char *rt_peers_host(const rt_peers *p, int rank);
/* Of the ranks on this host, the position of this one, from 0. */
int rt_peers_local(const rt_peers *p);
/* The processors that this rank may use, divided by the ranks that may use them. */
int rt_peers_threads(const rt_peers *p);

/* Collective. Tells the others the status of this rank and learns theirs. flags: bits below RT_PEERS_FLAGS, replaced by
 * those that any rank has set; NULL: none. Returns `mine` if it is an error, AMPC_DEVICE with a message if another rank
 * has one. After that, or after rt_peers_lose, it returns `mine` at once. */
enum { RT_PEERS_FLAGS = 3 };
ampc_status rt_peers_agree(rt_peers *p, ampc_status mine, unsigned *flags, diag *d);
/* The other ranks have ended, or wait in the middle of a run. */
void rt_peers_lose(rt_peers *p);
/* Whether the error of this rank has also been reported by the first one. */
bool rt_peers_repeats(const rt_peers *p);

/* Collective. Replaces the data by those of rank 0. */
ampc_status rt_peers_copy(rt_peers *p, void *data, size_t bytes, diag *d);

/* What must be the same on all ranks, such as {"--seed", "2"}. */
typedef struct rt_peers_fact {
    const char *name, *value;
} rt_peers_fact;
/* Collective; the names may differ. Fails with AMPC_USAGE on all ranks if a rank has another value than rank 0. */
ampc_status rt_peers_compare(rt_peers *p, const rt_peers_fact *facts, size_t n, diag *d);

#endif
