/* replicas.h - the state of a training on several ranks: the same on all of them. */
#ifndef RT_REPLICAS_H
#define RT_REPLICAS_H

#include "runtime/train/checkpoint.h"
#include "runtime/train/team.h"

/* Collective. Replaces the state of the run and the storage of the session by those of rank 0. */
ampc_status rt_replicas_copy(rt_team *p, rt_session *s, rt_run_state *run, diag *d);
/* Collective. Fails like rt_team_compare if ranks differ in the storage, or in the data: their number, their fields,
 * or the first samples in the order of `seed`. */
ampc_status rt_replicas_compare(rt_team *p, rt_session *s, rt_dataset *data, uint64_t seed, diag *d);
/* Collective. Fails like rt_team_compare if the collective operations of the graph, their sizes or their order are not
 * the same, each rank with its own inputs. NULL instead of the graph: nothing to compare. */
ampc_status rt_replicas_compare_plans(rt_team *p, rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n,
                                      diag *d);

#endif
