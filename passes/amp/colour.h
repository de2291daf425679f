/* colour.h - the side table between colouring and cast insertion: for every node of a graph its colour, the type that
 * it computes in, the rule that decided and what caused it. That table is also what --explain prints. */
#ifndef AMPC_COLOUR_H
#define AMPC_COLOUR_H

#include "passes/amp/casts.h"
#include "passes/amp/entry.h"

/* A graph during the pass. A body has a scope of its own, whose captures have the types that casting outside gave
 * them. */
typedef struct amp_scope {
    const struct amp_scope *enclosing; /* of the graph around a body; NULL: it is no body */
    compile *compile;
    arena *arena;           /* of the pass */
    compile_report *report; /* NULL: the graph is not the one that statistics and explanations speak of */
    bool off;               /* mixed precision is off: level O0, or a body that the profile leaves as it is */
    /* the table, and what casting adds to it */
    amp_entry *entries; /* by node id */
    uint32_t nodes;     /* ids that existed before */
    cast_table *casts;
    /* of a body */
    ir_node *node;          /* whose body it is */
    const bool *counts;     /* by position of the input: its producer counts as one */
    const ir_dtype *asked;  /* by value id: types in the model, which the results of the body keep */
} amp_scope;

/* Fills in s->entries, one a node id (the graph is renumbered). Requires types inferred, no inserted casts yet. The low
 * type is IR_f16 or IR_bf16; where mixed precision is off every node gets the neutral entry of AMP_OFF. */
void amp_colour(ir_graph *g, amp_scope *s);

/* Whether the profile looks into bodies at this level. Then captures arrive in the type that they have. */
bool amp_lowers_bodies(const amp_scope *s);
/* Whether the node only chooses between bodies and is coloured like any operator, its captures as operands. */
bool amp_is_listed_control(const amp_scope *s, const ir_node *n);
bool amp_is_free_capture(const amp_scope *s, const ir_node *n, int i);
/* By value id: the types that statements and foreign nodes ask for, those of the model. */
const ir_dtype *amp_asked(const ir_graph *g, arena *a);

/* Level O2: by value id, the parameters that are low; their f32 storage is the master, of which one cast makes the low
 * copy. All but those that a protected slot reads, or a node that stays f32 for another reason than its list. */
bool *amp_low_params(const ir_graph *g, const amp_scope *s);

/* Inserts casts so that every node gets the types of its entry in s->entries, and infers types anew. One cast per
 * (value, type); s->casts keeps them, for the bodies of the nodes read them too. */
ampc_status amp_cast(ir_graph *g, const amp_scope *s);

/* Adds the model nodes of g with float results to the report: low or f32, and why f32. */
void amp_count(const ir_graph *g, const amp_scope *s);

/* The answer to --explain: one block (text) or object (JSON) a model node; NULL when the name matches none. */
const char *amp_explain(const ir_graph *g, const amp_scope *s);

#endif
