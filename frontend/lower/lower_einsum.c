/* lower_einsum.c - Einsum.
 *
 * A label is an index of the equation: a letter, or an axis that an ellipsis stands for. Every operand becomes a term:
 * a value with distinct labels. Terms are multiplied from left to right. Labels that neither the result nor a later
 * operand has are summed: by the matmul if both terms have them, by a sum before it otherwise. */
#include "frontend/lower/lower.h"

#include <ctype.h>
#include <string.h>

enum {
    LETTERS = 128,
    LABELS = LETTERS + ONNX_MAX_RANK
}; /* letters by their code, then axes of ellipses from the right */

typedef struct labels {
    int count;
    unsigned char at[LABELS];
} labels;

typedef struct term {
    ir_value *value;
    labels has;
} term;

typedef struct einsum {
    onnx_node *n;
    term *terms; /* one per operand */
    labels result;
    int ellipsis;         /* number of axes of the longest ellipsis */
    ir_dim sizes[LABELS]; /* of labels that occur */
    int occurrences[LABELS];
} einsum;

static void append(labels *l, int label) { l->at[l->count++] = (unsigned char)label; }

static int find(const labels *l, int label)
{
    for (int i = 0; i < l->count; i++)
        if (l->at[i] == label) return i;
    return -1;
}

static bool has(const labels *l, int label) { return find(l, label) >= 0; }

/* ---- the equation ---------------------------------------------------------------------------- */

/* Appends the labels of the axes of an ellipsis of `count` axes. */
static void append_ellipsis(labels *l, int count)
{
    for (int i = count - 1; i >= 0; i--) append(l, LETTERS + i);
}

static void skip_blanks(const char **at)
{
    while (**at == ' ') (*at)++;
}

/* Reads letters and at most one ellipsis up to a comma, an arrow or the end. An ellipsis has `axes` minus the number of
 * letters axes; *ellipsis is that number, or -1 if there is none. */
static labels read_labels(onnx_node *n, const char **at, int axes, int *ellipsis)
{
    labels l = {0};
    int letters = 0, where = -1;
    for (skip_blanks(at); **at && **at != ',' && **at != '-' && !n->failed; skip_blanks(at)) {
        if (strncmp(*at, "...", 3) == 0 && where < 0) {
            where = l.count;
            *at += 3;
        } else if (isalpha((unsigned char)**at) && ++letters <= ONNX_MAX_RANK) {
            append(&l, *(*at)++);
        } else {
            onnx_reject(n, "equation is malformed at '%s'", *at);
        }
    }
    *ellipsis = where < 0 ? -1 : axes - letters;
    if (where < 0 || *ellipsis <= 0) return l;
    labels with = {0};
    for (int i = 0; i <= l.count; i++) {
        if (i == where) append_ellipsis(&with, *ellipsis);
        if (i < l.count) append(&with, l.at[i]);
    }
    return with;
}

/* Notes the size of a label. Axes of size 1 broadcast. */
static void note_size(einsum *e, int label, ir_dim size)
{
    ir_dim *known = &e->sizes[label];
    if (e->occurrences[label]++ == 0 || *known == 1) *known = size;
    else if (size != 1 && size != *known)
        onnx_reject(e->n, "index '%c' has sizes %s and %s", label < LETTERS ? label : '.',
                    ir_dim_print(e->n->dims, *known, e->n->importer->scratch),
                    ir_dim_print(e->n->dims, size, e->n->importer->scratch));
}

static void read_operand(einsum *e, int i, const char **at)
{
    onnx_node *n = e->n;
    term *t = &e->terms[i];
    const ir_type *type = &n->in[i]->type;
    int ellipsis;
    t->value = n->in[i];
    t->has = read_labels(n, at, type->rank, &ellipsis);
    if (n->failed) return;
    if (t->has.count != type->rank)
        onnx_reject(n, "equation has %d indices for operand %d, which has %d dimensions", t->has.count, i, type->rank);
    if (ellipsis > e->ellipsis) e->ellipsis = ellipsis;
    for (int k = 0; k < type->rank && !n->failed; k++) note_size(e, t->has.at[k], type->dims[k]);
}

/* Without an arrow, the result has the axes of the ellipsis, then the letters that occur once, alphabetically. */
static void imply_result(einsum *e)
{
    append_ellipsis(&e->result, e->ellipsis);
    for (int c = 0; c < LETTERS; c++)
        if (e->occurrences[c] == 1) append(&e->result, c);
}

static void read_result(einsum *e, const char **at)
{
    onnx_node *n = e->n;
    const char *start = *at;
    int ellipsis;
    labels letters = read_labels(n, at, 0, &ellipsis); /* counts the letters */
    if (n->failed) return;
    *at = start;
    e->result = read_labels(n, at, letters.count + e->ellipsis, &ellipsis);
    if (**at) onnx_reject(n, "equation is malformed at '%s'", *at);
    if (e->ellipsis && ellipsis < 0) onnx_reject(n, "the result of the equation has no ellipsis, but its operands do");
    for (int i = 0; i < e->result.count && !n->failed; i++) {
        int label = e->result.at[i];
        if (!e->occurrences[label]) onnx_reject(n, "index '%c' of the result is in no operand", label);
        if (find(&e->result, label) != i) onnx_reject(n, "index '%c' is twice in the result", label);
    }
}

static void read_equation(einsum *e, const char *equation)
{
    onnx_node *n = e->n;
    const char *at = equation;
    for (int i = 0; i < n->n_in && !n->failed; i++) {
        read_operand(e, i, &at);
        if (i + 1 < n->n_in && !n->failed && *at++ != ',')
            onnx_reject(n, "equation '%s' has %d operands, but the node has %d", equation, i + 1, n->n_in);
    }
    if (n->failed) return;
    if (!*at) imply_result(e);
    else if (strncmp(at, "->", 2) == 0) at += 2, read_result(e, &at);
    else onnx_reject(n, "equation is malformed at '%s'", at);
    if (e->result.count > ONNX_MAX_RANK) onnx_refuse(n, "the result rank is too large");
}

/* ---- one term -------------------------------------------------------------------------------- */

static ir_value *iota(onnx_node *n, ir_dim size, ir_dim first, ir_dim second)
{
    ir_node *node = ir_new(n->b, IR_OP_iota, 0);
    ir_set_list(node, IR_ATTR(iota, size), &size, 1);
    return ir_reshape(n->b, ir_done(n->b, node), (ir_dim[]){first, second}, 2);
}

static void remove_axis(term *t, int axis)
{
    memmove(t->has.at + axis, t->has.at + axis + 1, (size_t)(t->has.count - axis - 1));
    t->has.count--;
}

static void sum_axis(einsum *e, term *t, int axis)
{
    t->value = ir_reduce_sum(e->n->b, t->value, (int64_t[]){axis}, 1, false);
    remove_axis(t, axis);
}

/* Moves two axes of equal size to the end, and keeps their diagonal: the sum of one of them over the other where they
 * are equal. */
static void take_diagonal(einsum *e, term *t, int first, int second)
{
    ir_builder *b = e->n->b;
    int64_t perm[ONNX_MAX_RANK], rank = t->has.count;
    labels moved = {0};
    for (int i = 0; i < rank; i++)
        if (i != first && i != second) perm[moved.count] = i, append(&moved, t->has.at[i]);
    for (int i = 0; i < 2; i++) perm[moved.count] = i ? second : first, append(&moved, t->has.at[first]);
    ir_dim size = t->value ? t->value->type.dims[first] : 1;
    t->value = ir_transpose(b, t->value, perm);
    t->has = moved;
    if (!t->value) return;
    ir_value *columns = iota(e->n, size, 1, size);
    ir_value *equal = ir_binary(b, IR_OP_equal, iota(e->n, size, size, 1), columns);
    ir_value *zero = ir_scalar_like(b, t->value, 0);
    t->value = ir_done(b, ir_new(b, IR_OP_where, 3, equal, t->value, zero));
    sum_axis(e, t, (int)rank - 1);
}

/* Removes axis `axis`, which has size 1. */
static void drop_axis(einsum *e, term *t, int axis)
{
    ir_type to = {0};
    for (int i = 0; t->value && i < t->has.count; i++)
        if (i != axis) to.dims[to.rank++] = t->value->type.dims[i];
    t->value = ir_reshape_like(e->n->b, t->value, &to);
    remove_axis(t, axis);
}

/* Makes the labels of a term distinct and drops axes that broadcast. */
static void normalise(einsum *e, term *t)
{
    for (int i = 0; i < t->has.count && t->value;) {
        int label = t->has.at[i], other = find(&t->has, label);
        bool one = t->value->type.dims[i] == 1;
        if (other != i && t->value->type.dims[other] == 1) drop_axis(e, t, other), i = 0;
        else if (one && (other != i || e->sizes[label] != 1)) drop_axis(e, t, i);
        else if (other != i) take_diagonal(e, t, other, i), i = 0;
        else i++;
    }
}

/* Sums the labels that no term of [next, n) other than `but`, and not the result, has. */
static void sum_alone(einsum *e, term *t, const term *partner, int next)
{
    for (int i = t->has.count - 1; i >= 0 && t->value; i--) {
        int label = t->has.at[i];
        bool wanted = has(&e->result, label) || (partner && has(&partner->has, label));
        for (int k = next; k < e->n->n_in; k++) wanted |= has(&e->terms[k].has, label);
        if (!wanted) sum_axis(e, t, i);
    }
}

/* ---- two terms ------------------------------------------------------------------------------- */

/* The labels of two terms: in both and kept, in both and summed, in only one. */
typedef struct pair {
    labels batch, sum, left, right;
} pair;

static pair sort_labels(const einsum *e, const term *a, const term *b, int next)
{
    pair p = {0};
    for (int i = 0; i < a->has.count; i++) {
        int label = a->has.at[i];
        bool kept = has(&e->result, label);
        for (int k = next; k < e->n->n_in; k++) kept |= has(&e->terms[k].has, label);
        append(!has(&b->has, label) ? &p.left : kept ? &p.batch : &p.sum, label);
    }
    for (int i = 0; i < b->has.count; i++)
        if (!has(&a->has, b->has.at[i])) append(&p.right, b->has.at[i]);
    return p;
}

static labels joined(const labels *a, const labels *b, const labels *c)
{
    labels l = *a;
    for (int i = 0; i < b->count; i++) append(&l, b->at[i]);
    for (int i = 0; i < c->count; i++) append(&l, c->at[i]);
    return l;
}

static bool in_order(const term *t, const labels *order)
{
    return t->has.count == order->count && memcmp(t->has.at, order->at, (size_t)order->count) == 0;
}

/* The term with its axes in that order. */
static ir_value *arranged(const einsum *e, const term *t, const labels *order)
{
    int64_t perm[LABELS];
    for (int i = 0; i < order->count; i++) perm[i] = find(&t->has, order->at[i]);
    return ir_transpose(e->n->b, t->value, perm);
}

static ir_dim size_of(const einsum *e, const labels *l)
{
    ir_dim sizes[LABELS];
    for (int i = 0; i < l->count; i++) sizes[i] = e->sizes[l->at[i]];
    return ir_dim_product(e->n->dims, sizes, l->count);
}

/* Appends the dimensions of `l`, or their product if they and two others would be too many. */
static void append_batch(const einsum *e, const labels *l, ir_type *shape)
{
    bool product = l->count + 2 > IR_MAX_RANK;
    for (int i = 0; i < l->count && !product; i++) shape->dims[shape->rank++] = e->sizes[l->at[i]];
    if (product) shape->dims[shape->rank++] = size_of(e, l);
}

/* A term as matrices [batch, rows, columns]. If it has the rows last, it stays so and *turned is set. */
static ir_value *matrices(const einsum *e, const term *t, const labels *batch, const labels *rows,
                          const labels *columns, bool *turned)
{
    labels order = joined(batch, rows, columns), other = joined(batch, columns, rows);
    *turned = !in_order(t, &order) && in_order(t, &other);
    ir_type shape = {0};
    append_batch(e, batch, &shape);
    shape.dims[shape.rank++] = size_of(e, *turned ? columns : rows);
    shape.dims[shape.rank++] = size_of(e, *turned ? rows : columns);
    return ir_reshape_like(e->n->b, arranged(e, t, *turned ? &other : &order), &shape);
}

static term multiply_matrices(const einsum *e, const term *a, const term *b, const pair *p)
{
    bool trans_a, trans_b;
    ir_value *left = matrices(e, a, &p->batch, &p->left, &p->sum, &trans_a);
    ir_value *right = matrices(e, b, &p->batch, &p->sum, &p->right, &trans_b);
    term t = {.has = joined(&p->batch, &p->left, &p->right)};
    ir_type shape = {.rank = t.has.count};
    for (int i = 0; i < t.has.count; i++) shape.dims[i] = e->sizes[t.has.at[i]];
    t.value = ir_reshape_like(e->n->b, ir_matmul(e->n->b, left, right, NULL, trans_a, trans_b), &shape);
    return t;
}

/* The term with its axes as in `order`, and with size 1 for labels that it does not have. */
static ir_value *spread(const einsum *e, const term *t, const labels *order)
{
    labels present = {0};
    ir_type shape = {.rank = order->count};
    for (int i = 0; i < order->count; i++) {
        bool is = has(&t->has, order->at[i]);
        if (is) append(&present, order->at[i]);
        shape.dims[i] = is ? e->sizes[order->at[i]] : 1;
    }
    return ir_reshape_like(e->n->b, arranged(e, t, &present), &shape);
}

/* Multiplies elements, with the axes in the order of a, and sums p->sum. */
static term multiply_elements(const einsum *e, const term *a, const term *b, const pair *p)
{
    int64_t axes[LABELS];
    labels none = {0}, order = joined(&a->has, &p->right, &none);
    ir_value *factor = spread(e, b, &order);
    term t = {.value = ir_binary(e->n->b, IR_OP_mul, spread(e, a, &order), factor)};
    int count = 0;
    for (int i = 0; i < order.count; i++) {
        if (has(&p->sum, order.at[i])) axes[count++] = i;
        else append(&t.has, order.at[i]);
    }
    t.value = ir_reduce_sum(e->n->b, t.value, axes, count, false);
    return t;
}

/* Multiplies term `next` into t. */
static void multiply(einsum *e, term *t, int next)
{
    term *other = &e->terms[next];
    sum_alone(e, t, other, next + 1);
    sum_alone(e, other, t, next + 1);
    const pair p = sort_labels(e, t, other, next + 1);
    if (t->has.count + p.right.count > IR_MAX_RANK) onnx_refuse(e->n, "the rank of a product is too large");
    if (e->n->failed || !t->value || !other->value) return;
    bool is_product = p.sum.count && (p.left.count || p.right.count) && ir_dtype_is_float(t->value->type.dtype);
    *t = is_product ? multiply_matrices(e, t, other, &p) : multiply_elements(e, t, other, &p);
}

void onnx_lower_einsum(onnx_node *n)
{
    einsum e = {.n = n};
    const char *equation = onnx_text(n, "equation", NULL);
    if (!equation) onnx_reject(n, "attribute 'equation' is missing");
    e.terms = arena_array(n->importer->scratch, (size_t)n->n_in, sizeof *e.terms);
    if (!n->failed) read_equation(&e, equation);
    for (int i = 0; i < n->n_in && !n->failed; i++) normalise(&e, &e.terms[i]);
    if (n->failed) return;
    term t = e.terms[0];
    e.terms[0].has.count = 0;
    for (int i = 1; i < n->n_in && !n->failed; i++) multiply(&e, &t, i);
    if (n->failed || !t.value) return;
    sum_alone(&e, &t, NULL, n->n_in);
    n->out[0] = arranged(&e, &t, &e.result);
}
