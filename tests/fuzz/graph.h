/* graph.h - a random graph made of the op table, for fuzz_ir_graph.c and unit/test_empty.c. */
#ifndef TESTS_FUZZ_GRAPH_H
#define TESTS_FUZZ_GRAPH_H

#include "ir/ir.h"
#include "tests/fuzz/choices.h"

/* A module with the graph @forward: storage, inputs with symbols, up to some dozen nodes of any op, outputs. Operands
 * and attributes fit the slots of each op, and shapes mostly each other; a node that inference refuses is left out, so
 * the module verifies. The caller frees it; NULL: no memory. */
ir_module *graph_draw(choices *c);

/* The same with one node of `op`, whose results are the outputs, where every second size is 0. NULL also where the drawn
 * operands do not fit the op. */
ir_module *graph_draw_empty(choices *c, ir_op op);

#endif
