/* scope.h - a graph during the pass: what its steps hand to each other. */
#ifndef AMPC_SCOPE_H
#define AMPC_SCOPE_H

#include "passes/amp/casts.h"
#include "passes/amp/entry.h"

/* A body has a scope of its own; its captures have the types that casting outside gave them. */
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
    ir_node *node;         /* whose body it is */
    const bool *counts;    /* by position of the input: its producer counts as one */
    const ir_dtype *asked; /* by value id: types in the model, which the results of the body keep */
} amp_scope;

#endif
