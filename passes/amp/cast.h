/* cast.h - cast insertion: the graph made to agree with the table of colour.c. */
#ifndef AMPC_CAST_H
#define AMPC_CAST_H

#include "passes/amp/scope.h"

/* By value id: the types that statements and foreign nodes ask for, those of the model. */
const ir_dtype *amp_asked(const ir_graph *g, arena *a);
/* Inserts casts so that every node gets the types of its entry in s->entries, and infers types anew. One cast per
 * (value, type); s->casts keeps them, for the bodies of the nodes read them too. */
ampc_status amp_cast(ir_graph *g, const amp_scope *s);

#endif
