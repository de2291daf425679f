/* colour.h - the side table between colouring and cast insertion: for every node of a graph its colour, the type that
 * it computes in, the rule that decided and what caused it. That table is also what --explain prints. */
#ifndef AMPC_COLOUR_H
#define AMPC_COLOUR_H

#include "passes/amp/scope.h"

/* Fills in s->entries, one a node id (the graph is renumbered). Requires types inferred, no inserted casts yet. The low
 * type is IR_f16 or IR_bf16; where mixed precision is off every node gets the neutral entry of AMP_OFF. */
void amp_colour(ir_graph *g, amp_scope *s);

/* Whether the profile looks into bodies at this level. Then captures arrive in the type that they have. */
bool amp_lowers_bodies(const amp_scope *s);
/* Whether the node only chooses between bodies and is coloured like any operator, its captures as operands. */
bool amp_is_listed_control(const amp_scope *s, const ir_node *n);
bool amp_is_free_capture(const amp_scope *s, const ir_node *n, int i);

/* Level O2: by value id, the parameters that are low; their f32 storage is the master, of which one cast makes the low
 * copy. All but those that a protected slot reads, or a node that stays f32 for another reason than its list. */
bool *amp_low_params(const ir_graph *g, const amp_scope *s);

/* Adds the model nodes of g with float results to the report: low or f32, and why f32. */
void amp_count(const ir_graph *g, const amp_scope *s);

/* The answer to --explain: one block (text) or object (JSON) a model node; NULL when the name matches none. */
const char *amp_explain(const ir_graph *g, const amp_scope *s);

#endif
