/* dim_floor.c - floor divisions in canonical form.
 *
 * The canonical form of floor(e/k) is obtained by moving integer multiples of k outside (leaving factors and constant
 * in [0,k)), cancelling common factors, merging floor(floor(e/a)/b) into floor(e/(a*b)), which keeps a chain of strided
 * layers a single atom, and moving the division into max(0,e), which dim_range.c creates. */
#include "ir/ops/dim_table.h"

#include <assert.h>
#include <string.h>

static ir_dim floor_atom(ir_dim_table *t, ir_dim inner, int64_t divisor)
{
    ir_dim min = ir_dim_lower_bound(t, inner), max = ir_dim_upper_bound(t, inner);
    const atom a = {.kind = ATOM_FLOOR,
                    .inner = inner,
                    .divisor = divisor,
                    .min = min == IR_DIM_NONE || min < 0 ? 0 : min / divisor,
                    .max = max == IR_DIM_NONE ? INT64_MAX : max / divisor};
    return dim_atom(t, &a);
}

/* Cancels the common factor of p, whose factors are in [0,k), and *k; the constant is rounded down. */
static void cancel_common_factor(poly *p, int64_t *k)
{
    int64_t common = *k;
    for (int i = 0; i < p->count; i++)
        if (p->terms[i].degree) common = dim_gcd(common, p->terms[i].factor);
    for (int i = 0; i < p->count; i++) p->terms[i].factor /= common;
    if (p->count && p->terms[p->count - 1].factor == 0) p->count--;
    *k /= common;
}

static const atom *lone_atom(const ir_dim_table *t, const term *x, atom_kind kind)
{
    const atom *a = x->degree == 1 ? &t->atoms.items[x->atoms[0]] : NULL;
    return a && a->kind == kind ? a : NULL;
}

/* Rewrites floor((floor(e/a)+c)/k) to floor((e+a*c)/(a*k)). Returns false if p does not have this form. */
static bool merge_floors(ir_dim_table *t, const poly *p, int64_t k, ir_dim *out)
{
    const atom *found = lone_atom(t, &p->terms[0], ATOM_FLOOR);
    int64_t constant = p->count == 2 ? p->terms[1].factor : 0, divisor;
    bool plain = p->count == 1 || (p->count == 2 && p->terms[1].degree == 0);
    if (!plain || !found || p->terms[0].factor != 1) return false;
    const atom inner = *found;
    if (__builtin_mul_overflow(inner.divisor, k, &divisor) ||
        __builtin_mul_overflow(constant, inner.divisor, &constant))
        return false;
    ir_dim merged = ir_dim_add(t, inner.inner, ir_dim_number(constant));
    if (merged == IR_DIM_NONE) return false;
    *out = ir_dim_floordiv(t, merged, divisor);
    return true;
}

/* Rewrites floor((m*max(0,e)+r)/k), m > 0, to the maximum of floor(r/k) and floor((m*e+r)/k). Returns false if there is
 * no such term, or if there are several, as each would double the size. */
static bool move_into_max(ir_dim_table *t, const poly *p, int64_t k, ir_dim *out)
{
    int at = -1;
    for (int i = 0; i < p->count; i++) {
        if (!lone_atom(t, &p->terms[i], ATOM_MAX)) continue;
        if (at >= 0) return false;
        at = i;
    }
    if (at < 0) return false;
    const ir_dim inner = lone_atom(t, &p->terms[at], ATOM_MAX)->inner;
    poly rest = *p;
    memmove(&rest.terms[at], &rest.terms[at + 1], (size_t)(--rest.count - at) * sizeof *rest.terms);
    ir_dim low = dim_intern(t, &rest);
    ir_dim high = ir_dim_add(t, low, ir_dim_mul(t, inner, p->terms[at].factor));
    const ir_dim upper = ir_dim_floordiv(t, high, k);
    *out = ir_dim_max(t, ir_dim_floordiv(t, low, k), upper);
    return true;
}

/* floor(p/k) for p without integer multiples of k. */
static ir_dim floor_of_remainder(ir_dim_table *t, const poly *p, int64_t k)
{
    ir_dim simpler;
    if (merge_floors(t, p, k, &simpler) || move_into_max(t, p, k, &simpler)) return simpler;
    return floor_atom(t, dim_intern(t, p), k);
}

ir_dim ir_dim_floordiv(ir_dim_table *t, ir_dim a, int64_t k)
{
    assert(k > 0); /* dim_text.c, infer and folding reject other divisors */
    if (a == IR_DIM_NONE) return IR_DIM_NONE;
    if (!ir_dim_is_symbolic(a)) return dim_floor_quotient(a, k);
    poly p, exact, rest;
    exact.count = rest.count = 0;
    dim_load(t, a, &p);
    for (int i = 0; i < p.count; i++) {
        term x = p.terms[i], r = p.terms[i];
        x.factor = dim_floor_quotient(x.factor, k);
        r.factor -= x.factor * k;
        if (x.factor) exact.terms[exact.count++] = x;
        if (r.factor) rest.terms[rest.count++] = r;
    }
    ir_dim quotient = dim_intern(t, &exact);
    if (rest.count) cancel_common_factor(&rest, &k);
    if (rest.count == 0 || rest.terms[0].degree == 0 || k == 1) return quotient;
    return ir_dim_add(t, quotient, floor_of_remainder(t, &rest, k));
}
