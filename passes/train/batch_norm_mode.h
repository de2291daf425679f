/* batch_norm_mode.h - whether BatchNormalization nodes use batch or running statistics. */
#ifndef AMPC_BATCH_NORM_MODE_H
#define AMPC_BATCH_NORM_MODE_H

#include "passes/pass.h"

/* Every BatchNormalization uses its running statistics. */
void batch_norm_set_eval(ir_graph *g);
/* Every BatchNormalization uses batch statistics and updates its running ones, unless they are frozen. */
void batch_norm_set_train(ir_graph *g, const compile_options *o, diag *d);
/* A BatchNormalization whose running statistics match --freeze uses them and does not update them. */
void batch_norm_freeze(ir_graph *g, const compile_options *o);
/* Notes, unless --mode is given, that a model exported for evaluation does not train as its network originally did. */
void batch_norm_note_fixed(const ir_graph *g, const compile_options *o, diag *d);
/* Notes that --mode=train has nothing to change. */
void batch_norm_note_absent(const ir_graph *g, diag *d);

#endif
