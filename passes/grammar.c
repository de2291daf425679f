/* grammar.c - the rows of the grammar, and the matcher: recursive descent that tries both operand orders of commutative
 * ops. No symbol derives itself, so the recursion is bounded. */
#include "passes/grammar.h"

#include "passes/amp/range.h"

#include <math.h>
#include <string.h>

/* Gets the value of a constant with one element. Trained parameters are not constants. */
static bool get_number(const grammar_match *m, const ir_value *v, double *x)
{
    if (v->kind != IR_VALUE_STORAGE || v->storage->kind == IR_STATE) return false;
    bool trained = v->storage->kind == IR_PARAM && !v->storage->frozen &&
                   ir_graph_by_role(v->graph->module, IR_GRAPH_train);
    return !trained && range_get_number(v, m->compile, x);
}

/* ---- row conditions -------------------------------------------------------------------------- */

typedef bool grammar_check(grammar_match *m, const ir_node *n);

/* A mean over the last axes; all means of a match must have the same axes. */
static bool is_last_mean(grammar_match *m, const ir_node *n)
{
    const ir_attr *axes = &n->attr[IR_ATTR(reduce_mean, axes)];
    int rank = ir_in(n, 0)->type.rank, first = rank - axes->list.count;
    if (!axes->list.count || !n->attr[IR_ATTR(reduce_mean, keepdims)].i) return false;
    for (int i = 0; i < axes->list.count; i++) {
        int64_t axis = axes->list.items[i];
        if ((axis < 0 ? axis + rank : axis) != first + i) return false;
    }
    if (m->axis >= 0 && m->axis != first) return false;
    m->axis = first;
    return true;
}

/* Whether the epsilon can be an attribute, which is an f32; constants of f64 models may be more precise. */
static bool is_guard(grammar_match *m, const ir_node *n)
{
    (void)n;
    return get_number(m, m->bound[EPS], &m->eps) && m->eps >= 0 && isfinite(m->eps) && (double)(float)m->eps == m->eps;
}

/* Whether v has the normalised dimensions, possibly after leading ones, so that it varies only along those. */
static bool is_affine(const grammar_match *m, const ir_value *v)
{
    const ir_type *x = &m->bound[X]->type;
    int rank = x->rank - m->axis, extra = v->type.rank - rank;
    for (int i = 0; i < extra; i++)
        if (v->type.dims[i] != 1) return false;
    return extra >= 0 && memcmp(v->type.dims + extra, x->dims + m->axis, (size_t)rank * sizeof *x->dims) == 0;
}

static bool has_scale(grammar_match *m, const ir_node *n)
{
    (void)n;
    return is_affine(m, m->bound[SCALE]);
}

static bool has_bias(grammar_match *m, const ir_node *n)
{
    (void)n;
    return is_affine(m, m->bound[BIAS]);
}

/* ---- the grammar ----------------------------------------------------------------------------- */

static const double numbers[] = {
    [ONE] = 1,
    [TWO] = 2,
    [THREE] = 3,
    [HALF] = 0.5,
    [MINUS_HALF] = -0.5,
    [ROOT_2] = 1.4142135623730951,
    [ROOT_HALF] = 0.7071067811865476,
    [ROOT_2_PI] = 0.7978845608028654,
    [CUBIC] = 0.044715,
};

#define SAME IR_OP_COUNT /* no node: the symbol is another name for its operand */

static const struct row {
    grammar_symbol is;
    ir_op op;
    grammar_symbol operand[2];
    grammar_check *holds;
} rows[] = {
    /* (x - mean) / sqrt(mean((x - mean)^2) + eps) * scale + bias */
    {MEAN, IR_OP_reduce_mean, {X}, is_last_mean},
    {CENTRED, IR_OP_sub, {X, MEAN}, NULL},
    {SQUARE, IR_OP_mul, {CENTRED, CENTRED}, NULL},
    {SQUARE, IR_OP_pow, {CENTRED, TWO}, NULL},
    {VARIANCE, IR_OP_reduce_mean, {SQUARE}, is_last_mean},
    {GUARDED, IR_OP_add, {VARIANCE, EPS}, is_guard},
    {DEVIATION, IR_OP_sqrt, {GUARDED}, NULL},
    {DEVIATION, IR_OP_pow, {GUARDED, HALF}, NULL},
    {INVERSE, IR_OP_reciprocal, {DEVIATION}, NULL},
    {INVERSE, IR_OP_div, {ONE, DEVIATION}, NULL},
    {INVERSE, IR_OP_pow, {GUARDED, MINUS_HALF}, NULL},
    {NORMAL, IR_OP_div, {CENTRED, DEVIATION}, NULL},
    {NORMAL, IR_OP_mul, {CENTRED, INVERSE}, NULL},
    {WEIGHTED, IR_OP_mul, {CENTRED, SCALE}, has_scale},
    {FACTOR, IR_OP_mul, {INVERSE, SCALE}, has_scale},
    {FACTOR, IR_OP_div, {SCALE, DEVIATION}, has_scale},
    {SCALED, IR_OP_mul, {NORMAL, SCALE}, has_scale},
    {SCALED, IR_OP_mul, {CENTRED, FACTOR}, NULL},
    {SCALED, IR_OP_div, {WEIGHTED, DEVIATION}, NULL},
    {SCALED, IR_OP_mul, {WEIGHTED, INVERSE}, NULL},
    {LAYER_NORM, IR_OP_add, {SCALED, BIAS}, has_bias},
    {LAYER_NORM, IR_OP_add, {NORMAL, BIAS}, has_bias},
    {LAYER_NORM, SAME, {SCALED}, NULL},
    {LAYER_NORM, SAME, {NORMAL}, NULL},
    /* x * factor + (bias - mean * factor) */
    {MOVED_MEAN, IR_OP_mul, {MEAN, FACTOR}, NULL},
    {OFFSET, IR_OP_sub, {BIAS, MOVED_MEAN}, has_bias},
    {MOVED_X, IR_OP_mul, {X, FACTOR}, NULL},
    {LAYER_NORM, IR_OP_add, {MOVED_X, OFFSET}, NULL},
    {LAYER_NORM, IR_OP_sub, {MOVED_X, MOVED_MEAN}, NULL},

    /* x / sqrt(mean(x^2) + eps) * scale */
    {X_SQUARED, IR_OP_mul, {X, X}, NULL},
    {X_SQUARED, IR_OP_pow, {X, TWO}, NULL},
    {MEAN_SQUARE, IR_OP_reduce_mean, {X_SQUARED}, is_last_mean},
    {RMS_GUARDED, IR_OP_add, {MEAN_SQUARE, EPS}, is_guard},
    {RMS, IR_OP_sqrt, {RMS_GUARDED}, NULL},
    {RMS, IR_OP_pow, {RMS_GUARDED, HALF}, NULL},
    {RMS_INVERSE, IR_OP_reciprocal, {RMS}, NULL},
    {RMS_INVERSE, IR_OP_div, {ONE, RMS}, NULL},
    {RMS_INVERSE, IR_OP_pow, {RMS_GUARDED, MINUS_HALF}, NULL},
    {RMS_NORMAL, IR_OP_div, {X, RMS}, NULL},
    {RMS_NORMAL, IR_OP_mul, {X, RMS_INVERSE}, NULL},
    {RMS_FACTOR, IR_OP_mul, {RMS_INVERSE, SCALE}, has_scale},
    {RMS_FACTOR, IR_OP_div, {SCALE, RMS}, has_scale},
    {RMS_NORM, IR_OP_mul, {RMS_NORMAL, SCALE}, has_scale},
    {RMS_NORM, IR_OP_mul, {X, RMS_FACTOR}, NULL},
    {RMS_NORM, SAME, {RMS_NORMAL}, NULL},

    /* x * (1 + erf(x / sqrt(2))) / 2 */
    {ARGUMENT, IR_OP_div, {X, ROOT_2}, NULL},
    {ARGUMENT, IR_OP_mul, {X, ROOT_HALF}, NULL},
    {ERF, IR_OP_erf, {ARGUMENT}, NULL},
    /* the same with tanh(sqrt(2/pi) * (x + 0.044715 x^3)), where the polynomial can be expanded in several ways */
    {X_CUBED, IR_OP_pow, {X, THREE}, NULL},
    {X_CUBED, IR_OP_mul, {X_SQUARED, X}, NULL},
    {CUBE_RATIO, IR_OP_mul, {X_SQUARED, CUBIC}, NULL},
    {CUBE_RATIO, IR_OP_mul, {CUBE_FACTOR, X}, NULL},
    {CUBE_FACTOR, IR_OP_mul, {X, CUBIC}, NULL},
    {CUBE_TERM, IR_OP_mul, {X_CUBED, CUBIC}, NULL},
    {CUBE_TERM, IR_OP_mul, {CUBE_RATIO, X}, NULL},
    {CUBE_TERM, IR_OP_mul, {CUBE_FACTOR, X_SQUARED}, NULL},
    {ROOT_FACTOR, IR_OP_add, {CUBE_RATIO, ONE}, NULL},
    {POLYNOMIAL, IR_OP_add, {X, CUBE_TERM}, NULL},
    {POLYNOMIAL, IR_OP_mul, {X, ROOT_FACTOR}, NULL},
    {X_ROOT, IR_OP_mul, {X, ROOT_2_PI}, NULL},
    {TANH_ARGUMENT, IR_OP_mul, {POLYNOMIAL, ROOT_2_PI}, NULL},
    {TANH_ARGUMENT, IR_OP_mul, {X_ROOT, ROOT_FACTOR}, NULL},
    {TANH, IR_OP_tanh, {TANH_ARGUMENT}, NULL},
    {ONE_PLUS, IR_OP_add, {ERF, ONE}, NULL},
    {ONE_PLUS, IR_OP_add, {TANH, ONE}, NULL},
    {HALF_SIGN, IR_OP_mul, {ERF, HALF}, NULL},
    {HALF_SIGN, IR_OP_mul, {TANH, HALF}, NULL},
    {SHARE, IR_OP_mul, {ONE_PLUS, HALF}, NULL},
    {SHARE, IR_OP_div, {ONE_PLUS, TWO}, NULL},
    {SHARE, IR_OP_add, {HALF_SIGN, HALF}, NULL},
    {HALF_X, IR_OP_mul, {X, HALF}, NULL},
    {HALF_X, IR_OP_div, {X, TWO}, NULL},
    {DOUBLE, IR_OP_mul, {X, ONE_PLUS}, NULL},
    {GELU, IR_OP_mul, {X, SHARE}, NULL},
    {GELU, IR_OP_mul, {HALF_X, ONE_PLUS}, NULL},
    {GELU, IR_OP_mul, {DOUBLE, HALF}, NULL},
    {GELU, IR_OP_div, {DOUBLE, TWO}, NULL},
};

/* ---- the matcher ----------------------------------------------------------------------------- */

/* Whether v is the wanted number: exactly, if its dtype can represent it; else the nearest one, or equal to six
 * digits. */
static bool is_number(const grammar_match *m, const ir_value *v, double expected)
{
    double x;
    char nearest[8];
    if (!get_number(m, v, &x)) return false;
    ir_store_f64(v->type.dtype, nearest, expected);
    double error = fabs(ir_load_f64(v->type.dtype, nearest) - expected);
    return fabs(x - expected) <= (error > 0 ? fmax(error, 1e-6 * fabs(expected)) : 0);
}

static bool derive(grammar_match *m, grammar_symbol s, ir_value *v);

/* Adds n to the nodes of the match, which are in graph order; false: too many nodes. */
static bool add_node(grammar_match *m, ir_node *n)
{
    int at = m->count;
    while (at && m->nodes[at - 1]->id > n->id) at--;
    if (at && m->nodes[at - 1] == n) return true;
    if (m->count == GRAMMAR_MAX) return false;
    memmove(m->nodes + at + 1, m->nodes + at, (size_t)(m->count++ - at) * sizeof *m->nodes);
    m->nodes[at] = n;
    return true;
}

static bool fits_in_order(grammar_match *m, const struct row *row, ir_node *n, bool swapped)
{
    for (int i = 0; i < n->n_in; i++) {
        grammar_symbol expected = i < 2 ? row->operand[i] : NOTHING;
        ir_value *v = ir_in(n, expected && swapped ? 1 - i : i);
        if (expected ? !v || !derive(m, expected, v) : v != NULL) return false;
    }
    if (row->holds && !row->holds(m, n)) return false;
    m->used[row->is] = true;
    return add_node(m, n);
}

static bool fits(grammar_match *m, const struct row *row, ir_value *v)
{
    if (row->op == SAME) return derive(m, row->operand[0], v);
    if (v->def->op != row->op) return false;
    bool commutes = ir_op_has(row->op, IR_COMMUTES);
    for (int swapped = 0; swapped <= commutes; swapped++) {
        grammar_match trial = *m;
        if (!fits_in_order(&trial, row, v->def, swapped)) continue;
        *m = trial;
        return true;
    }
    return false;
}

static bool capture(ir_value **bound, ir_value *v)
{
    if (!*bound) *bound = v;
    return *bound == v;
}

static bool derive(grammar_match *m, grammar_symbol s, ir_value *v)
{
    if (s < X) return is_number(m, v, numbers[s]);
    if (s < MEAN) return capture(&m->bound[s], v);
    if (v->kind != IR_VALUE_RESULT) return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is == s && fits(m, &rows[i], v)) return true;
    return false;
}

bool grammar_derive(grammar_symbol s, ir_value *v, const compile *c, grammar_match *out)
{
    *out = (grammar_match){.compile = c, .axis = -1};
    return derive(out, s, v);
}
