/* range.h - where fp16 is too small: what its range says about nodes and weights before they are coloured.
 *
 * The largest number of fp16 is 65504, its smallest normal one 2^-14, and what is not above 2^-25 becomes 0.
 * bf16 has the
 * range of f32, so none of this concerns it. */
#ifndef AMPC_RANGE_H
#define AMPC_RANGE_H

#include "passes/amp/scope.h"

/* What becomes of the elements of a tensor in fp16. */
typedef struct range_count {
    int64_t elements, nonzero;
    int64_t overflow;  /* finite, larger than 65504 */
    int64_t zeroed;    /* not zero, but zero in fp16 */
    int64_t subnormal; /* fewer digits are left */
    bool highest;      /* some element is above 65504 */
    bool lowest;       /* some element is below -65504, none above 65504 */
    bool infinite;     /* some element is infinite already */
} range_count;

/* Counts the values of f32 storage; by pieces, whatever its size. False: its bytes are out of reach. */
bool range_count_storage(const ir_storage *s, const compile *c, range_count *out);
/* Whether fp16 would lose it: something overflows, or more than 1 % of what is not zero becomes zero. */
bool range_is_lost(const range_count *c);

/* The counts of all f32 parameters and constants of a module by storage id, in the arena of the compile; what is lost
 * is named in remarks. */
typedef struct range_census range_census;
const range_census *range_take_census(const ir_module *m, const compile *c);

typedef struct range_mark {
    const list_place *pattern; /* the row of the table that the node is part of, or NULL */
    const ir_value *tensor;    /* a tensor that it reads and that fp16 would lose, or NULL */
    const list_place *wide;    /* why its result does not fit, although what it reads does, or NULL */
} range_mark;

/* One mark a node id. NULL: the rule is off, or the low type is not fp16. In the arena of the scope. */
const range_mark *range_find(const ir_graph *g, const amp_scope *s);

/* By value id: the storage that is an additive mask of a softmax, and what is computed from it; in the low type its
 * numbers saturate, infinities too. NULL: as above. */
const bool *range_find_masks(const ir_graph *g, const amp_scope *s);

/* Adds the marks of the rules `depth` and `residual` (range_sums.c). */
void range_mark_sums(const ir_graph *g, const amp_list *l, range_mark *marks, arena *a);

/* The one element of float storage; false: it is none, or its bytes are out of reach. v may be NULL. */
bool range_get_number(const ir_value *v, const compile *c, double *x);

/* n bytes of a storage from byte `from`; false: out of reach. */
bool range_read_part(const ir_storage *s, const compile *c, uint64_t from, void *to, size_t n);

/* All elements of a storage as they are in its dtype, in the arena; NULL: out of reach. */
const void *range_read(const ir_storage *s, const compile *c, arena *a);

#endif
