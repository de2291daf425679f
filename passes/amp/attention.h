/* attention.h - finds the nodes between the two products of softmax(q k' * scale + mask) v. */
#ifndef AMPC_ATTENTION_H
#define AMPC_ATTENTION_H

#include "passes/pass.h"

typedef struct attention_mark { /* of a scale, mask or movement between the first product and the softmax */
    const ir_value *scores;     /* the operand that leads to the product; NULL: the node is not in an attention */
    const ir_node *softmax;
} attention_mark;

/* One mark per node id, allocated in the arena. */
const attention_mark *attention_find(const ir_graph *g, arena *a);

#endif
