/* dim_table.h - internals of a dimension table, for dim*.c and for code that evaluates dimensions at run time. */
#ifndef AMPC_DIM_TABLE_H
#define AMPC_DIM_TABLE_H

#include "ir/ops/dim.h"

enum {
    MAX_DEGREE = 9, /* of one term; must fit the product of 8 symbols */
    MAX_TERMS = 32
};

typedef struct term {
    int64_t factor;
    uint32_t degree, atoms[MAX_DEGREE]; /* unused entries are zero: terms are compared as bytes */
} term;
_Static_assert(sizeof(term) == 8 + 4 * (1 + MAX_DEGREE), "a term has no padding");

typedef struct expression {
    const term *terms;
    int count, depth, weight; /* depth: nesting of atoms; weight: terms and atoms, nested ones too */
} expression;

typedef enum atom_kind { ATOM_SYMBOL, ATOM_FLOOR, ATOM_MAX } atom_kind;

typedef struct atom { /* never negative */
    atom_kind kind;
    const char *name; /* for symbols */
    size_t symbol;    /* for symbols: their index */
    ir_dim inner;     /* of floor(inner/divisor) and max(0,inner) */
    int64_t divisor;
    int64_t min, max; /* bounds over all sizes; max INT64_MAX: unknown */
} atom;

typedef struct poly { /* work space; terms are in canonical form */
    int count;
    term terms[MAX_TERMS];
} poly;

struct ir_dim_table {
    arena *arena;
    VEC(expression) expressions;
    VEC(atom) atoms;
    VEC(uint32_t) symbols;           /* atom of each symbol */
    strmap *symbol_dims, *atom_dims; /* name, "inner/divisor", "max inner" -> boxed ir_dim of the atom alone */
    struct {
        ir_dim a, b, product;
    } products[64];  /* recent ones, by a hash of a and b */
    uint32_t *slots; /* hash table of expression index + 1 */
    size_t slot_count;
};

const expression *ir_dim_expression(const ir_dim_table *t, ir_dim d); /* d must be symbolic */

/* ---- internal functions ---- */

void dim_load(const ir_dim_table *t, ir_dim d, poly *p);
/* p += factor * terms. Returns false on overflow or if there are too many terms. */
bool dim_accumulate(const ir_dim_table *t, poly *p, int64_t factor, const poly *terms);
ir_dim dim_intern(ir_dim_table *t, const poly *p);
/* The dimension of an atom that has an inner expression; IR_DIM_NONE if nested too deeply. */
ir_dim dim_atom(ir_dim_table *t, const atom *a);
int64_t dim_gcd(int64_t a, int64_t b);
int64_t dim_floor_quotient(int64_t a, int64_t k);

#endif
