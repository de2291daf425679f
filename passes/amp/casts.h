/* casts.h - a side table of one graph that maps values and types to the existing casts. */
#ifndef AMPC_CASTS_H
#define AMPC_CASTS_H

#include "ir/graph/ir.h"

typedef struct cast_kind {
    ir_dtype to;
    bool attribute; /* for an attribute of an operator: amp_list_is_attribute */
    double limit;   /* of the finite numbers: range_find_limits; 0: none */
} cast_kind;

typedef struct cast_table cast_table;
cast_table *casts_new(arena *a);
/* Returns NULL if there is no such cast. */
ir_value *casts_find(const cast_table *t, const ir_value *v, cast_kind kind);
void casts_add(cast_table *t, const ir_value *v, cast_kind kind, ir_value *cast);

#endif
