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

#endif
