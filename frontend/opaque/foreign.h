/* foreign.h - an operator that is only carried along: lowering it, the text form of its bytes, names that its graphs
 * read. */
#ifndef AMPC_FRONTEND_FOREIGN_H
#define AMPC_FRONTEND_FOREIGN_H

#include "frontend/lower/lower.h"
#include "frontend/read/prescan.h"

/* The row of any operator that the table lacks. Its operands are those of the schema, if it has one. */
void onnx_lower_foreign(onnx_node *n);
/* foreign_types.c: the type of result i by the rules of common operators; false: not known. */
bool foreign_type(onnx_node *n, int i, ir_type *out);

/* Base64 without line breaks, and back; malformed text gives {NULL, 0}. */
char *foreign_to_text(arena *a, const uint8_t *bytes, size_t n);
onnx_bytes foreign_from_text(arena *a, const char *text);

/* One pass over a graph and the graphs in it. */
typedef struct foreign_names {
    arena *arena;
    strmap *defined;       /* by the graphs themselves */
    VEC(const char *) own; /* the same as a list */
    strmap *read;
    VEC(const char *) free; /* read, but not defined: values of the graph outside, in order */
} foreign_names;

foreign_names foreign_names_new(arena *a);
void foreign_define(foreign_names *f, const Onnx__GraphProto *g);
void foreign_read(foreign_names *f, const Onnx__GraphProto *g);

/* A line of foreign.def. */
typedef struct foreign_change {
    const char *op;
    int opset;
    const char *attribute;      /* NULL: its form is another */
    int operand;                /* the attribute became this operand (0: none) ... */
    const char *before, *after; /* ... or its value is another word */
} foreign_change;

/* What changed after opset `from`, up to `to`, of the operator; the next one behind `after`. NULL: nothing more. */
const foreign_change *foreign_changed(const char *op, int from, int to, const foreign_change *after);

#endif
