/* attention.h - softmax(q k' * scale + mask) v: what lies between the two products. */
#ifndef AMPC_ATTENTION_H
#define AMPC_ATTENTION_H

#include "passes/pass.h"

typedef struct attention_mark { /* of a scale, a mask, a movement between the first product and the softmax */
    const ir_value *scores;     /* the operand that leads to the product; NULL: the node is in no attention */
    const ir_node *softmax;
} attention_mark;

/* One mark a node id, in the arena. */
const attention_mark *attention_find(const ir_graph *g, arena *a);

#endif
