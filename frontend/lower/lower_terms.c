/* lower_terms.c - integers that are computed at run time, as an element of a value plus a number or a size. */
#include "frontend/lower/lower.h"

/* The element of an operand that broadcasts. */
static int64_t element_of(const ir_value *v, int64_t at)
{
    return v->type.rank == 0 || v->type.dims[v->type.rank - 1] == 1 ? 0 : at;
}

/* The operand of `d` that element `at` of its result comes from, if it only moves elements of lists, or -1. */
static int moved_from(const ir_node *d, int64_t *at)
{
    if (ir_op_has(d->op, IR_CONVERTS) || d->op == IR_OP_reshape) return 0;
    if (d->op == IR_OP_expand) {
        *at = element_of(ir_in(d, 0), *at);
        return 0;
    }
    for (int i = 0; d->op == IR_OP_concat && d->out[0]->type.rank == 1 && i < d->n_in; i++) {
        const ir_dim size = ir_in(d, i)->type.dims[0];
        if (ir_dim_is_symbolic(size)) return -1;
        if (*at < size) return i;
        *at -= size;
    }
    return -1;
}

static bool is_integer(const ir_value *v) { return v->type.rank <= 1 && ir_dtype_is_int(v->type.dtype); }

/* Floats up to here are exact. */
static bool number_in(const ir_const_value *c, int64_t at, ir_dim *out)
{
    enum { EXACT = 1 << 24 };
    if (!c || at >= c->count) return false;
    const double number = c->floats ? c->floats[at] : 0;
    if (c->floats && !(number > -EXACT && number < EXACT && number == (double)(int64_t)number)) return false;
    *out = c->floats ? (int64_t)number : c->ints[at];
    return true;
}

/* The operand of a sum or difference that is not a number, which is added to t; or -1. */
static int without_number(onnx_node *n, ir_const_map *consts, const ir_node *sum, onnx_term *t)
{
    const bool minus = sum->op == IR_OP_sub;
    for (int i = 1; (minus || sum->op == IR_OP_add) && i >= minus; i--) {
        ir_dim plus;
        const ir_value *v = ir_in(sum, i);
        if (!number_in(ir_const_get(consts, v), element_of(v, t->at), &plus)) continue;
        t->plus = minus ? ir_dim_sub(n->dims, t->plus, plus) : ir_dim_add(n->dims, t->plus, plus);
        t->at = element_of(ir_in(sum, 1 - i), t->at);
        return 1 - i;
    }
    return -1;
}

onnx_term onnx_term_of(onnx_node *n, ir_const_map *consts, const ir_value *list, int64_t at)
{
    onnx_term t = {list, at, 0};
    ir_dim number;
    if (number_in(onnx_known_numbers(n, consts, list), at, &number)) return (onnx_term){NULL, 0, number};
    for (;;) {
        const ir_node *d = t.from->kind == IR_VALUE_RESULT ? t.from->def : NULL;
        if (number_in(ir_const_get(consts, t.from), t.at, &number))
            return (onnx_term){NULL, 0, ir_dim_add(n->dims, t.plus, number)};
        if (d && d->op == IR_OP_dims)
            return (onnx_term){NULL, 0, ir_dim_add(n->dims, t.plus, d->attr[IR_ATTR(dims, value)].list.items[t.at])};
        const bool is_float = !ir_dtype_is_int(t.from->type.dtype); /* only converted integers */
        if (!d || t.from->type.rank > 1 || (is_float && !ir_op_has(d->op, IR_CONVERTS))) return t;
        int next = moved_from(d, &t.at);
        if (next < 0) next = without_number(n, consts, d, &t);
        if (next < 0 || !is_integer(ir_in(d, next))) return t;
        t.from = ir_in(d, next);
    }
}
