/* scope.h - the state of a graph during pass amp, shared by colouring, placement and cast insertion. */
#ifndef AMPC_SCOPE_H
#define AMPC_SCOPE_H

#include "passes/amp/casts.h"
#include "passes/amp/entry.h"

/* A subgraph has its own scope; its captures have the types that casting in the enclosing graph produced. */
typedef struct amp_scope {
    const struct amp_scope *enclosing; /* NULL: the graph is not a subgraph */
    compile *compile;
    arena *arena;           /* of the pass */
    compile_report *report; /* NULL: statistics and explanations do not describe this graph */
    bool off;               /* mixed precision is off: level O0, or a subgraph that the profile leaves unchanged */
    /* the table, and the casts that are added */
    amp_entry *entries; /* by node id */
    uint32_t nodes;     /* number of ids before casts are inserted */
    cast_table *casts;
    /* subgraphs only */
    ir_node *node;                /* the node whose subgraph this is */
    const bool *counts;           /* by input position: it counts as a producer */
    const ir_dtype *model_dtypes; /* by value id: types in the model, which the subgraph's results keep */
} amp_scope;

#endif
