/* dim.c - dimension expressions in canonical form.
 *
 * An expression is a polynomial: terms sorted by descending degree, then by their atoms; each term has a non-zero
 * factor and a sorted list of atoms. Atoms are ordered by name and structure rather than by creation, so the same text
 * yields the same order in every table. Expressions and atoms are interned, so equal expressions are equal numbers.
 *
 * Floor divisions and maxima are atoms created by dim_floor.c and dim_range.c. The size of an expression is bounded
 * (terms, degree, depth, weight); beyond the bounds the result is IR_DIM_NONE. */
#include "ir/ops/dim_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 6, MAX_WEIGHT = 256 }; /* the longest text fits into IR text */

ir_dim_table *ir_dim_table_new(arena *a)
{
    ir_dim_table *t = arena_alloc(a, sizeof *t);
    t->arena = a;
    t->symbol_dims = strmap_new(a);
    t->atom_dims = strmap_new(a);
    t->slot_count = 64;
    t->slots = arena_array(a, t->slot_count, sizeof *t->slots);
    return t;
}

ir_dim ir_dim_number(int64_t n) { return n < IR_DIM_LOWEST ? IR_DIM_LOWEST : n; }

bool ir_dim_exists(const ir_dim_table *t, ir_dim d)
{
    return ir_dim_is_symbolic(d) && (size_t)(d - (INT64_MIN + 1)) < t->expressions.count;
}

const expression *ir_dim_expression(const ir_dim_table *t, ir_dim d)
{
    size_t index = (size_t)(d - (INT64_MIN + 1));
    assert(ir_dim_is_symbolic(d) && index < t->expressions.count); /* only this table creates symbolic dimensions */
    return &t->expressions.items[index];
}

static int depth_of(const ir_dim_table *t, ir_dim d)
{
    return ir_dim_is_symbolic(d) ? ir_dim_expression(t, d)->depth : 0;
}

/* ---- order ----------------------------------------------------------------------------------- */

static int compare_dims(const ir_dim_table *t, ir_dim a, ir_dim b);

/* Symbols by name, then floor divisions, then maxima. */
static int compare_atoms(const ir_dim_table *t, uint32_t i, uint32_t j)
{
    if (i == j) return 0;
    const atom *a = &t->atoms.items[i], *b = &t->atoms.items[j];
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->kind == ATOM_SYMBOL) return strcmp(a->name, b->name);
    if (a->divisor != b->divisor) return a->divisor < b->divisor ? -1 : 1;
    return compare_dims(t, a->inner, b->inner);
}

/* Graded lexicographic order of the atoms. It is a monomial order, which exact division requires. */
static int compare_terms(const ir_dim_table *t, const term *a, const term *b)
{
    if (a->degree != b->degree) return a->degree > b->degree ? -1 : 1;
    for (uint32_t i = 0; i < a->degree; i++) {
        int order = compare_atoms(t, a->atoms[i], b->atoms[i]);
        if (order) return order;
    }
    return 0;
}

static int compare_dims(const ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == b) return 0;
    const expression *x = ir_dim_expression(t, a), *y = ir_dim_expression(t, b);
    for (int i = 0; i < x->count && i < y->count; i++) {
        int order = compare_terms(t, &x->terms[i], &y->terms[i]);
        if (order) return order;
        if (x->terms[i].factor != y->terms[i].factor) return x->terms[i].factor < y->terms[i].factor ? -1 : 1;
    }
    return x->count < y->count ? -1 : 1;
}

/* ---- polynomials ----------------------------------------------------------------------------- */

void dim_load(const ir_dim_table *t, ir_dim d, poly *p)
{
    p->count = 0;
    if (ir_dim_is_symbolic(d)) {
        const expression *e = ir_dim_expression(t, d);
        memcpy(p->terms, e->terms, (size_t)e->count * sizeof *e->terms);
        p->count = e->count;
    } else if (d) {
        p->terms[p->count++] = (term){.factor = d};
    }
}

/* Factors stay in the range of plain numbers, so they can be negated and divided. */
static bool factor_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out) && *out >= IR_DIM_LOWEST;
}

static bool factor_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && *out >= IR_DIM_LOWEST;
}

/* p += x. Returns false on overflow or if there are too many terms. */
static bool poly_add(const ir_dim_table *t, poly *p, const term *x)
{
    int at = 0, order = 1;
    while (at < p->count && (order = compare_terms(t, &p->terms[at], x)) < 0) at++;
    term *here = &p->terms[at];
    size_t rest = (size_t)(p->count - at) * sizeof *here;
    if (at < p->count && order == 0) {
        if (!factor_add(here->factor, x->factor, &here->factor)) return false;
        if (here->factor == 0) {
            memmove(here, here + 1, rest - sizeof *here);
            p->count--;
        }
        return true;
    }
    if (p->count == MAX_TERMS) return false;
    memmove(here + 1, here, rest);
    *here = *x;
    p->count++;
    return true;
}

static bool term_mul(const ir_dim_table *t, const term *a, const term *b, term *out)
{
    if (a->degree + b->degree > MAX_DEGREE) return false;
    if (!factor_mul(a->factor, b->factor, &out->factor)) return false;
    memset(out->atoms, 0, sizeof out->atoms);
    uint32_t i = 0, j = 0;
    for (out->degree = 0; i < a->degree || j < b->degree; out->degree++) {
        bool left = j == b->degree || (i < a->degree && compare_atoms(t, a->atoms[i], b->atoms[j]) <= 0);
        out->atoms[out->degree] = left ? a->atoms[i++] : b->atoms[j++];
    }
    return true;
}

/* a / b if a has every atom of b and the factor of b divides that of a. */
static bool term_div(const term *a, const term *b, term *out)
{
    if (a->factor % b->factor) return false;
    *out = (term){.factor = a->factor / b->factor};
    uint32_t j = 0;
    for (uint32_t i = 0; i < a->degree; i++) {
        if (j < b->degree && a->atoms[i] == b->atoms[j]) j++;
        else out->atoms[out->degree++] = a->atoms[i];
    }
    return j == b->degree;
}

static uint64_t poly_hash(const term *terms, int count)
{
    uint64_t h = 0xcbf29ce484222325u;
    const unsigned char *p = (const unsigned char *)terms;
    for (size_t i = 0; i < (size_t)count * sizeof *terms; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static uint32_t *find_slot(const ir_dim_table *t, const term *terms, int count)
{
    size_t i = poly_hash(terms, count) & (t->slot_count - 1);
    for (; t->slots[i]; i = (i + 1) & (t->slot_count - 1)) {
        const expression *e = &t->expressions.items[t->slots[i] - 1];
        if (e->count == count && !memcmp(e->terms, terms, (size_t)count * sizeof *terms)) break;
    }
    return &t->slots[i];
}

static void grow_slots(ir_dim_table *t)
{
    t->slot_count *= 2;
    t->slots = arena_array(t->arena, t->slot_count, sizeof *t->slots);
    for (size_t i = 0; i < t->expressions.count; i++) {
        const expression *e = &t->expressions.items[i];
        *find_slot(t, e->terms, e->count) = (uint32_t)i + 1;
    }
}

static expression measure(const ir_dim_table *t, const poly *p)
{
    expression e = {.count = p->count};
    for (int i = 0; i < p->count; i++) {
        e.weight++;
        for (uint32_t j = 0; j < p->terms[i].degree; j++) {
            const atom *a = &t->atoms.items[p->terms[i].atoms[j]];
            e.weight++;
            if (a->kind == ATOM_SYMBOL) continue;
            const expression *inner = ir_dim_expression(t, a->inner);
            e.weight += inner->weight;
            if (e.depth <= inner->depth) e.depth = inner->depth + 1;
        }
    }
    return e;
}

ir_dim dim_intern(ir_dim_table *t, const poly *p)
{
    if (p->count == 0) return 0;
    if (p->count == 1 && p->terms[0].degree == 0) return ir_dim_number(p->terms[0].factor);
    uint32_t *slot = find_slot(t, p->terms, p->count);
    if (!*slot) {
        assert(t->expressions.count < UINT32_MAX - 1); /* memory runs out earlier */
        expression e = measure(t, p);
        if (e.weight > MAX_WEIGHT) return IR_DIM_NONE;
        term *terms = arena_array(t->arena, (size_t)p->count, sizeof *terms);
        memcpy(terms, p->terms, (size_t)p->count * sizeof *terms);
        e.terms = terms;
        vec_push(t->arena, &t->expressions, e);
        *slot = (uint32_t)t->expressions.count;
        ir_dim d = INT64_MIN + (int64_t)*slot;
        if (t->expressions.count * 2 > t->slot_count) grow_slots(t);
        return d;
    }
    return INT64_MIN + (int64_t)*slot;
}

/* ---- atoms ----------------------------------------------------------------------------------- */

static ir_dim atom_new(ir_dim_table *t, strmap *map, const char *key, const atom *a)
{
    poly p;
    p.count = 1;
    p.terms[0] = (term){.factor = 1, .degree = 1, .atoms = {(uint32_t)t->atoms.count}};
    vec_push(t->arena, &t->atoms, *a);
    ir_dim *box = arena_alloc(t->arena, sizeof *box);
    *box = dim_intern(t, &p);
    strmap_put(map, key, box);
    return *box;
}

ir_dim ir_dim_symbol(ir_dim_table *t, const char *name)
{
    const ir_dim *found = strmap_get(t->symbol_dims, name);
    if (found) return *found;
    atom a = {.name = arena_strdup(t->arena, name), .symbol = t->symbols.count, .max = IR_DIM_MAX_SIZE};
    vec_push(t->arena, &t->symbols, (uint32_t)t->atoms.count);
    return atom_new(t, t->symbol_dims, name, &a);
}

size_t ir_dim_symbol_count(const ir_dim_table *t) { return t->symbols.count; }

const char *ir_dim_symbol_name(const ir_dim_table *t, size_t index)
{
    return t->atoms.items[t->symbols.items[index]].name;
}

ir_dim dim_atom(ir_dim_table *t, const atom *a)
{
    if (a->inner == IR_DIM_NONE || depth_of(t, a->inner) >= MAX_DEPTH) return IR_DIM_NONE;
    char key[64];
    if (a->kind == ATOM_FLOOR) snprintf(key, sizeof key, "%" PRId64 "/%" PRId64, a->inner, a->divisor);
    else snprintf(key, sizeof key, "max %" PRId64, a->inner);
    const ir_dim *found = strmap_get(t->atom_dims, key);
    return found ? *found : atom_new(t, t->atom_dims, key, a);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static bool both_numbers(ir_dim a, ir_dim b) { return a >= IR_DIM_LOWEST && b >= IR_DIM_LOWEST; }

bool dim_accumulate(const ir_dim_table *t, poly *p, int64_t factor, const poly *terms)
{
    for (int i = 0; i < terms->count; i++) {
        term x = terms->terms[i];
        if (!factor_mul(x.factor, factor, &x.factor) || (x.factor && !poly_add(t, p, &x))) return false;
    }
    return true;
}

ir_dim ir_dim_add(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == IR_DIM_NONE || b == IR_DIM_NONE) return IR_DIM_NONE;
    int64_t number;
    if (both_numbers(a, b)) return factor_add(a, b, &number) ? number : IR_DIM_NONE;
    poly p, q;
    dim_load(t, a, &p);
    dim_load(t, b, &q);
    return dim_accumulate(t, &p, 1, &q) ? dim_intern(t, &p) : IR_DIM_NONE;
}

ir_dim ir_dim_sub(ir_dim_table *t, ir_dim a, ir_dim b) { return ir_dim_add(t, a, ir_dim_mul(t, b, -1)); }

ir_dim ir_dim_mul(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == IR_DIM_NONE || b == IR_DIM_NONE) return IR_DIM_NONE;
    int64_t number;
    if (both_numbers(a, b)) return factor_mul(a, b, &number) ? number : IR_DIM_NONE;
    size_t memo = ((uint64_t)a * 31 + (uint64_t)b) % (sizeof t->products / sizeof *t->products);
    if (t->products[memo].a == a && t->products[memo].b == b) return t->products[memo].product;
    poly p, q, product;
    product.count = 0;
    dim_load(t, a, &p);
    dim_load(t, b, &q);
    for (int i = 0; i < p.count; i++)
        for (int j = 0; j < q.count; j++) {
            term x;
            if (!term_mul(t, &p.terms[i], &q.terms[j], &x) || !poly_add(t, &product, &x)) return IR_DIM_NONE;
        }
    ir_dim result = dim_intern(t, &product);
    t->products[memo].a = a;
    t->products[memo].b = b;
    t->products[memo].product = result;
    return result;
}

int64_t dim_floor_quotient(int64_t a, int64_t k) { return a / k - (a % k < 0); }

int64_t dim_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

ir_dim ir_dim_div(ir_dim_table *t, ir_dim a, ir_dim b)
{
    if (a == IR_DIM_NONE || b == IR_DIM_NONE || b == 0) return IR_DIM_NONE;
    poly p, q, quotient;
    quotient.count = 0;
    dim_load(t, a, &p);
    dim_load(t, b, &q);
    while (p.count) { /* each round lowers the leading term */
        term x, y;
        if (!term_div(&p.terms[0], &q.terms[0], &x) || !poly_add(t, &quotient, &x)) return IR_DIM_NONE;
        term minus = x;
        minus.factor = -x.factor;
        for (int j = 0; j < q.count; j++)
            if (!term_mul(t, &minus, &q.terms[j], &y) || !poly_add(t, &p, &y)) return IR_DIM_NONE;
    }
    return dim_intern(t, &quotient);
}

ir_dim ir_dim_product(ir_dim_table *t, const ir_dim *dims, int rank)
{
    ir_dim product = 1;
    for (int i = 0; i < rank; i++) product = ir_dim_mul(t, product, dims[i]);
    return product;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool atom_eval(const ir_dim_table *t, uint32_t index, const int64_t *sizes, int64_t *out, size_t *unbound)
{
    const atom *a = &t->atoms.items[index];
    if (a->kind != ATOM_SYMBOL) {
        if (!ir_dim_eval(t, a->inner, sizes, out, unbound)) return false;
        *out = a->kind == ATOM_FLOOR ? dim_floor_quotient(*out, a->divisor) : *out > 0 ? *out : 0;
        return true;
    }
    *out = sizes[a->symbol];
    if (*out >= 0) return true;
    if (unbound) *unbound = a->symbol;
    return false;
}

bool ir_dim_eval(const ir_dim_table *t, ir_dim d, const int64_t *sizes, int64_t *out, size_t *unbound)
{
    if (unbound) *unbound = SIZE_MAX;
    if (d == IR_DIM_NONE) return false;
    *out = d;
    if (!ir_dim_is_symbolic(d)) return true;
    const expression *e = ir_dim_expression(t, d);
    int64_t sum = 0;
    for (int i = 0; i < e->count; i++) {
        int64_t value = e->terms[i].factor, size;
        for (uint32_t j = 0; j < e->terms[i].degree; j++)
            if (!atom_eval(t, e->terms[i].atoms[j], sizes, &size, unbound) ||
                __builtin_mul_overflow(value, size, &value))
                return false;
        if (__builtin_add_overflow(sum, value, &sum)) return false;
    }
    *out = sum;
    return true;
}
