/* parts.h - graphs with sizes that depend on data.
 *
 * A trim (ops.def) sets a symbol of its own to a number that the run computes. What needs this symbol can only be
 * planned once the number is known, so such a graph runs in parts. Part 0 is everything that needs no such symbol; the
 * others follow in the order in which their symbols become known. A graph without trims has one part. */
#ifndef AMPC_PARTS_H
#define AMPC_PARTS_H

#include "ir/graph/ir.h"

enum { IR_MAX_PARTS = 256 };

typedef struct ir_parts {
    int count;
    int *of_node;            /* by node id: the part in which it runs */
    int *of_symbol;          /* by symbol: the first part in which its size is known; 0: known before the run */
    const ir_node **trim_of; /* by symbol: the first trim that sets it; NULL: none */
} ir_parts;

/* Whether the graph has more than one part. */
bool ir_has_parts(const ir_graph *g);
/* Finds the parts of a graph. The caller provides the arrays, zeroed and as long as the graph's node_ids and the
 * module's symbols. Returns NULL, or what is wrong with node *where. */
const char *ir_parts_find(const ir_graph *g, ir_parts *p, const ir_node **where);
/* The part that defines a value; 0 for inputs and storage. */
int ir_parts_of_value(const ir_parts *p, const ir_value *v);
/* The symbol that a trim sets. */
size_t ir_trim_symbol(const ir_node *trim);
/* Whether a type or attribute of the node has the symbol. */
bool ir_node_has_symbol(const ir_node *n, size_t symbol);
/* Whether other nodes have the symbol and no other trim sets it, so that the trim is needed even if its result is
 * unused: the size of a result may be all that is read of it. False for other ops. */
bool ir_trim_is_needed(const ir_node *n);

#endif
