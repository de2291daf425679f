/* opaque_rules.h - the rules of the rows TYPE in onnx.def, which infer the type of result i of an opaque operator.
 *
 * Before the call, `out` is the type of operand 0, if there is one. The operands that the schema requires are present;
 * a rule gets optional ones with onnx_in. A rule returns false if the type is unknown; messages it reported are then
 * dropped. */
#ifndef AMPC_FRONTEND_OPAQUE_RULES_H
#define AMPC_FRONTEND_OPAQUE_RULES_H

#include "frontend/opaque/opaque.h"

#define TYPE(op, rule) bool opaque_##rule(onnx_node *n, int i, ir_type *out);
#include "frontend/onnx.def"

bool opaque_reduce_open(onnx_node *n, int i, ir_type *out); /* axes that are not known */

#endif
