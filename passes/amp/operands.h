/* operands.h - operators that are copied from the model and have a line in [operands], which sets the types of their
 * operands and results. */
#ifndef AMPC_OPERANDS_H
#define AMPC_OPERANDS_H

#include "passes/amp/scope.h"

/* Whether the node is copied and the line names its operator. */
bool operands_name(const list_operands *line, const ir_node *n);
/* The line for n, or NULL. */
const list_operands *operands_find(const amp_list *l, const ir_node *n);
/* The type that the line, or NULL, sets for operand i of n; IR_NO_DTYPE: that of the model. */
ir_dtype operands_type(const list_operands *line, const ir_node *n, int i);
/* Resolves the marks of an opaque node: by its line, or by the low types that its schema has. */
void operands_resolve(ir_node *n, const amp_scope *s);
/* Whether n has a line, which then sets its entry: white if an operand or result is low. */
bool operands_colour(const ir_node *n, const amp_scope *s, amp_entry *e);
/* Declares the types that the line of n, if it has one, sets for its results. */
void operands_declare(ir_node *n, const amp_list *l);

#endif
