/* team.h - what the ranks of a distributed training agree on, besides the values of the graph.
 *
 * Every collective call of a training except rt_team_agree comes right after one, so a rank that fails calls it next,
 * when the others do too: they learn of the failure before they would wait for the rank. All functions accept NULL:
 * then there are no other ranks. */
#ifndef RT_TEAM_H
#define RT_TEAM_H

#include "ir/base/diag.h"
#include "kernels/ranks.h"
#include "runtime/train/reductions.h"

typedef struct rt_team rt_team;

/* Collective. `r` must outlive *out, which is NULL if there is only one rank. AMPC_DEVICE, AMPC_NO_MEMORY. */
ampc_status rt_team_open(k_ranks *r, diag *d, rt_team **out);
void rt_team_close(rt_team *p);

k_ranks *rt_team_ranks(rt_team *p);   /* for a session, whose reductions are timed; NULL: this is the only one */
bool rt_team_first(const rt_team *p); /* whether this rank writes the files and prints */
const char *rt_team_host(const rt_team *p, int rank);
/* Of the ranks on this host, the position of this one, from 0. */
int rt_team_local(const rt_team *p);
/* The processors that this rank may use, divided by the ranks that may use them. */
int rt_team_threads(const rt_team *p);

/* Collective. Tells the others the status of this rank and learns theirs. flags: bits below RT_TEAM_FLAGS, replaced by
 * those that any rank has set; NULL: none. Returns `mine` if it is an error, AMPC_DEVICE with a message if another rank
 * has one. After that, or after rt_team_lose, it returns `mine` at once. */
enum { RT_TEAM_FLAGS = 3 };
ampc_status rt_team_agree(rt_team *p, ampc_status mine, unsigned *flags, diag *d);
/* The other ranks have ended, or wait in the middle of a run. */
void rt_team_lose(rt_team *p);
/* Whether the error of this rank has also been reported by the first one. */
bool rt_team_repeats(const rt_team *p);

/* From now on the trace receives the reductions and waits of this rank. */
void rt_team_trace(rt_team *p, rt_trace *trace);
/* Collective. What each rank has spent in the reductions of its session, in times[number of ranks]. */
ampc_status rt_team_times(rt_team *p, rt_reduction_time *times, diag *d);

/* Collective. Replaces the data by those of rank 0. */
ampc_status rt_team_copy(rt_team *p, void *data, size_t bytes, diag *d);

/* What must be the same on all ranks, such as {"--seed", "2"}. */
typedef struct rt_team_fact {
    const char *name, *value;
} rt_team_fact;
/* Collective; the names may differ. Fails with AMPC_USAGE on all ranks if a rank has another value than rank 0. */
ampc_status rt_team_compare(rt_team *p, const rt_team_fact *facts, size_t n, diag *d);

#endif
