/* attention_mask.h - what the masks of an attention are: nothing, the causal one, or a value that the op reads. */
#ifndef AMPC_ATTENTION_MASK_H
#define AMPC_ATTENTION_MASK_H

#include "passes/pass.h"

/* A term of the scores. */
typedef enum attention_use {
    MASK_ADDED,   /* a float that is added */
    MASK_ALLOWS,  /* a condition under which a score counts; else it is `otherwise` */
    MASK_FORBIDS, /* the opposite */
} attention_use;

typedef struct attention_term {
    attention_use use;
    ir_value *value;
    double otherwise; /* finite, or -infinity; of conditions */
} attention_term;

typedef struct attention_mask {
    const compile *compile;
    arena *arena;
    ir_dim queries, keys;      /* the last dimensions of the scores */
    bool causal;               /* set: a query sees the keys up to its own position, counted from the last ones */
    VEC(attention_term) terms; /* set: what has to be a value */
} attention_mask;

/* Whether a score of this number, or to which it is added, has no weight next to one that is not masked. */
bool attention_is_negligible(double x);

/* Whether a condition is known to be false everywhere. */
bool attention_is_never(const ir_value *condition, const compile *c, arena *a);

/* Adds a term: splits conjunctions and sums, leaves out what changes nothing, and recognises the causal mask, as a
 * constant or computed from positions. */
void attention_mask_add(attention_mask *m, attention_term term);

/* The terms as one value, made before the builder's position: a bool, or a float to be added; NULL: there is none. */
ir_value *attention_mask_make(const attention_mask *m, ir_builder *b);

#endif
