/* dim_range.c - ranges of dimensions over all sizes of their symbols; maximum and minimum.
 *
 * A range is computed by interval arithmetic over the terms. This is imprecise if terms are correlated, as in
 * N-max(0,N-5). To improve it, a term is resolved, that is, replaced by simpler expressions: max(0,e) is 0 or e, and at
 * least each of them; floor(e/k) is between (e-k+1)/k and e/k. The number of resolutions is bounded.
 *
 * The canonical form of max(0,e): a factor common to all terms is moved outside; an inner maximum is resolved if the
 * ranges show which of its cases matters; and since max(0,-e) equals max(0,e)-e, only the one whose argument has a
 * positive leading factor is used as an atom. */
#include "ir/ops/dim_table.h"

#include <string.h>

enum { EFFORT = 48 }; /* maximum number of resolutions in a search */

#define OPEN INT64_MIN /* an unknown minimum */

/* ---- ranges -------------------------------------------------------------------------------------------------- */

/* Multiplies non-negative numbers; INT64_MAX: unknown. */
static int64_t multiply(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t min_of_term(const ir_dim_table *t, const term *x)
{
    const bool negative = x->factor < 0;
    int64_t value = negative ? -x->factor : x->factor;
    for (uint32_t i = 0; i < x->degree; i++) {
        const atom *a = &t->atoms.items[x->atoms[i]];
        value = multiply(value, negative ? a->max : a->min);
    }
    if (value == INT64_MAX) return negative ? OPEN : x->factor;
    return negative ? -value : value;
}

static int64_t sum_of_minima(const ir_dim_table *t, const poly *p)
{
    int64_t sum = 0;
    for (int i = 0; i < p->count; i++) {
        const int64_t low = min_of_term(t, &p->terms[i]);
        if (low == OPEN || __builtin_add_overflow(sum, low, &sum)) return OPEN;
    }
    return sum;
}

static bool is_monotone(const poly *p)
{
    for (int i = 0; i < p->count; i++)
        if (p->terms[i].degree && p->terms[i].factor < 0) return false;
    return true;
}

static poly without(const poly *p, int at)
{
    poly rest = *p;
    rest.count--;
    memmove(&rest.terms[at], &rest.terms[at + 1], (size_t)(rest.count - at) * sizeof *rest.terms);
    return rest;
}

static int64_t min_of(const ir_dim_table *t, const poly *p, int *effort);

/* The minimum of scale * (p without term `at`) + factor * inner + constant. */
static int64_t min_of_case(const ir_dim_table *t, const poly *p, int at, int64_t scale, int64_t factor, ir_dim inner,
                           int64_t constant, int *effort)
{
    const poly rest = without(p, at);
    poly sum = {.count = 0}, with;
    if (!dim_accumulate(t, &sum, scale, &rest)) return OPEN;
    dim_load(t, inner, &with);
    if (!dim_accumulate(t, &sum, factor, &with)) return OPEN;
    dim_load(t, constant, &with);
    return dim_accumulate(t, &sum, 1, &with) ? min_of(t, &sum, effort) : OPEN;
}

/* The minimum of p with term `at`, an atom that has an inner expression, resolved. */
static int64_t min_resolved(const ir_dim_table *t, const poly *p, int at, int *effort)
{
    const atom *a = &t->atoms.items[p->terms[at].atoms[0]];
    const int64_t factor = p->terms[at].factor;
    int64_t slack = 0;
    if (a->kind == ATOM_MAX) {
        const int64_t without_it = min_of_case(t, p, at, 1, 0, 0, 0, effort);
        const int64_t with_it = min_of_case(t, p, at, 1, factor, a->inner, 0, effort);
        return (factor > 0) == (with_it > without_it) ? with_it : without_it;
    }
    if (factor > 0 && (__builtin_mul_overflow(factor, 1 - a->divisor, &slack) || slack < IR_DIM_LOWEST)) return OPEN;
    const int64_t min = min_of_case(t, p, at, a->divisor, factor, a->inner, slack, effort);
    return min == OPEN ? OPEN : -dim_floor_quotient(-min, a->divisor);
}

static int64_t min_of(const ir_dim_table *t, const poly *p, int *effort)
{
    int64_t best = sum_of_minima(t, p);
    if (is_monotone(p)) return best;
    for (int i = 0; i < p->count; i++) {
        const term *x = &p->terms[i];
        if (x->degree != 1 || t->atoms.items[x->atoms[0]].kind == ATOM_SYMBOL) continue;
        if ((*effort)-- <= 0) break;
        const int64_t resolved = min_resolved(t, p, i, effort);
        if (resolved > best) best = resolved;
    }
    return best;
}

ir_dim ir_dim_lower_bound(const ir_dim_table *t, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return d;
    poly p;
    int effort = EFFORT;
    dim_load(t, d, &p);
    const int64_t min = min_of(t, &p, &effort);
    return min < IR_DIM_LOWEST ? IR_DIM_NONE : min;
}

ir_dim ir_dim_upper_bound(const ir_dim_table *t, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return d;
    poly p, minus = {.count = 0};
    int effort = EFFORT;
    dim_load(t, d, &p);
    if (!dim_accumulate(t, &minus, -1, &p)) return IR_DIM_NONE;
    const int64_t min = min_of(t, &minus, &effort);
    return min < IR_DIM_LOWEST ? IR_DIM_NONE : -min;
}

static bool never_negative(const ir_dim_table *t, ir_dim d) { return ir_dim_lower_bound(t, d) >= 0; }

static bool never_positive(const ir_dim_table *t, ir_dim d)
{
    const ir_dim max = ir_dim_upper_bound(t, d);
    return max != IR_DIM_NONE && max <= 0;
}

/* ---- max(0,e) ------------------------------------------------------------------------------------------------ */

static ir_dim positive(ir_dim_table *t, ir_dim e);

static ir_dim max_atom(ir_dim_table *t, ir_dim e)
{
    const ir_dim min = ir_dim_lower_bound(t, e), max = ir_dim_upper_bound(t, e);
    const atom a = {
        .kind = ATOM_MAX, .inner = e, .min = min > 0 ? min : 0, .max = max == IR_DIM_NONE ? INT64_MAX : max};
    return dim_atom(t, &a);
}

static bool has_atom(const term *x, uint32_t index)
{
    for (uint32_t i = 0; i < x->degree; i++)
        if (x->atoms[i] == index) return true;
    return false;
}

/* The number and the atoms that divide all terms. */
static ir_dim shared_factor(ir_dim_table *t, const poly *p)
{
    poly shared = {.count = 1};
    term *out = &shared.terms[0];
    for (int i = 0; i < p->count; i++) {
        const int64_t factor = p->terms[i].factor;
        out->factor = dim_gcd(factor < 0 ? -factor : factor, out->factor);
    }
    const term *first = &p->terms[0];
    for (uint32_t j = 0; j < first->degree; j++) {
        bool everywhere = j == 0 || first->atoms[j] != first->atoms[j - 1]; /* counts a repeated atom once */
        for (int i = 1; i < p->count && everywhere; i++) everywhere = has_atom(&p->terms[i], first->atoms[j]);
        if (everywhere) out->atoms[out->degree++] = first->atoms[j];
    }
    return dim_intern(t, &shared);
}

/* Computes max(0,e) for e = m*max(0,f)+r, which equals r or s = m*f+r. Returns false if no term of e is a maximum of
 * which only one case matters for all sizes. */
static bool without_inner_max(ir_dim_table *t, ir_dim e, const poly *p, ir_dim *out)
{
    for (int i = 0; i < p->count; i++) {
        const term *x = &p->terms[i];
        if (x->degree != 1 || t->atoms.items[x->atoms[0]].kind != ATOM_MAX) continue;
        const poly rest = without(p, i);
        const ir_dim f = t->atoms.items[x->atoms[0]].inner, r = dim_intern(t, &rest);
        const ir_dim s = ir_dim_add(t, r, ir_dim_mul(t, f, x->factor));
        if (s == IR_DIM_NONE) continue;
        if (x->factor > 0 && never_positive(t, r)) *out = positive(t, s);
        else if (x->factor > 0 && never_positive(t, s)) *out = positive(t, r);
        else if (x->factor < 0 && never_negative(t, s)) {
            const ir_dim others = ir_dim_sub(t, e, r);
            *out = ir_dim_add(t, positive(t, r), others);
        } else if (x->factor < 0 && never_negative(t, r)) *out = ir_dim_add(t, e, positive(t, ir_dim_sub(t, 0, s)));
        else continue;
        return true;
    }
    return false;
}

static ir_dim positive(ir_dim_table *t, ir_dim e)
{
    if (e == IR_DIM_NONE || never_negative(t, e)) return e;
    if (never_positive(t, e)) return 0;
    poly p;
    ir_dim simpler;
    dim_load(t, e, &p);
    const ir_dim factor = shared_factor(t, &p);
    if (factor != 1) return ir_dim_mul(t, factor, positive(t, ir_dim_div(t, e, factor)));
    if (without_inner_max(t, e, &p, &simpler)) return simpler;
    return p.terms[0].factor > 0 ? max_atom(t, e) : ir_dim_add(t, e, max_atom(t, ir_dim_sub(t, 0, e)));
}

/* ---- max and min --------------------------------------------------------------------------------------------- */

ir_dim ir_dim_max(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == 0) return positive(t, b); /* no subtraction, which might overflow: this is how an atom is read back */
    const ir_dim difference = ir_dim_sub(t, a, b);
    if (never_negative(t, difference)) return a;
    return never_positive(t, difference) ? b : ir_dim_add(t, b, positive(t, difference));
}

ir_dim ir_dim_min(ir_dim_table *t, ir_dim a, ir_dim b)
{
    const ir_dim difference = ir_dim_sub(t, a, b);
    if (never_negative(t, difference)) return b;
    return never_positive(t, difference) ? a : ir_dim_sub(t, a, positive(t, difference));
}

bool ir_dim_may_equal(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == b) return true;
    if (!ir_dim_is_symbolic(a) && !ir_dim_is_symbolic(b)) return false;
    const ir_dim difference = ir_dim_sub(t, a, b);
    if (difference == IR_DIM_NONE) return true;
    const ir_dim low = ir_dim_lower_bound(t, difference), high = ir_dim_upper_bound(t, difference);
    return (low == IR_DIM_NONE || low <= 0) && (high == IR_DIM_NONE || high >= 0);
}
