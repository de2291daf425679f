/* opaque.h - opaque operators: lowering, the text encoding of their attributes, and the names that their subgraphs
 * read. */
#ifndef AMPC_FRONTEND_OPAQUE_H
#define AMPC_FRONTEND_OPAQUE_H

#include "frontend/lower/lower.h"
#include "frontend/read/prescan.h"

/* Handler of operators without an IR op. Operand types follow the schema if there is one. */
void onnx_lower_opaque(onnx_node *n);
/* The same of custom operators (custom.c). */
void onnx_lower_custom(onnx_node *n);
/* Infers the type of result i for common operators (opaque_types.c); false: unknown. */
bool opaque_type(onnx_node *n, int i, ir_type *out);

/* Base64 without line breaks; malformed text is {NULL, 0}. */
onnx_bytes opaque_from_text(arena *a, const char *text);

/* The attributes of a node as they are in the file, or those that are not graphs, as text. NULL after an error. */
const char *opaque_attributes(onnx_node *n, bool graphs);
/* Keeps the version of the node's domain as meta data of the module. */
void opaque_add_domain(onnx_node *n);
/* The attribute as a field, which refers to its text and list; false: not a number, a text or a list of numbers. */
bool opaque_field(const Onnx__AttributeProto *p, ir_field *out);

/* Names defined and read by a graph and its subgraphs. */
typedef struct opaque_names {
    arena *arena;
    strmap *defined;               /* by the graphs themselves */
    VEC(const char *) definitions; /* the same as a list */
    strmap *read;
    VEC(const char *) free; /* read but not defined: captured values, in order */
} opaque_names;

opaque_names opaque_names_new(arena *a);
opaque_names opaque_names_of(arena *a, const Onnx__NodeProto *n); /* of all subgraphs of the node */
void opaque_define(opaque_names *f, const Onnx__GraphProto *g);
/* Calls `visit` for each subgraph of a node. */
void opaque_visit(opaque_names *f, const Onnx__NodeProto *n, void (*visit)(opaque_names *f, const Onnx__GraphProto *g));

/* A row CHANGED, MOVED or RENAMED of onnx.def. */
typedef struct opaque_change {
    const char *op;
    int opset;
    const char *attribute;      /* NULL: the form changed in another way */
    int operand;                /* operand that replaces the attribute (0: none) */
    const char *before, *after; /* or the value that was renamed, and its new name */
} opaque_change;

/* The changes of operator `op` after opset `from` and up to `to`: the first one, or the one following `after`. NULL:
 * no more. */
const opaque_change *opaque_changed(const char *op, int from, int to, const opaque_change *after);

#endif
