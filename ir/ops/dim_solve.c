/* dim_solve.c - computes the size of a symbol from the value of a dimension. */
#include "ir/ops/dim_table.h"

/* Whether no unbound symbol is inside a floor division or a maximum, for which several sizes may yield the same
 * value. */
static bool is_plain(const ir_dim_table *t, ir_dim d, const int64_t *sizes)
{
    const expression *e = ir_dim_expression(t, d);
    int64_t value;
    for (int i = 0; i < e->count; i++)
        for (uint32_t j = 0; j < e->terms[i].degree; j++) {
            const atom *a = &t->atoms.items[e->terms[i].atoms[j]];
            if (a->kind != ATOM_SYMBOL && !ir_dim_eval(t, a->inner, sizes, &value, NULL)) return false;
        }
    return true;
}

/* The only possible size if d is linear in the symbol, or -1 if there is none. */
static int64_t candidate(const ir_dim_table *t, ir_dim d, int64_t value, int64_t *sizes, size_t symbol)
{
    int64_t at0, at1, slope, rest;
    sizes[symbol] = 0;
    if (!ir_dim_eval(t, d, sizes, &at0, NULL)) return -1;
    sizes[symbol] = 1;
    if (!ir_dim_eval(t, d, sizes, &at1, NULL)) return -1;
    if (__builtin_sub_overflow(at1, at0, &slope) || __builtin_sub_overflow(value, at0, &rest)) return -1;
    return slope && rest != INT64_MIN ? rest / slope : -1;
}

bool ir_dim_solve(const ir_dim_table *t, ir_dim d, int64_t value, int64_t *sizes)
{
    size_t symbol;
    int64_t at;
    if (ir_dim_eval(t, d, sizes, &at, &symbol) || symbol == SIZE_MAX || !is_plain(t, d, sizes)) return false;
    int64_t size = candidate(t, d, value, sizes, symbol);
    sizes[symbol] = size;
    if (size >= 0 && ir_dim_eval(t, d, sizes, &at, NULL) && at == value) return true;
    sizes[symbol] = -1;
    return false;
}
