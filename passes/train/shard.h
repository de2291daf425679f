/* shard.h - the strategy `optimizer` of distributed training: each rank has a slice of what the optimizers keep. */
#ifndef AMPC_TRAIN_SHARD_H
#define AMPC_TRAIN_SHARD_H

#include "passes/pass.h"

/* Rewrites the graphs that update parameters, whose gradients are the same on all ranks (all_reduce), for this number
 * of ranks. Nothing changes for one.
 * `bucket`: the bytes of parameters that are gathered at once. */
ampc_status shard_optimizer(ir_module *m, int64_t ranks, int64_t bucket, diag *d);

#endif
