/* attention.c - attentions that are spelled out become one op, whose memory is linear in the lengths.
 *
 *   before  %s = matmul %q, %k {trans_b=true} : f32[N,8,T,T]      after  %y, %lse = attention %q, %k, %v
 *           %m = mul %s, 0.125                : f32[N,8,T,T]                       {scale=0.125, causal=true}
 *           %c = where @tril, %m, -inf        : f32[N,8,T,T]
 *           %p = softmax %c                   : f32[N,8,T,T]
 *           %y = matmul %p, %v                : f32[N,8,T,64]
 *
 * The chain between the products is read backwards: casts, scales, masks, reshapes of the batch, dropout, and the
 * selection of zeros for rows without keys, which the op makes by itself. Nothing else may read the scores or
 * probabilities, and nothing may be trained through a mask. Operands are read before their own scales, transposes and
 * repetitions of heads. Probabilities are rounded only in the product, as the kernel needs, so a low type loses less
 * than before. Dropout numbers the elements as before, so that the same ones are dropped.
 *
 * Only where the options ask for it: a model that is converted keeps its operators, and so does a reference in f64.
 * Requires: forward phase only;
 * runs after mixed precision, so that the lists apply to the operators of the model. */
#include "passes/attention_mask.h"
#include "passes/amp/attention.h"
#include "passes/amp/range.h"
#include "passes/train/grad.h"

#include <math.h>
#include <string.h>

enum { MAX_PARTS = 32, MAX_TERMS = 8 };

typedef struct match {
    const compile *compile;
    arena *arena;
    const bool *flows;         /* by value id: the value needs a gradient; NULL: none does */
    uint32_t values;           /* number of ids then */
    ir_node *parts[MAX_PARTS]; /* from the last product to the first */
    int count;
    ir_node *first, *last; /* products */
    const ir_type *probabilities;
    ir_node *dropout; /* of the probabilities, or NULL */
    ir_value *empty;  /* the condition under which a row is cleared, or NULL */
    attention_term terms[MAX_TERMS];
    const ir_type *term_shapes[MAX_TERMS]; /* of the scores to which they apply */
    int n_terms;
    double scale;
    ir_type shape; /* of the scores as the op has them */
} match;

static bool add_part(match *m, ir_node *n)
{
    if (m->count == MAX_PARTS || n->phase != IR_FORWARD) return false;
    m->parts[m->count++] = n;
    return true;
}

static bool is_part(const match *m, const ir_node *n)
{
    for (int i = 0; i < m->count; i++)
        if (m->parts[i] == n) return true;
    return false;
}

/* A constant with one element, which may be stored in a file or cast. */
static bool get_number(const match *m, const ir_value *v, double *x)
{
    const ir_node *n = v ? ir_def(v) : NULL;
    if (n && ir_op_has(n->op, IR_CONVERTS)) v = ir_in(n, 0);
    if (!v || v->kind != IR_VALUE_STORAGE || v->storage->kind == IR_STATE) return false;
    if (v->storage->kind == IR_PARAM && !v->storage->frozen && ir_graph_by_role(v->graph->module, IR_GRAPH_train))
        return false;
    return range_get_number(v, m->compile, x);
}

static bool converts_floats(const ir_node *n)
{
    return ir_op_has(n->op, IR_CONVERTS) && ir_dtype_is_float(ir_in(n, 0)->type.dtype) &&
           ir_dtype_is_float(n->out[0]->type.dtype);
}

/* ---- ops ---------------------------------------------------------------------------------------- */

typedef enum kind { OTHER, RESHAPE, TRANSPOSE, REPEAT, SELECT, IS_NAN, COUNT, ABOVE, BOTH, EQUAL } kind;

static kind kind_of(const ir_node *n)
{
    static const struct {
        ir_op op;
        kind kind;
    } kinds[] = {
        {IR_OP_reshape, RESHAPE}, {IR_OP_transpose, TRANSPOSE}, {IR_OP_expand, REPEAT}, {IR_OP_where, SELECT},
        {IR_OP_is_nan, IS_NAN},   {IR_OP_reduce_sum, COUNT},    {IR_OP_greater, ABOVE}, {IR_OP_and, BOTH},
        {IR_OP_equal, EQUAL},
    };
    for (size_t i = 0; n && i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].op == n->op) return kinds[i].kind;
    return OTHER;
}

/* A reshape that does not change the last axis. */
static bool keeps_columns(const ir_node *n)
{
    const ir_type *x = &ir_in(n, 0)->type, *y = &n->out[0]->type;
    return kind_of(n) == RESHAPE && x->rank && y->rank && x->dims[x->rank - 1] == y->dims[y->rank - 1];
}

/* ---- from the last product to the softmax ------------------------------------------------------- */

/* is_nan of p, also of a conversion of it. */
static bool read_nan_test(match *m, ir_node *n, const ir_value *p)
{
    ir_value *v = ir_in(n, 0);
    if (!add_part(m, n)) return false;
    if (v == p) return true;
    ir_node *cast = ir_def(v);
    return cast && converts_floats(cast) && ir_in(cast, 0) == p && add_part(m, cast);
}

/* where(condition, 0, p): the condition is that p is NaN, or holds for whole rows. */
static bool read_clearing(match *m, const ir_node *n)
{
    const ir_value *zero = ir_in(n, IR_IN(where, a)), *p = ir_in(n, IR_IN(where, b));
    ir_value *condition = ir_in(n, IR_IN(where, cond));
    ir_node *def = ir_def(condition);
    double x;
    if (!get_number(m, zero, &x) || x != 0 || !ir_type_same_shape(&p->type, &n->out[0]->type)) return false;
    if (kind_of(def) == IS_NAN) return read_nan_test(m, def, p);
    const int rank = condition->type.rank;
    if (m->empty || rank < 1 || condition->type.dims[rank - 1] != 1) return false;
    m->empty = condition;
    return true;
}

static ir_node *read_probabilities(match *m, ir_value *v)
{
    for (ir_node *n = ir_def(v); n; n = ir_def(v)) {
        const attention_role role = attention_role_of(n);
        if (!add_part(m, n)) return NULL;
        if (role == ATTENTION_SOFTMAX) return attention_is_last_softmax(n) ? n : NULL;
        v = ir_in(n, 0);
        if (role == ATTENTION_DROPOUT && !m->dropout) m->dropout = n;
        else if (kind_of(n) == SELECT) {
            if (!read_clearing(m, n)) return NULL;
            v = ir_in(n, IR_IN(where, b));
        } else if (!converts_floats(n) && !keeps_columns(n)) return NULL;
    }
    return NULL;
}

/* ---- from the softmax to the first product ------------------------------------------------------ */

static bool read_scores(match *m, ir_value *v, double factor);

static bool add_term(match *m, attention_use use, ir_value *value, double otherwise, const ir_value *scores)
{
    if (m->n_terms == MAX_TERMS) return false;
    m->term_shapes[m->n_terms] = &scores->type;
    m->terms[m->n_terms++] = (attention_term){use, value, otherwise};
    return true;
}

/* Either operand may be the scores. */
static bool read_sum(match *m, ir_node *n, double factor)
{
    for (int i = 0; i < 2 && factor == 1; i++) {
        const match before = *m;
        ir_value *scores = ir_in(n, i);
        const bool whole = ir_type_same_shape(&scores->type, &n->out[0]->type);
        if (whole && add_term(m, MASK_ADDED, ir_in(n, 1 - i), 0, scores) && read_scores(m, scores, factor)) return true;
        *m = before;
    }
    return false;
}

static bool read_product_by_number(match *m, ir_node *n, double factor)
{
    double x;
    for (int i = 0; i < 2; i++)
        if (get_number(m, ir_in(n, 1 - i), &x)) return read_scores(m, ir_in(n, i), factor * x);
    return false;
}

/* where(condition, scores, low), where(condition, low, scores), or the clearing of the rows that are cleared after the
 * softmax, too. */
static bool read_selection(match *m, ir_node *n, double factor)
{
    ir_value *condition = ir_in(n, IR_IN(where, cond));
    for (int i = IR_IN(where, a); i <= IR_IN(where, b); i++) {
        double x;
        ir_value *scores = ir_in(n, i), *other = ir_in(n, IR_IN(where, a) + IR_IN(where, b) - i);
        if (!get_number(m, other, &x) || !ir_type_same_shape(&scores->type, &n->out[0]->type)) continue;
        if (i == IR_IN(where, b) && condition == m->empty) return read_scores(m, scores, factor);
        if (!attention_is_negligible(x * factor)) return false;
        const attention_use use = i == IR_IN(where, a) ? MASK_ALLOWS : MASK_FORBIDS;
        return add_term(m, use, condition, x * factor, scores) && read_scores(m, scores, factor);
    }
    return false;
}

static bool is_plain_product(const ir_node *n)
{
    return !ir_in(n, IR_IN(matmul, bias)) && n->out[0]->type.dtype == ir_in(n, 0)->type.dtype;
}

/* `factor`: what the scores are multiplied by after v. */
static bool read_scores(match *m, ir_value *v, double factor)
{
    ir_node *n = ir_def(v);
    double x;
    if (!n || !add_part(m, n)) return false;
    switch (attention_role_of(n)) {
    case ATTENTION_PRODUCT:
        m->first = n;
        m->scale = factor;
        return is_plain_product(n);
    case ATTENTION_MASK: return read_sum(m, n, factor);
    case ATTENTION_SCALE: return read_product_by_number(m, n, factor);
    case ATTENTION_QUOTIENT: return get_number(m, ir_in(n, 1), &x) && read_scores(m, ir_in(n, 0), factor / x);
    case ATTENTION_MOVEMENT:
        if (kind_of(n) == SELECT) return read_selection(m, n, factor);
        return keeps_columns(n) && read_scores(m, ir_in(n, 0), factor);
    default: return converts_floats(n) && read_scores(m, ir_in(n, 0), factor);
    }
}

/* ---- shapes -------------------------------------------------------------------------------------- */

/* The scores have the most axes at the masks that need them; otherwise those of the softmax. */
static const ir_type *shape_of_scores(const match *m)
{
    const ir_type *shape = m->n_terms ? m->term_shapes[0] : m->probabilities;
    for (int i = 1; i < m->n_terms; i++)
        if (m->term_shapes[i]->rank > shape->rank) shape = m->term_shapes[i];
    return shape;
}

/* Whether a mask of scores of shape `at` can be read as one of scores of shape `to`: it varies only along the last axes
 * that both have. */
static bool fits(const ir_type *mask, const ir_type *at, const ir_type *to)
{
    int common = 0;
    while (common < at->rank && common < to->rank && at->dims[at->rank - 1 - common] == to->dims[to->rank - 1 - common])
        common++;
    if (mask->rank > at->rank) return false;
    if (common == at->rank && at->rank == to->rank) return true;
    for (int i = 0; i < mask->rank - common; i++)
        if (mask->dims[i] != 1) return false;
    return true;
}

/* The mask without leading axes of size 1 that the scores do not have. */
static ir_value *trimmed(ir_value *mask, int rank, ir_builder *b)
{
    const int more = mask->type.rank - rank;
    return more > 0 ? ir_reshape(b, mask, mask->type.dims + more, rank) : mask;
}

static bool same_dims(const ir_dim *a, const ir_dim *b, int n) { return memcmp(a, b, (size_t)n * sizeof *a) == 0; }

/* How the batch of a product is seen by the op. */
typedef enum batch_view { NO_VIEW, SAME, SPLIT, GROUPED } batch_view;

/* `product`: the type of the scores at a product. Its leading axes are those of the op, or as many rows in other axes;
 * or heads that share keys are rows of one matrix. */
static batch_view view_of(const match *m, const ir_type *product, ir_dim_table *dims)
{
    const ir_type *to = &m->shape;
    const int lead = product->rank - 2, want = to->rank - 2;
    if (lead < 0 || product->dims[lead + 1] != to->dims[want + 1]) return NO_VIEW;
    const ir_dim rows = product->dims[lead], length = to->dims[want];
    if (rows == length) {
        if (lead == want && same_dims(product->dims, to->dims, lead)) return SAME;
        const ir_dim a = ir_dim_product(dims, product->dims, lead), b = ir_dim_product(dims, to->dims, want);
        return a == b && a != IR_DIM_NONE ? SPLIT : NO_VIEW;
    }
    if (lead != want || lead < 1 || !same_dims(product->dims, to->dims, lead - 1)) return NO_VIEW;
    const ir_dim all = ir_dim_mul(dims, rows, product->dims[lead - 1]);
    return all != IR_DIM_NONE && all == ir_dim_mul(dims, length, to->dims[lead - 1]) ? GROUPED : NO_VIEW;
}

/* v reshaped, or the value that it is a reshape of. */
static ir_value *reshape_root(ir_value *v, const ir_dim *dims, int rank, ir_builder *b)
{
    if (!v) return NULL;
    while (kind_of(ir_def(v)) == RESHAPE) v = ir_in(v->def, 0);
    return ir_reshape(b, v, dims, rank);
}

/* The leading axes of the scores and the last two of v. */
static ir_value *with_batch(const match *m, ir_value *v, ir_builder *b)
{
    ir_type type = m->shape;
    memcpy(type.dims + type.rank - 2, v->type.dims + v->type.rank - 2, 2 * sizeof *type.dims);
    return reshape_root(v, type.dims, type.rank, b);
}

/* ---- operands --------------------------------------------------------------------------------------- */

/* v with its last two axes exchanged. */
static ir_value *exchanged(ir_value *v, ir_builder *b)
{
    const int rank = v->type.rank;
    const ir_node *n = ir_def(v);
    int64_t perm[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    if (kind_of(n) == TRANSPOSE) {
        memcpy(perm, n->attr[IR_ATTR(transpose, perm)].list.items, (size_t)rank * sizeof *perm);
        v = ir_in(n, 0);
    } else if (kind_of(n) == RESHAPE && keeps_columns(n) && ir_in(n, 0)->type.rank > 1) {
        const ir_type *from = &ir_in(n, 0)->type;
        ir_dim dims[IR_MAX_RANK];
        if (from->dims[from->rank - 2] == v->type.dims[rank - 2]) {
            memcpy(dims, v->type.dims, (size_t)rank * sizeof *dims);
            dims[rank - 2] = v->type.dims[rank - 1];
            dims[rank - 1] = v->type.dims[rank - 2];
            return reshape_root(exchanged(ir_in(n, 0), b), dims, rank, b);
        }
    }
    const int64_t last = perm[rank - 1];
    perm[rank - 1] = perm[rank - 2];
    perm[rank - 2] = last;
    return ir_transpose(b, v, perm);
}

/* The value without the factors that it is multiplied by, which go to the scale. */
static ir_value *unscaled(match *m, ir_value *v)
{
    for (ir_node *n = ir_def(v); n; n = ir_def(v)) {
        const attention_role role = attention_role_of(n);
        double x;
        int at = -1;
        if (role == ATTENTION_SCALE && get_number(m, ir_in(n, 0), &x)) at = 1;
        else if ((role == ATTENTION_SCALE || role == ATTENTION_QUOTIENT) && get_number(m, ir_in(n, 1), &x)) at = 0;
        if (at < 0 || !ir_type_same_shape(&ir_in(n, at)->type, &v->type)) return v;
        m->scale *= role == ATTENTION_SCALE ? x : 1 / x;
        v = ir_in(n, at);
    }
    return v;
}

/* An operand with rows of features; of the products, `transposed` tells whether the features are the columns. */
static ir_value *rows_of(match *m, ir_value *v, bool exchange, bool scales, ir_builder *b)
{
    const ir_dtype type = v->type.dtype;
    const ir_node *cast = ir_def(v);
    if (scales) {
        ir_value *wide = cast && converts_floats(cast) ? ir_in(cast, 0) : v, *rest = unscaled(m, wide);
        if (rest != wide) v = rest;
    }
    if (exchange) v = exchanged(v, b);
    if (v && scales) v = unscaled(m, v);
    return v ? ir_cast(b, v, type) : NULL;
}

/* The heads before they were repeated for the queries that share them: reshape(expand(x)), where expand repeats an axis
 * of size 1 after that of the heads. */
static ir_value *unrepeated(ir_value *v, ir_builder *b)
{
    const ir_node *merge = ir_def(v);
    const ir_node *repeat = kind_of(merge) == RESHAPE ? ir_def(ir_in(merge, 0)) : NULL;
    const int rank = v->type.rank;
    if (kind_of(repeat) != REPEAT || rank < 3) return v;
    const ir_type *from = &ir_in(repeat, 0)->type, *to = &repeat->out[0]->type;
    if (from->rank != rank + 1 || to->rank != rank + 1 || from->dims[rank - 2] != 1) return v;
    for (int i = 0; i < rank + 1; i++)
        if (i != rank - 2 && from->dims[i] != to->dims[i]) return v;
    ir_dim dims[IR_MAX_RANK];
    memcpy(dims, v->type.dims, (size_t)rank * sizeof *dims);
    dims[rank - 3] = from->dims[rank - 3];
    if (!same_dims(to->dims, dims, rank - 2) || !same_dims(to->dims + rank - 1, dims + rank - 2, 2)) return v;
    return reshape_root(ir_in(repeat, 0), dims, rank, b);
}

/* Whether v has the batch of the product, or one head for all. */
static bool has_batch(const ir_value *v, const ir_type *product, bool shared)
{
    const int lead = product->rank - 2;
    if (v->type.rank != product->rank || lead < 0) return false;
    if (same_dims(v->type.dims, product->dims, lead)) return true;
    return shared && lead > 0 && same_dims(v->type.dims, product->dims, lead - 1) && v->type.dims[lead - 1] == 1;
}

/* The keys or values as the op reads them. */
static ir_value *shared_operand(const match *m, ir_value *v, const ir_type *product, ir_builder *b)
{
    const batch_view view = v ? view_of(m, product, b->graph->module->dims) : NO_VIEW;
    if (view == NO_VIEW || !has_batch(v, product, view == SAME)) return NULL;
    return view == SPLIT ? with_batch(m, v, b) : v;
}

static bool is_stored(const ir_value *v) { return v->kind == IR_VALUE_STORAGE; }

typedef struct operands {
    ir_value *q, *k, *v, *mask;
    bool causal;
} operands;

static bool make_operands(match *m, ir_builder *b, operands *o)
{
    const ir_node *first = m->first, *last = m->last;
    const ir_attr *fa = first->attr, *la = last->attr;
    const ir_type *weights = &ir_in(last, IR_IN(matmul, a))->type;
    if (la[IR_ATTR(matmul, trans_a)].i) return false;
    o->q = rows_of(m, ir_in(first, IR_IN(matmul, a)), fa[IR_ATTR(matmul, trans_a)].i, true, b);
    o->k = rows_of(m, ir_in(first, IR_IN(matmul, b)), !fa[IR_ATTR(matmul, trans_b)].i, true, b);
    o->v = rows_of(m, ir_in(last, IR_IN(matmul, b)), la[IR_ATTR(matmul, trans_b)].i, false, b);
    const batch_view view = view_of(m, &first->out[0]->type, b->graph->module->dims);
    if (view == NO_VIEW || !o->q || !has_batch(o->q, &first->out[0]->type, false)) return false;
    if (view != SAME) {
        ir_type type = m->shape;
        type.dims[type.rank - 1] = o->q->type.dims[o->q->type.rank - 1];
        o->q = reshape_root(o->q, type.dims, type.rank, b);
    }
    o->k = shared_operand(m, o->k, &first->out[0]->type, b);
    o->v = shared_operand(m, o->v, weights, b);
    if (!o->q || !o->k || !o->v) return false;
    ir_value *keys = unrepeated(o->k, b), *values = unrepeated(o->v, b);
    if (keys != o->k && values != o->v &&
        keys->type.dims[keys->type.rank - 3] == values->type.dims[values->type.rank - 3])
        o->k = keys, o->v = values;
    const int rank = o->k->type.rank;
    return o->v->type.rank == rank && same_dims(o->k->type.dims, o->v->type.dims, rank - 1) &&
           o->k->type.dims[rank - 2] == m->shape.dims[rank - 1] && !is_stored(o->k) && !is_stored(o->v) &&
           o->q->type.dtype == o->k->type.dtype && o->q->type.dtype == o->v->type.dtype;
}

/* ---- conditions ----------------------------------------------------------------------------------- */

/* Whether the results of all parts but the last product are read by parts only. */
static bool is_closed(const match *m)
{
    for (int i = 1; i < m->count; i++)
        for (int k = 0; k < m->parts[i]->n_out; k++)
            for (const ir_use *u = m->parts[i]->out[k]->first_use; u; u = u->next)
                if (!is_part(m, u->user)) return false;
    return true;
}

/* Whether v, in the count of the keys that a row sees, is one of the masks. */
static bool is_seen(const match *m, const ir_value *v)
{
    const ir_node *n = ir_def(v);
    double x;
    for (int i = 0; i < m->n_terms; i++) {
        const attention_term *t = &m->terms[i];
        if (t->use == MASK_ALLOWS && t->value == v && isinf(t->otherwise)) return true;
        if (t->use == MASK_ADDED && kind_of(n) == ABOVE && ir_in(n, 0) == t->value && get_number(m, ir_in(n, 1), &x) &&
            x == -INFINITY)
            return true;
    }
    if (n && converts_floats(n)) return is_seen(m, ir_in(n, 0));
    return kind_of(n) == BOTH && is_seen(m, ir_in(n, 0)) && is_seen(m, ir_in(n, 1));
}

/* Whether the rows that are cleared are those without keys, which the op clears: their count is 0. */
static bool clears_empty_rows(const match *m)
{
    double x;
    const ir_node *n = m->empty ? ir_def(m->empty) : NULL;
    if (!m->empty || attention_is_never(m->empty, m->compile, m->arena)) return true;
    if (kind_of(n) != EQUAL || !get_number(m, ir_in(n, 1), &x) || x != 0) return false;
    const ir_node *sum = ir_def(ir_in(n, 0)), *cast = sum ? ir_def(ir_in(sum, 0)) : NULL;
    return kind_of(sum) == COUNT && cast && ir_op_has(cast->op, IR_CONVERTS) && is_seen(m, ir_in(cast, 0));
}

static bool make_mask(const match *m, ir_builder *b, operands *o)
{
    attention_mask mask = {.compile = m->compile,
                           .arena = m->arena,
                           .queries = m->shape.dims[m->shape.rank - 2],
                           .keys = m->shape.dims[m->shape.rank - 1]};
    for (int i = 0; i < m->n_terms; i++) {
        const ir_value *v = m->terms[i].value;
        if (m->flows && (v->id >= m->values || m->flows[v->id])) return false;
        if (!fits(&v->type, m->term_shapes[i], &m->shape)) return false;
        attention_mask_add(&mask, m->terms[i]);
    }
    for (size_t i = 0; i < mask.terms.count; i++)
        mask.terms.items[i].value = trimmed(mask.terms.items[i].value, m->shape.rank, b);
    o->causal = mask.causal;
    o->mask = attention_mask_make(&mask, b);
    return o->mask || !mask.terms.count;
}

/* ---- the replacement --------------------------------------------------------------------------------- */

static ir_value *make_attention(const match *m, const operands *o, ir_builder *b)
{
    const ir_node *d = m->dropout;
    ir_value *rng = d ? ir_in(d, IR_IN(dropout, rng)) : NULL;
    ir_node *n = ir_new(b, IR_OP_attention, 5, o->q, o->k, o->v, o->mask, rng);
    ir_set_float(n, IR_ATTR(attention, scale), m->scale);
    ir_set_bool(n, IR_ATTR(attention, causal), o->causal);
    if (d) ir_set_float(n, IR_ATTR(attention, ratio), d->attr[IR_ATTR(dropout, ratio)].f);
    if (d) ir_set_int(n, IR_ATTR(attention, stream), d->attr[IR_ATTR(dropout, stream)].i);
    n->note = m->last->note;
    return ir_reshape_like(b, ir_done(b, n), &m->last->out[0]->type);
}

/* In the order of the graph. */
static void sort_parts(match *m)
{
    for (int i = 1; i < m->count; i++)
        for (int k = i; k && m->parts[k]->id < m->parts[k - 1]->id; k--) {
            ir_node *n = m->parts[k];
            m->parts[k] = m->parts[k - 1];
            m->parts[k - 1] = n;
        }
}

static bool find(match *m, ir_node *last)
{
    m->last = last;
    if (attention_role_of(last) != ATTENTION_PRODUCT || !is_plain_product(last) || !add_part(m, last)) return false;
    const ir_node *softmax = read_probabilities(m, ir_in(last, IR_IN(matmul, a)));
    if (!softmax) return false;
    m->probabilities = &softmax->out[0]->type;
    if (!read_scores(m, ir_in(softmax, 0), 1) || m->first == last) return false;
    m->shape = *shape_of_scores(m);
    return m->shape.rank >= 2 && is_closed(m) && clears_empty_rows(m);
}

static void replace(match *m, ir_node *last)
{
    operands o = {0};
    ir_value *old = last->out[0];
    ir_builder b = ir_builder_before(last, m->compile->diag);
    if (!make_operands(m, &b, &o) || !isfinite((float)m->scale) || !make_mask(m, &b, &o))
        return; /* leaves dead nodes */
    sort_parts(m);
    ir_value *y = make_attention(m, &o, &b);
    if (!y) return;
    ir_node *made = y->def->op == IR_OP_attention ? y->def : ir_in(y->def, 0)->def;
    made->loc.fused_from = pass_origins(m->parts, m->count, last->graph->module->arena);
    ir_value_replace(old, y);
    ir_node_remove(last);
    y->name = old->name; /* the old value is gone */
}

static void fuse_graph(ir_graph *g, const compile *c, arena *a)
{
    ir_graph_renumber(g);
    const bool *flows = g->role == IR_GRAPH_train ? grad_flow(g, a) : NULL;
    const uint32_t values = g->value_ids;
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        match m = {.compile = c, .arena = a, .flows = flows, .values = values};
        if (n->phase == IR_FORWARD && n->n_out == 1 && find(&m, n)) replace(&m, n);
    }
    pass_remove_dead(g);
}

ampc_status pass_attention(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    if (!o->attention || !o->fuse || o->wide || o->plain_runtime || o->draws) return AMPC_OK;
    arena *a = pass_scratch_new(m);
    for (size_t i = 0; i < m->graphs.count; i++) fuse_graph(m->graphs.items[i], c, a);
    arena_free(a);
    return diag_status(c->diag);
}
