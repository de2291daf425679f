/* params.h - the parts of pass params: held constants and reports on them. */
#ifndef AMPC_PARAMS_H
#define AMPC_PARAMS_H

#include "passes/pass.h"

/* hold.c */

/* Marks parameters that are masks in the operand of a softmax (IR_HELD_MASK). */
void params_mark_masks(const ir_module *m, const compile *c, arena *a);
/* Folds nodes that the graphs compute from constants only. */
void params_fold(ir_module *m, const compile *c, arena *a);

/* Whether the parameter is held, but may be trained by giving its name to --train. */
static inline bool params_releases(const ir_storage *s)
{
    return s->held && s->held != IR_HELD_APART && s->held != IR_HELD_READ;
}

/* params_report.c; both run before the held parameters become constants. */

/* Reports in one note how many initializers are trained, and which are held. */
void params_note(const ir_module *m, diag *d, arena *a);
/* Warns about what the exporter did to the network that changes its training (ir/graph/exported.def). */
ampc_status params_check_export(const ir_module *m, diag *d, arena *a);
/* --explain=params: prints one line, or one JSON object, for each float initializer. */
void params_explain(const ir_module *m, const compile *c, arena *a);

#endif
