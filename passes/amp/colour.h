/* colour.h - the side table between colouring and cast insertion: for every node of a graph its colour, the type it
 * computes in, the rule that decided, and the cause. --explain prints this table. */
#ifndef AMPC_COLOUR_H
#define AMPC_COLOUR_H

#include "passes/amp/scope.h"

/* Fills in s->entries, one entry per node id (the graph is renumbered). Requires inferred types and no inserted casts.
 * The low type is IR_f16 or IR_bf16. If mixed precision is off, every node gets the neutral entry with AMP_OFF. */
void amp_colour(ir_graph *g, amp_scope *s);

/* Whether the profile colours subgraphs at this level. Captures then have whatever type casting has given them. */
bool amp_lowers_subgraphs(const amp_scope *s);
/* Whether operand i is a capture of a coloured subgraph, which accepts it in any type. */
bool amp_is_free_capture(const amp_scope *s, const ir_node *n, int i);

/* Level O2: by value id, which parameters are low. Their f32 storage is the master, of which one cast makes the low
 * copy. Parameters stay f32 if a protected slot reads them, or a node that is f32 for a reason other than its list. */
bool *amp_low_params(const ir_graph *g, const amp_scope *s);

/* By node id, which operators that only move weights are low, because everything that reads them is. Requires the
 * colours of the lists. None unless the graph is for another runtime and the profile converts constants. */
const bool *amp_low_moves(const ir_graph *g, const amp_scope *s, const list_place *const *inside);

/* Writes the object that --stats --json prints. */
void amp_write_stats(struct json_writer *w, const char *key, const ir_graph *g, const compile *c, arena *a);
/* Adds the model nodes of g with float results to the report: low or f32, and the reason for f32. */
void amp_count(const ir_graph *g, const amp_scope *s);

#endif
