/* foreign_rules.h - the rules of foreign_types.def: the type of result i of an operator that is only carried along.
 *
 * A rule is called with `out` as the shape and element type of operand 0, if there is one. The operands that the schema
 * requires (operators.def) are there; others it asks for by onnx_in. False: not known; a message that it gave is
 * dropped. */
#ifndef AMPC_FRONTEND_FOREIGN_RULES_H
#define AMPC_FRONTEND_FOREIGN_RULES_H

#include "frontend/opaque/foreign.h"

#define LIKE(op, shape_of, dtype_of)
#define IS(op, shape_of, dtype)
#define RULE(op, rule) bool foreign_##rule(onnx_node *n, int i, ir_type *out);
#include "frontend/opaque/foreign_types.def"

#endif
