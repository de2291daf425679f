/* params.h - the parts of pass params: facts, folding and reports. */
#ifndef AMPC_PARAMS_H
#define AMPC_PARAMS_H

#include "passes/pass.h"

static inline int64_t params_count_elements(const ir_storage *s)
{
    return ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype);
}

static inline bool params_is_single(const ir_storage *s) { return params_count_elements(s) == 1; }

/* fact_rules.c */

typedef struct params_rule {
    ir_rule rule;
    uint32_t needs, unless; /* facts */
    bool single;            /* only for a single element */
    bool always;            /* also in a graph that does not train */
    bool firm;              /* --train cannot release the tensor */
} params_rule;

/* The rule about its facts that holds the tensor constant, or NULL. */
const params_rule *params_fact_rule(const ir_storage *s);
/* Whether the rule also applies in a graph that does not train. */
bool params_rule_is_general(const ir_storage *s, const params_rule *r);

/* hold.c */

/* Records which parameters are masks in the operand of a softmax (fact `mask`). */
void params_find_masks(const ir_module *m, const compile *c, arena *a);
/* Folds nodes that the graphs compute from constants only. */
void params_fold(ir_module *m, const compile *c, arena *a);

/* params_report.c; both run between the decisions and their effects. */

/* Reports in one note how many initializers are trained, and which are held constant. */
void params_note(const ir_module *m, diag *d, arena *a);
/* Warns about what the exporter did to the network that changes its training (ir/graph/exported.def). */
ampc_status params_check_export(const ir_module *m, diag *d, arena *a);
/* --explain=params: prints one line, or one JSON object, for each float initializer. */
void params_explain(const ir_module *m, const compile *c, arena *a);

#endif
