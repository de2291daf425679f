/* dim.h - a dimension is a number or a polynomial in symbols.
 *
 * Expressions are interned in a table (one per module), so equal dimensions are equal integers. An expression is a sum
 * of terms, each an integer coefficient times a product of atoms. An atom is a symbol, a floor division of an
 * expression by a positive constant, or max(0, expression): N, N*T, 4*N+2, floor((N+1)/2), max(0,N-5). Symbols are
 * sizes from 0 to IR_DIM_MAX_SIZE.
 *
 * Folded shape arithmetic uses the same representation, so numbers may be negative. Numbers below IR_DIM_LOWEST
 * saturate to it, because the range below it encodes expressions. */
#ifndef AMPC_DIM_H
#define AMPC_DIM_H

#include "ir/base/text_buffer.h"

typedef int64_t ir_dim;

#define IR_DIM_LOWEST (INT64_MIN + ((int64_t)1 << 32))
#define IR_DIM_NONE INT64_MIN /* "no such dimension": overflow, or not expressible */
#define IR_DIM_MAX_SIZE INT32_MAX

static inline bool ir_dim_is_symbolic(ir_dim d) { return d < IR_DIM_LOWEST && d != IR_DIM_NONE; }

typedef struct ir_dim_table ir_dim_table;
ir_dim_table *ir_dim_table_new(arena *a);
bool ir_dim_exists(const ir_dim_table *t, ir_dim d); /* whether d is an expression of this table */

ir_dim ir_dim_number(int64_t n);                         /* saturates at IR_DIM_LOWEST */
ir_dim ir_dim_symbol(ir_dim_table *t, const char *name); /* equal names yield equal dimensions */
size_t ir_dim_symbol_count(const ir_dim_table *t);
const char *ir_dim_symbol_name(const ir_dim_table *t, size_t index);

/* Arithmetic in canonical form. Returns IR_DIM_NONE on overflow or if an operand is IR_DIM_NONE. */
ir_dim ir_dim_add(ir_dim_table *t, ir_dim a, ir_dim b);
ir_dim ir_dim_sub(ir_dim_table *t, ir_dim a, ir_dim b);
ir_dim ir_dim_mul(ir_dim_table *t, ir_dim a, ir_dim b);
ir_dim ir_dim_floordiv(ir_dim_table *t, ir_dim a, int64_t k); /* k > 0; exact if k divides every term */
ir_dim ir_dim_div(ir_dim_table *t, ir_dim a, ir_dim b);       /* exact quotient of polynomials, else NONE */
ir_dim ir_dim_product(ir_dim_table *t, const ir_dim *dims, int rank);

/* Bounds of d over all sizes of its symbols, tight in simple cases; IR_DIM_NONE if no bound is found. */
ir_dim ir_dim_lower_bound(const ir_dim_table *t, ir_dim d);
ir_dim ir_dim_upper_bound(const ir_dim_table *t, ir_dim d);

/* Maximum and minimum; one of the operands if it is the result for all sizes. IR_DIM_NONE as in arithmetic. */
ir_dim ir_dim_max(ir_dim_table *t, ir_dim a, ir_dim b);
ir_dim ir_dim_min(ir_dim_table *t, ir_dim a, ir_dim b);

/* Whether a and b may be equal; false only if they are known to differ for all sizes of their symbols. */
bool ir_dim_may_equal(ir_dim_table *t, ir_dim a, ir_dim b);

/* Evaluates d; sizes[i] is the size of symbol i, or -1 if unbound. Returns false if d cannot be evaluated, and stores
 * the index of an unbound symbol in *unbound if it is not NULL. */
bool ir_dim_eval(const ir_dim_table *t, ir_dim d, const int64_t *sizes, int64_t *out, size_t *unbound);

/* Finds the size of the only unbound symbol of d for which d equals `value`, and stores it in sizes. Returns false and
 * changes nothing if d has no or several unbound symbols, is not linear in it, or has no solution. */
bool ir_dim_solve(const ir_dim_table *t, ir_dim d, int64_t value, int64_t *sizes);

/* Whether d is a symbol alone, and its index. */
bool ir_dim_is_symbol(const ir_dim_table *t, ir_dim d, size_t *index);
/* d, a dimension of table `from`, in table t, which may be the same, with symbol i replaced by sizes[i]. IR_DIM_NONE
 * as in arithmetic. */
ir_dim ir_dim_replace(ir_dim_table *t, const ir_dim_table *from, ir_dim d, const ir_dim *sizes);

/* Text: "64", "N", "N*T", "2*N*T+1", "floor((N+1)/2)", "max(0,N-5)", without blanks. Symbol names outside [A-Za-z0-9_.]
 * are quoted with JSON escapes. If the text is malformed, ir_dim_parse returns IR_DIM_NONE and *end points to the
 * error. */
void ir_dim_add_text(text_buffer *t, const ir_dim_table *table, ir_dim d);
const char *ir_dim_print(const ir_dim_table *t, ir_dim d, arena *a);
ir_dim ir_dim_parse(ir_dim_table *t, const char *text, const char **end);

#endif
