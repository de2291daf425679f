/* dim_replace.c - dimensions with other ones in place of their symbols. */
#include "ir/ops/dim_table.h"

bool ir_dim_is_symbol(const ir_dim_table *t, ir_dim d, size_t *index)
{
    if (!ir_dim_is_symbolic(d)) return false;
    const expression *e = ir_dim_expression(t, d);
    if (e->count != 1 || e->terms[0].factor != 1 || e->terms[0].degree != 1) return false;
    const atom *a = &t->atoms.items[e->terms[0].atoms[0]];
    *index = a->symbol;
    return a->kind == ATOM_SYMBOL;
}

static ir_dim replace_atom(ir_dim_table *t, const ir_dim_table *from, const atom *a, const ir_dim *sizes)
{
    if (a->kind == ATOM_SYMBOL) return sizes[a->symbol];
    const ir_dim inner = ir_dim_replace(t, from, a->inner, sizes);
    if (inner == IR_DIM_NONE) return IR_DIM_NONE;
    return a->kind == ATOM_FLOOR ? ir_dim_floordiv(t, inner, a->divisor) : ir_dim_max(t, 0, inner);
}

ir_dim ir_dim_replace(ir_dim_table *t, const ir_dim_table *from, ir_dim d, const ir_dim *sizes)
{
    if (!ir_dim_is_symbolic(d)) return d;
    const expression e = *ir_dim_expression(from, d); /* copies, because t may be the same table, which grows */
    ir_dim sum = 0;
    for (int i = 0; i < e.count; i++) {
        ir_dim product = e.terms[i].factor;
        for (uint32_t j = 0; j < e.terms[i].degree; j++) {
            const atom a = from->atoms.items[e.terms[i].atoms[j]];
            product = ir_dim_mul(t, product, replace_atom(t, from, &a, sizes));
        }
        sum = ir_dim_add(t, sum, product);
    }
    return sum;
}
