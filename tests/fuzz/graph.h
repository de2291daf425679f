/* graph.h - random graphs built from the op table, for fuzz_ir_graph.c and unit/test_empty.c. */
#ifndef TESTS_FUZZ_GRAPH_H
#define TESTS_FUZZ_GRAPH_H

#include "ir/graph/ir.h"
#include "tests/fuzz/choices.h"

/* Returns a module with the graph @forward: storage, inputs with symbols, up to a few dozen nodes of any op,
 * outputs. Operands and attributes fit the slots of each op, and shapes usually match. Nodes that inference
 * rejects are left out, so the module verifies. The caller frees it. NULL: out of memory. */
ir_module *graph_draw(choices *c);

/* The same with a single node of `op`, whose results are the outputs; every second size is 0. Also returns
 * NULL if the drawn operands do not fit the op. */
ir_module *graph_draw_empty(choices *c, ir_op op);
/* Whether nodes of the op are never drawn, because an importer makes their attributes. */
static inline bool graph_is_opaque(ir_op op) { return ir_op_has(op, IR_DECLARED) || op == IR_OP_custom_grad; }

#endif
