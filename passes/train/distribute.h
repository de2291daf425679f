/* distribute.h - the parts of pass distribute, which makes a training graph one of several ranks. */
#ifndef AMPC_DISTRIBUTE_H
#define AMPC_DISTRIBUTE_H

#include "ir/ops/words.h"
#include "passes/pass.h"

/* Called for @train_step, @accumulate and @grad before the gradients are reduced. On one rank they change no value. */

/* Losses that divide by a weight of their samples: by the weight of all ranks times the share of this one
 * (distribute_weights.c). */
ampc_status distribute_weights(ir_graph *g, diag *d);
/* With --sync-bn: the statistics of BatchNormalization are those of all ranks (distribute_batch_norm.c). */
ampc_status distribute_batch_norm(ir_graph *g, diag *d);
/* Notes what the statistics of BatchNormalization depend on, if it is not what one process has. Before the above. */
void distribute_note_batch_norm(ir_graph *g, const compile_options *o, diag *d);
/* With compile_options.tree: all sums over samples of @train_step, or of @accumulate and @apply, are balanced trees
 * over the micro-batches, instead of the reductions of distribute.c (distribute_tree.c). */
ampc_status distribute_tree(ir_module *m, const compile_options *o, diag *d);

/* ---- distribute_ops.c -------------------------------------------------------------------------- */

/* One all_reduce of n values at the builder's position; replaces them by the results, which are named after them. */
bool distribute_reduce(ir_builder *b, ir_value **values, int n, enum ir_words_reduced by, ir_dtype wire, bool tree);
/* The f32 scalar of op rank_number. */
ir_value *distribute_number(ir_builder *b, enum ir_words_rank_number number);

#endif
