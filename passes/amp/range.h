/* range.h - finds nodes and weights that exceed the range of fp16, before nodes are coloured.
 *
 * The largest number of fp16 is 65504, its smallest normal one 2^-14, and numbers up to 2^-25 become 0. bf16 has the
 * range of f32, so these rules do not apply to it. */
#ifndef AMPC_RANGE_H
#define AMPC_RANGE_H

#include "passes/amp/scope.h"

/* The effect of fp16 on the elements of a tensor. */
typedef struct range_count {
    int64_t elements, nonzero;
    int64_t overflow;  /* finite and larger than 65504 */
    int64_t zeroed;    /* nonzero, but zero in fp16 */
    int64_t subnormal; /* subnormal, so less precise, in fp16 */
    bool highest;      /* some element is above 65504 */
    bool lowest;       /* some element is below -65504, and none is above 65504 */
    bool infinite;     /* some element is already infinite */
} range_count;

/* Weight statistics of all f32 parameters and constants of a module, by storage id, in the arena of the compile.
 * Tensors that fp16 would lose are reported in remarks. */
typedef struct weight_stats weight_stats;
const weight_stats *range_scan_weights(const ir_module *m, const compile *c);

typedef struct range_mark {
    const list_place *pattern;  /* the row of the table whose pattern includes the node, or NULL */
    const ir_value *tensor;     /* an operand that fp16 would lose, or NULL */
    const list_place *overflow; /* why the result may overflow although the operands do not, or NULL */
} range_mark;

/* One mark per node id, in the arena of the scope. NULL if the rule is off or the low type is not fp16. */
const range_mark *range_find(const ir_graph *g, const amp_scope *s);

/* By value id: whether the value is an additive mask of a softmax, or computed from one. In the low type its numbers
 * saturate, including infinities. NULL as above. */
const bool *range_find_masks(const ir_graph *g, const amp_scope *s);

/* Adds the marks of the rules `depth` and `residual` (range_sums.c). */
void range_mark_sums(const ir_graph *g, const amp_list *l, range_mark *marks, arena *a);

/* Gets the value of a float storage with one element. Returns false if v, which may be NULL, is not one or its bytes
 * are unavailable. */
bool range_get_number(const ir_value *v, const compile *c, double *x);

/* Reads n bytes of a storage from byte `from`. Returns false if they are unavailable. */
bool range_read_part(const ir_storage *s, const compile *c, uint64_t from, void *to, size_t n);

/* All elements of a storage in its dtype, in the arena; NULL if they are unavailable. */
const void *range_read(const ir_storage *s, const compile *c, arena *a);

#endif
