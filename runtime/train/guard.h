/* guard.h - finds what an update has made NaN or infinite in trainings whose steps do not check their gradients.
 *
 * A check of the gradients in each step reads them once more, which costs up to a tenth of a step. Instead, the state
 * is examined where it leaves the training: before it is saved, and at the end. For a step after which that is due, a
 * copy of the parameters is kept, so that the step can be run again to find the node. In other steps, the loss of the
 * next one tells. */
#ifndef RT_GUARD_H
#define RT_GUARD_H

#include "runtime/session/session.h"

typedef struct rt_guard {
    rt_session *session;
    const ir_graph *step; /* the graph that updates; NULL: there is nothing to do */
    void **kept;          /* by storage: parameters and buffers before a step; NULL: none are kept */
    uint64_t examined;    /* the step after which the state was finite */
} rt_guard;

/* Zero-initialise; rt_guard_clear frees what is kept. */
void rt_guard_clear(rt_guard *g);
/* Keeps the parameters and buffers that the next step changes. Nothing is kept if memory is short. Fails with
 * AMPC_DEVICE. */
ampc_status rt_guard_keep(rt_guard *g, diag *d);
/* Sets *found to a parameter, buffer, optimizer state or average that the update has made NaN or infinite; NULL: none.
 * Fails with AMPC_DEVICE or AMPC_NO_MEMORY. */
ampc_status rt_guard_examine(const rt_guard *g, diag *d, const ir_storage **found);
/* Makes the step repeatable: what was kept gets its values back, and optimizer states, averages and sums of gradients
 * that are not finite become 0. */
ampc_status rt_guard_restore(rt_guard *g, diag *d);

#endif
