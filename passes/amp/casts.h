/* casts.h - side table of one graph: which values were converted to which type, and to what. */
#ifndef AMPC_CASTS_H
#define AMPC_CASTS_H

#include "ir/ir.h"

typedef struct cast_kind {
    ir_dtype to;
    bool attribute; /* of an operator: amp_list_is_attribute */
    bool bounded;   /* clipped to the finite range of `to` */
} cast_kind;

typedef struct cast_table cast_table;
cast_table *casts_new(arena *a);
/* NULL: there is none yet. */
ir_value *casts_find(const cast_table *t, const ir_value *v, cast_kind kind);
void casts_add(cast_table *t, const ir_value *v, cast_kind kind, ir_value *cast);

#endif
