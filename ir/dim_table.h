/* dim_table.h - the inside of a dimension table, for dim.c, dim_text.c and what computes dimensions at run time. */
#ifndef AMPC_DIM_TABLE_H
#define AMPC_DIM_TABLE_H

#include "ir/dim.h"

enum { MAX_DEGREE = 9 }; /* of one term; the product of 8 symbols must fit */

typedef struct term {
    int64_t factor;
    uint32_t degree, atoms[MAX_DEGREE]; /* the rest zero: terms are compared as bytes */
} term;
_Static_assert(sizeof(term) == 8 + 4 * (1 + MAX_DEGREE), "a term has no padding");

typedef struct expression {
    const term *terms;
    int count, depth; /* depth: levels of floor divisions */
} expression;

typedef struct atom {
    const char *name; /* symbol */
    size_t symbol;    /* its index */
    ir_dim inner;     /* name NULL: floor(inner/divisor) */
    int64_t divisor;
} atom;

struct ir_dim_table {
    arena *arena;
    VEC(expression) expressions;
    VEC(atom) atoms;
    VEC(uint32_t) symbols; /* atom of each symbol */
    strmap *symbol_dims, *floor_dims; /* name, "inner/divisor" -> boxed ir_dim of the atom alone */
    struct {
        ir_dim a, b, product;
    } products[64]; /* the last ones, by a hash of a and b */
    uint32_t *slots; /* hash table of expression index + 1 */
    size_t slot_count;
};

const expression *ir_dim_expression(const ir_dim_table *t, ir_dim d); /* d is symbolic */

#endif
