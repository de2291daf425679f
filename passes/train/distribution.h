/* distribution.h - --explain=distribution: the reductions of a training step, and what they cost on many ranks. */
#ifndef AMPC_DISTRIBUTION_H
#define AMPC_DISTRIBUTION_H

#include "passes/pass.h"

/* Prints the all_reduce nodes of the step of a module that pass distribute has changed, and the predicted times for 1
 * to 4096 ranks with equal numbers of samples, as text or as one JSON object. */
ampc_status distribution_explain(const ir_module *m, const compile *c, arena *a);

#endif
