/* cast.h - cast insertion: makes the graph agree with the table of colour.c. */
#ifndef AMPC_CAST_H
#define AMPC_CAST_H

#include "passes/amp/scope.h"

/* By value id: the types of the model, which statements and opaque operators require. */
const ir_dtype *amp_model_dtypes(const ir_graph *g, arena *a);
/* Inserts casts to give every node the types of its entry in s->entries, and infers the types of all results. There is
 * one cast per (value, type), recorded in s->casts, because subgraphs use the casts too. */
ampc_status amp_cast(ir_graph *g, const amp_scope *s);

#endif
