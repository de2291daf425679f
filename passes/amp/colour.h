/* colour.h - the side table between colouring and cast insertion: for every node of a graph its colour, the type that
 * it computes in, the rule that decided and what caused it. That table is also what --explain prints. */
#ifndef AMPC_COLOUR_H
#define AMPC_COLOUR_H

#include "passes/amp/casts.h"
#include "passes/amp/entry.h"

/* What a body gets from the graph around it. Its captures have the types that casting outside gave them. */
typedef struct amp_outside {
    const bool *counts;    /* by position of the input: its producer counts as one */
    const ir_dtype *asked; /* by value id: types in the model, which the results of the body keep */
    ir_dtype result;       /* that its f32 results have instead, or IR_NO_DTYPE */
    ir_node *node;         /* whose body it is */
    const cast_table *casts; /* of the node's graph: amp_cast */
    const struct amp_outside *outside; /* of that graph, when it is a body too */
} amp_outside;

/* One entry a node id (the graph is renumbered). Requires types inferred, no inserted casts yet. `low` is IR_f16 or
 * IR_bf16; level O0 gives every node the neutral entry of AMP_OFF. In the arena. */
amp_entry *amp_colour(ir_graph *g, const amp_list *l, const pass_options *o, arena *a, diag *d);

/* Whether the profile looks into bodies at this level. Then captures arrive in the type that they have. */
bool amp_lowers_bodies(const amp_list *l, const pass_options *o);
/* Whether the node only chooses between bodies and is coloured like any operator, its captures as operands. */
bool amp_is_listed_control(const amp_list *l, const pass_options *o, const ir_node *n);
bool amp_is_free_capture(const amp_list *l, const pass_options *o, const ir_node *n, int i);
/* By value id: the types that statements and foreign nodes ask for, those of the model. */
const ir_dtype *amp_asked(const ir_graph *g, arena *a);

/* Level O2: by value id, the parameters that are low; their f32 storage is the master, of which one cast makes the low
 * copy. All but those that a protected slot reads, or a node that stays f32 for another reason than its list. */
bool *amp_low_params(const ir_graph *g, const amp_list *l, const pass_options *o, const amp_entry *entries, arena *a);

/* Inserts casts so that every node gets the types of its entry, and infers types anew. One cast per (value, type);
 * `casts` takes them, for the bodies of the nodes read them too. */
ampc_status amp_cast(ir_graph *g, const amp_entry *entries, const amp_list *l, const pass_options *o, cast_table *casts,
                     arena *a, diag *d);

/* Adds the model nodes of g with float results to o->stats: low or f32, and why f32. */
void amp_count(const ir_graph *g, const amp_entry *entries, const pass_options *o, arena *a);

/* The answer to --explain: one block (text) or object (JSON) a model node; NULL when the name matches none. */
const char *amp_explain(const ir_graph *g, const amp_entry *entries, const pass_options *o, arena *a);

#endif
