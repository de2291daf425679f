/* range.h - finds nodes, weights and masks that exceed the range of a low type, before nodes are coloured.
 *
 * The largest number of fp16 is 65504, its smallest normal one 2^-14, and numbers up to 2^-25 become 0. bf16 has the
 * exponents of f32, so only the limits of conversions apply to it: the lowest f32 number, a usual mask, is below
 * the lowest bf16 number. */
#ifndef AMPC_RANGE_H
#define AMPC_RANGE_H

#include "passes/amp/scope.h"

/* The effect of fp16 on the elements of a tensor. */
typedef struct range_count {
    int64_t elements, nonzero;
    int64_t overflow;  /* finite and larger than 65504 */
    int64_t zeroed;    /* nonzero, but zero in fp16 */
    int64_t subnormal; /* subnormal, so less precise, in fp16 */
    uint32_t largest;  /* magnitude, as the bits of an f32 */
    float min, max;    /* of the finite elements; 0 if those are within the bounds of masks in fp16 */
} range_count;

/* Weight statistics of the f32 parameters and constants of a module, by storage id, in the arena of the compile. For
 * fp16 and the rule `range` they are of all, and tensors that it would lose are reported in remarks; otherwise they are
 * made when needed. */
typedef struct weight_stats weight_stats;
const weight_stats *range_scan_weights(const ir_module *m, const compile *c);

typedef struct range_mark {
    const list_place *pattern;  /* the row of the table whose pattern includes the node, or NULL */
    bool alone;                 /* the pattern is this node, so nothing overflows if it computes in f32 inside */
    const ir_value *tensor;     /* an operand that fp16 would lose, or NULL */
    const ir_value *large;      /* an operand with elements above the rule init_max, or NULL */
    const list_place *overflow; /* why the result may overflow although the operands do not, or NULL */
} range_mark;

/* One mark per node id, in the arena of the scope. NULL if nothing is marked: `range` is off or the low type is
 * not fp16, and init_max is off. */
const range_mark *range_find(const ir_graph *g, const amp_scope *s);

/* By value id: the largest magnitude of its finite numbers where the value is converted to the low type; 0 if they are
 * converted like any other. Infinities remain infinite. A value has a limit if it is a constant, or a weight that does
 * not train, with finite numbers beyond the low type; if it is moved or selected from one; and, with the rule `range`,
 * if it is a mask of a softmax. The limit is the largest number of the type, or half of it if the value reaches a
 * softmax through arithmetic: neither the sum of two masks nor that of a mask and a score may overflow. */
const double *range_find_limits(const ir_graph *g, const amp_scope *s);

/* Half of the largest number of a low type. A softmax maps its negative to zero like any lower number. */
double range_mask_bound(ir_dtype low);

/* Adds the marks of the rules `depth` and `residual` (range_sums.c). */
void range_mark_sums(const ir_graph *g, const amp_list *l, range_mark *marks, arena *a);

/* What a reduction or softmax adds up. A sum is as large as its terms together, a mean or a share of a sum is not. */
typedef struct range_terms {
    const char *what; /* "sum", "mean" or "softmax" */
    bool sum;
    double count;
} range_terms;

/* Returns false if n adds up nothing, or unknown sizes (range_sums.c). */
bool range_find_terms(const ir_node *n, range_terms *terms);

/* Gets the value of a float storage with one element. Returns false if v, which may be NULL, is not one or its bytes
 * are unavailable. */
bool range_get_number(const ir_value *v, const compile *c, double *x);

/* Reads n bytes of a storage from byte `from`. Returns false if they are unavailable. */
bool range_read_part(const ir_storage *s, const compile *c, uint64_t from, void *to, size_t n);

/* All elements of a storage in its dtype, in the arena; NULL if they are unavailable. */
const void *range_read(const ir_storage *s, const compile *c, arena *a);

#endif
