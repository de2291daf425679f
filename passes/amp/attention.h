/* attention.h - finds the nodes between the two products of softmax(q k' * scale + mask) v. */
#ifndef AMPC_ATTENTION_H
#define AMPC_ATTENTION_H

#include "passes/pass.h"

/* What a node does in an attention. */
typedef enum attention_role {
    ATTENTION_OTHER,
    ATTENTION_PRODUCT,
    ATTENTION_MASK,
    ATTENTION_DIFFERENCE,
    ATTENTION_SCALE,
    ATTENTION_QUOTIENT,
    ATTENTION_MOVEMENT,
    ATTENTION_SOFTMAX,
    ATTENTION_DROPOUT
} attention_role;

attention_role attention_role_of(const ir_node *n);
bool attention_is_last_softmax(const ir_node *n); /* a softmax over the last axis */

typedef struct attention_mark { /* of a scale, mask or movement between the first product and the softmax */
    const ir_value *scores;     /* the operand that leads to the product; NULL: the node is not in an attention */
    const ir_node *softmax;
} attention_mark;

/* One mark per node id, allocated in the arena. */
const attention_mark *attention_find(const ir_graph *g, arena *a);

#endif
