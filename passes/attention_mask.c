/* attention_mask.c - recognises the masks of attentions.
 *
 * A mask is evaluated as a function of the query t and the key s, the last two axes of the scores:
 *
 *   a number                     the same everywhere
 *   a position                   a number that grows by one along an axis, as `iota` and its reshapes do
 *   a staircase                  `below` where s - t <= step, `above` elsewhere: triu, tril, comparisons of positions
 *
 * A staircase whose last query sees all keys, and the others one less each, is the causal mask. Constants of files are
 * read, because exporters fold masks of known size. */
#include "passes/attention_mask.h"

#include "ir/fold/fold.h"
#include "passes/amp/range.h"

#include <math.h>
#include <string.h>

enum { KEY_AXIS = 1, QUERY_AXIS = 2 }; /* counted from the end, from 1 */

typedef enum form_kind { UNKNOWN, NUMBER, POSITION, STAIRCASE } form_kind;

typedef struct form {
    form_kind kind;
    int axis;            /* of a position */
    ir_dim at;           /* of a position: the number at 0; of a staircase: the step; of an integer: the number */
    bool whole;          /* a number is an integer, possibly symbolic, in `at` */
    double below, above; /* the numbers of a staircase; a number is in both */
} form;

static const form unknown = {.kind = UNKNOWN};

static form number_of(double x) { return (form){.kind = NUMBER, .below = x, .above = x}; }

static form integer_of(ir_dim at)
{
    if (at == IR_DIM_NONE) return unknown;
    const double x = ir_dim_is_symbolic(at) ? NAN : (double)at;
    return (form){.kind = NUMBER, .whole = true, .at = at, .below = x, .above = x};
}

static form staircase(ir_dim step, double below, double above)
{
    if (step == IR_DIM_NONE) return unknown;
    return below == above ? number_of(below) : (form){.kind = STAIRCASE, .at = step, .below = below, .above = above};
}

/* ---- constants --------------------------------------------------------------------------------- */

typedef struct matrix {
    const char *data;
    ir_dtype dtype;
    int64_t count, rows, columns;
} matrix;

static double element(const matrix *m, int64_t i)
{
    const char *at = m->data + (size_t)i * ir_dtype_size(m->dtype);
    return ir_dtype_is_float(m->dtype) ? ir_load_f64(m->dtype, at) : (double)ir_load_i64(m->dtype, at);
}

static bool has_form(const matrix *m, ir_dim step, double below, double above)
{
    for (int64_t i = 0; i < m->count; i++) {
        const int64_t s = i % m->columns, t = i / m->columns % m->rows;
        if (!(element(m, i) == (s - t <= step ? below : above))) return false;
    }
    return true;
}

/* The form of a matrix, repeated along all other axes. */
static form form_of_matrix(const matrix *m)
{
    const double last = element(m, m->columns - 1);
    int64_t step = 0;
    while (step < m->columns && element(m, step) != last) step++;
    const double below = step ? element(m, 0) : element(m, (m->rows - 1) * m->columns);
    return has_form(m, step - 1, below, last) ? staircase(step - 1, below, last) : unknown;
}

/* A vector 0, 1, .. plus a number. */
static form form_of_vector(const matrix *m, const ir_type *type)
{
    int axis = 0;
    if (ir_dtype_is_float(m->dtype) || m->count < 2) return unknown;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] == m->count) axis = type->rank - i;
    for (int64_t i = 0; i < m->count; i++)
        if (!axis || element(m, i) != element(m, 0) + (double)i) return unknown;
    return (form){.kind = POSITION, .axis = axis, .at = ir_dim_number((int64_t)element(m, 0))};
}

static form form_of_constant(const attention_mask *m, const ir_value *v)
{
    const ir_storage *s = v->storage;
    const ir_type *type = &s->type;
    const bool trained = s->kind == IR_PARAM && !s->frozen && ir_graph_by_role(v->graph->module, IR_GRAPH_train);
    if (s->kind == IR_STATE || trained || !ir_storage_bytes(s)) return unknown;
    const matrix x = {.data = range_read(s, m->compile, m->arena),
                      .dtype = type->dtype,
                      .count = ir_storage_bytes(s) / (int64_t)ir_dtype_size(type->dtype),
                      .rows = type->rank > 1 ? type->dims[type->rank - 2] : 1,
                      .columns = type->rank ? type->dims[type->rank - 1] : 1};
    if (!x.data) return unknown;
    if (x.count == 1 && !ir_dtype_is_float(x.dtype)) return integer_of(ir_dim_number((int64_t)element(&x, 0)));
    const form f = form_of_matrix(&x);
    return f.kind == UNKNOWN ? form_of_vector(&x, type) : f;
}

/* ---- ops ------------------------------------------------------------------------------------------ */

typedef struct reader {
    const attention_mask *mask;
    ir_dim_table *dims;
    int depth;
} reader;

enum { DEEPEST = 32 };

/* How an op makes its result from forms, and how a term that it computes is split into others. */
typedef struct op_rule op_rule;
typedef form form_rule(reader *r, const ir_node *n, const op_rule *rule);
typedef bool split_rule(attention_mask *m, attention_term t, const ir_node *n);
typedef double truth_rule(double a, double b);

struct op_rule {
    ir_op op;
    form_rule *form;
    split_rule *split;        /* NULL: a term is not split */
    truth_rule *truth;        /* of the ops on conditions */
    int sign;                 /* of the second term of a sum */
    bool compares, from_high; /* an order of positions; the greater one is the first */
    bool equal;               /* it includes equal ones */
};

static const op_rule *rule_of(const ir_node *n);
static form form_of(reader *r, const ir_value *v);

/* Along which axis of the result an axis of the operand is, both from the end; 0: it is not whole there. A reshape
 * may only add or remove axes of size 1. */
static int moved_axis(const ir_type *from, const ir_type *to, int axis)
{
    int at = 0, found = 0;
    for (int i = 0; i < from->rank; i++) {
        if (from->dims[i] == 1) continue;
        while (at < to->rank && to->dims[at] == 1) at++;
        if (at == to->rank || to->dims[at] != from->dims[i]) return 0;
        if (from->rank - i == axis) found = to->rank - at;
        at++;
    }
    for (; at < to->rank; at++)
        if (to->dims[at] != 1) return 0;
    return found;
}

static form reshaped(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)rule;
    const ir_type *from = &ir_in(n, 0)->type, *to = &n->out[0]->type;
    form f = form_of(r, ir_in(n, 0));
    if (f.kind == POSITION) {
        f.axis = moved_axis(from, to, f.axis);
        return f.axis ? f : unknown;
    }
    if (f.kind != STAIRCASE) return f;
    const bool stays = moved_axis(from, to, KEY_AXIS) == KEY_AXIS && moved_axis(from, to, QUERY_AXIS) == QUERY_AXIS;
    return stays ? f : unknown;
}

/* Axes are counted from the end, and repeating an axis of size 1 changes nothing along the others. */
static form passed(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)rule;
    return form_of(r, ir_in(n, 0));
}

static form sliced(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)rule;
    form f = form_of(r, ir_in(n, 0));
    const int rank = ir_in(n, 0)->type.rank;
    const ir_attr *start = &n->attr[IR_ATTR(slice, start)], *step = &n->attr[IR_ATTR(slice, step)];
    for (int i = 0; i < rank && f.kind != NUMBER; i++) {
        const int axis = rank - i;
        const ir_dim from = start->list.items[i];
        if (step->list.items[i] != 1) return unknown;
        if (f.kind == POSITION ? axis == f.axis : axis == QUERY_AXIS) f.at = ir_dim_add(r->dims, f.at, from);
        else if (f.kind == STAIRCASE && axis == KEY_AXIS) f.at = ir_dim_sub(r->dims, f.at, from);
    }
    return f.at == IR_DIM_NONE ? unknown : f;
}

/* 0 above or below the diagonal k. */
static form triangle(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)rule;
    const form f = form_of(r, ir_in(n, 0));
    const int64_t k = n->attr[IR_ATTR(trilu, k)].i;
    if (f.kind != NUMBER) return unknown;
    return n->attr[IR_ATTR(trilu, upper)].i ? staircase(k - 1, 0, f.below) : staircase(k, f.below, 0);
}

/* A vector 0, 1, .. */
static form counted(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)r, (void)rule;
    return n->out[0]->type.rank == 1 ? (form){.kind = POSITION, .axis = 1} : unknown;
}

static form dimension(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)r, (void)rule;
    const ir_attr *dims = &n->attr[IR_ATTR(dims, value)];
    return dims->list.count == 1 ? integer_of(dims->list.items[0]) : unknown;
}

static form selected(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)rule;
    const form c = form_of(r, ir_in(n, 0)), a = form_of(r, ir_in(n, 1)), b = form_of(r, ir_in(n, 2));
    if (c.kind == NUMBER) return c.below != 0 ? a : b;
    if (c.kind != STAIRCASE || a.kind != NUMBER || b.kind != NUMBER) return unknown;
    return staircase(c.at, c.below != 0 ? a.below : b.below, c.above != 0 ? a.above : b.above);
}

/* A number that is stored in another type. Symbols have no numbers. */
static form converted(reader *r, const ir_node *n, const op_rule *rule)
{
    (void)rule;
    const ir_dtype to = n->out[0]->type.dtype;
    form f = form_of(r, ir_in(n, 0));
    if (f.kind == UNKNOWN || (f.kind == POSITION && ir_dtype_is_float(to))) return unknown;
    if (f.kind == POSITION || isnan(f.below)) return f;
    f.whole = f.whole && !ir_dtype_is_float(to) && to != IR_bool;
    if (to == IR_bool) f.below = f.below != 0, f.above = f.above != 0;
    if (ir_dtype_is_float(to)) f.below = fold_round(to, f.below), f.above = fold_round(to, f.above);
    return f;
}

/* A comparison of positions: low + distance < high, or <=. */
static form compared(const reader *r, const op_rule *rule, const form *a, const form *b)
{
    const form *low = rule->from_high ? b : a, *high = rule->from_high ? a : b;
    const ir_dim distance = ir_dim_sub(r->dims, high->at, low->at);
    if (distance == IR_DIM_NONE) return unknown;
    if (low->axis == KEY_AXIS && high->axis == QUERY_AXIS)
        return staircase(ir_dim_sub(r->dims, distance, rule->equal ? 0 : 1), 1, 0);
    if (low->axis != QUERY_AXIS || high->axis != KEY_AXIS) return unknown;
    /* t <= s + distance, where s - t is not less than -distance */
    return staircase(ir_dim_sub(r->dims, rule->equal ? -1 : 0, distance), 0, 1);
}

/* A position, moved by an integer, or compared with another one. */
static form moved(const reader *r, const op_rule *rule, const form *a, const form *b)
{
    form f = a->kind == POSITION ? *a : *b;
    const form *by = a->kind == POSITION ? b : a;
    if (rule->compares && by->kind == POSITION) return compared(r, rule, a, b);
    if (by->kind != NUMBER || !by->whole || !rule->sign || (rule->sign < 0 && by == a)) return unknown;
    f.at = rule->sign > 0 ? ir_dim_add(r->dims, f.at, by->at) : ir_dim_sub(r->dims, f.at, by->at);
    return f.at == IR_DIM_NONE ? unknown : f;
}

static double apply(const ir_node *n, const op_rule *rule, double a, double b)
{
    return rule->truth ? rule->truth(a, b) : fold_float(ir_formula_of(n->op, n->attr), a, b);
}

/* A pointwise op of one or two operands, for each part of a staircase. */
static form pointwise(reader *r, const ir_node *n, const op_rule *rule)
{
    const ir_formula_info *formula = ir_formula_get(ir_formula_of(n->op, n->attr));
    if (n->n_in > 2 || (!rule->truth && formula->numbers != IR_NUMBERS_NONE)) return unknown;
    const form a = form_of(r, ir_in(n, 0)), b = n->n_in > 1 ? form_of(r, ir_in(n, 1)) : a;
    if (a.kind == UNKNOWN || b.kind == UNKNOWN) return unknown;
    if (a.kind == POSITION || b.kind == POSITION) return n->n_in > 1 ? moved(r, rule, &a, &b) : unknown;
    if (a.kind == STAIRCASE && b.kind == STAIRCASE && a.at != b.at) return unknown;
    if (rule->sign && a.whole && b.whole)
        return integer_of(rule->sign > 0 ? ir_dim_add(r->dims, a.at, b.at) : ir_dim_sub(r->dims, a.at, b.at));
    const double below = apply(n, rule, a.below, b.below), above = apply(n, rule, a.above, b.above);
    if (isnan(below) || isnan(above)) return unknown;
    return staircase(a.kind == STAIRCASE ? a.at : b.at, below, above);
}

static form form_of(reader *r, const ir_value *v)
{
    if (v->kind == IR_VALUE_STORAGE) return form_of_constant(r->mask, v);
    if (v->kind != IR_VALUE_RESULT || v->def_index || r->depth == DEEPEST) return unknown;
    const op_rule *rule = rule_of(v->def);
    if (!rule) return unknown;
    r->depth++;
    const form f = rule->form(r, v->def, rule);
    r->depth--;
    return f;
}

/* ---- terms ------------------------------------------------------------------------------------- */

static bool get_number(const attention_mask *m, const ir_value *v, double *x)
{
    reader r = {.mask = m, .dims = v->graph->module->dims};
    const form f = form_of(&r, v);
    *x = f.below;
    return f.kind == NUMBER && !isnan(*x);
}

/* 10000 is the smallest number that models subtract; this is the bf16 number next to it. */
bool attention_is_negligible(double x) { return x <= -9984; }

bool attention_is_never(const ir_value *condition, const compile *c, arena *a)
{
    const attention_mask none = {.compile = c, .arena = a};
    double x;
    return get_number(&none, condition, &x) && x == 0;
}

/* Whether a staircase that keeps the scores below it is that of the op. A row without keys is zero there, so it must
 * not be the average that a finite mask makes it. */
static bool is_causal(const attention_mask *m, ir_dim_table *dims, ir_dim step, double above)
{
    const ir_dim more = ir_dim_sub(dims, m->keys, m->queries);
    if (more == IR_DIM_NONE || step != more) return false;
    const ir_dim least = ir_dim_is_symbolic(more) ? ir_dim_lower_bound(dims, more) : more;
    return isinf(above) || (least != IR_DIM_NONE && least >= 0);
}

static bool add_form(attention_mask *m, const attention_term *t, ir_dim_table *dims)
{
    reader r = {.mask = m, .dims = dims};
    const form f = form_of(&r, t->value);
    if (f.kind != NUMBER && f.kind != STAIRCASE) return false;
    const bool forbids = t->use == MASK_FORBIDS;
    const double below = t->use == MASK_ADDED ? f.below : (f.below != 0) != forbids ? 0 : t->otherwise;
    const double above = t->use == MASK_ADDED ? f.above : (f.above != 0) != forbids ? 0 : t->otherwise;
    if (f.kind == NUMBER) return below == 0;
    if (below != 0 || !attention_is_negligible(above) || !is_causal(m, dims, f.at, above)) return false;
    return m->causal = true;
}

static bool add_operands(attention_mask *m, attention_term t, const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        t.value = ir_in(n, i);
        attention_mask_add(m, t);
    }
    return true;
}

/* Conditions can be split only if a row that satisfies none is the same in any case. */
static bool split_sum(attention_mask *m, attention_term t, const ir_node *n)
{
    return t.use == MASK_ADDED && add_operands(m, t, n);
}

static bool split_and(attention_mask *m, attention_term t, const ir_node *n)
{
    return t.use == MASK_ALLOWS && isinf(t.otherwise) && add_operands(m, t, n);
}

static bool split_or(attention_mask *m, attention_term t, const ir_node *n)
{
    return t.use == MASK_FORBIDS && isinf(t.otherwise) && add_operands(m, t, n);
}

static bool split_not(attention_mask *m, attention_term t, const ir_node *n)
{
    t.use = t.use == MASK_ALLOWS ? MASK_FORBIDS : MASK_ALLOWS;
    return add_operands(m, t, n);
}

/* where(c, 0, -infinity) is a condition. */
static bool split_selection(attention_mask *m, attention_term t, const ir_node *n)
{
    double a, b;
    if (t.use != MASK_ADDED || !get_number(m, ir_in(n, 1), &a) || !get_number(m, ir_in(n, 2), &b)) return false;
    const bool allows = a == 0 && b == -INFINITY, forbids = b == 0 && a == -INFINITY;
    if (!allows && !forbids) return false;
    attention_mask_add(m, (attention_term){allows ? MASK_ALLOWS : MASK_FORBIDS, ir_in(n, 0), -INFINITY});
    return true;
}

static bool same_dims(const ir_dim *a, const ir_dim *b, int n) { return memcmp(a, b, (size_t)n * sizeof *a) == 0; }

/* A mask of scores that have as many rows in other axes, read as one of scores with the leading dimensions of `to`: a
 * mask that is the same for all of them, or what it is a reshape of. NULL: neither. */
static ir_value *seen_from(ir_value *mask, const ir_type *to)
{
    const int lead = to->rank - 2, last = mask->type.rank - 2;
    bool same = true;
    for (int i = 0; i < last; i++) same &= mask->type.dims[i] == 1;
    if (same) return mask;
    const ir_node *n = ir_def(mask);
    const op_rule *rule = n ? rule_of(n) : NULL;
    ir_value *from = rule && rule->form == reshaped ? ir_in(n, 0) : NULL;
    return from && from->type.rank == to->rank && same_dims(from->type.dims, to->dims, lead) &&
                   same_dims(from->type.dims + lead, mask->type.dims + last, 2)
               ? from
               : NULL;
}

/* A sum of masks in other axes, such as batches and heads in one. */
static bool split_reshaped(attention_mask *m, attention_term t, const ir_node *n)
{
    const ir_node *sum = ir_def(ir_in(n, 0));
    const op_rule *rule = sum ? rule_of(sum) : NULL;
    const ir_type *to = &n->out[0]->type, *from = &ir_in(n, 0)->type;
    if (t.use != MASK_ADDED || !rule || rule->split != split_sum || to->rank < 2 || from->rank < 2) return false;
    if (!same_dims(to->dims + to->rank - 2, from->dims + from->rank - 2, 2)) return false;
    ir_value *parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i] = ir_in(sum, i)->type.rank == from->rank ? seen_from(ir_in(sum, i), to) : NULL;
        if (!parts[i]) return false;
    }
    for (int i = 0; i < 2; i++) attention_mask_add(m, (attention_term){MASK_ADDED, parts[i], 0});
    return true;
}

/* ---- the ops -------------------------------------------------------------------------------------- */

static double both(double a, double b) { return a != 0 && b != 0; }
static double either(double a, double b) { return a != 0 || b != 0; }

static double neither(double a, double b)
{
    (void)b;
    return a == 0;
}

/* clang-format off */
static const op_rule rules[] = {
    {.op = IR_OP_iota, .form = counted},
    {.op = IR_OP_dims, .form = dimension},
    {.op = IR_OP_reshape, .form = reshaped, .split = split_reshaped},
    {.op = IR_OP_expand, .form = passed, .split = add_operands},
    {.op = IR_OP_slice, .form = sliced},
    {.op = IR_OP_trilu, .form = triangle},
    {.op = IR_OP_cast, .form = converted},
    {.op = IR_OP_where, .form = selected, .split = split_selection},
    {.op = IR_OP_and, .form = pointwise, .split = split_and, .truth = both},
    {.op = IR_OP_or, .form = pointwise, .split = split_or, .truth = either},
    {.op = IR_OP_not, .form = pointwise, .split = split_not, .truth = neither},
    {.op = IR_OP_add, .form = pointwise, .split = split_sum, .sign = 1},
    {.op = IR_OP_sub, .form = pointwise, .sign = -1},
    {.op = IR_OP_less, .form = pointwise, .compares = true},
    {.op = IR_OP_less_or_equal, .form = pointwise, .compares = true, .equal = true},
    {.op = IR_OP_greater, .form = pointwise, .compares = true, .from_high = true},
    {.op = IR_OP_greater_or_equal, .form = pointwise, .compares = true, .from_high = true, .equal = true},
};
/* clang-format on */

/* NULL: nothing is known about the op. */
static const op_rule *rule_of(const ir_node *n)
{
    static const op_rule others = {.form = pointwise};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == n->op) return &rules[i];
    return ir_op_has(n->op, IR_ELEMENTWISE) ? &others : NULL;
}

void attention_mask_add(attention_mask *m, attention_term t)
{
    const ir_node *n = ir_def(t.value);
    const op_rule *rule = n ? rule_of(n) : NULL;
    if (add_form(m, &t, t.value->graph->module->dims)) return;
    if (rule && rule->split && rule->split(m, t, n)) return;
    vec_push(m->arena, &m->terms, t);
}

/* ---- the value ------------------------------------------------------------------------------------- */

/* The condition under which the scores count. */
static ir_value *condition_of(const attention_term *t, ir_builder *b)
{
    return t->use == MASK_ALLOWS ? t->value : ir_unary(b, IR_OP_not, t->value);
}

/* A row of scores that are all replaced by one number is an average, as it is where that number is so low that the
 * scores vanish in the sum with it. */
static ir_value *addend_of(const attention_term *t, ir_builder *b)
{
    if (t->use == MASK_ADDED) return t->value;
    ir_value *zero = ir_scalar(b, IR_f32, 0),
             *low = ir_scalar(b, IR_f32, isinf(t->otherwise) ? -INFINITY : -ir_dtype_largest(IR_f32));
    if (t->use == MASK_ALLOWS) return ir_done(b, ir_new(b, IR_OP_where, 3, t->value, zero, low));
    return ir_done(b, ir_new(b, IR_OP_where, 3, t->value, low, zero));
}

/* Of two masks: both conditions, or the sum of addends, in f32 unless they have one type. */
static ir_value *joined(ir_value *x, ir_value *y, ir_builder *b)
{
    if (!x || !y) return x ? x : y;
    if (x->type.dtype == IR_bool) return ir_binary(b, IR_OP_and, x, y);
    if (x->type.dtype != y->type.dtype) {
        x = ir_cast(b, x, IR_f32);
        y = ir_cast(b, y, IR_f32);
    }
    return ir_binary(b, IR_OP_add, x, y);
}

ir_value *attention_mask_make(const attention_mask *m, ir_builder *b)
{
    ir_value *condition = NULL, *sum = NULL;
    for (size_t i = 0; i < m->terms.count; i++) {
        const attention_term *t = &m->terms.items[i];
        const bool is_condition = t->use != MASK_ADDED && isinf(t->otherwise);
        if (is_condition) condition = joined(condition, condition_of(t, b), b);
        else sum = joined(sum, addend_of(t, b), b);
    }
    if (!condition || !sum) return condition ? condition : sum;
    ir_value *never = ir_scalar_like(b, sum, -INFINITY);
    return ir_done(b, ir_new(b, IR_OP_where, 3, condition, sum, never));
}
