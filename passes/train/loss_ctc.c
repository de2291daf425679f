/* loss_ctc.c - connectionist temporal classification (Graves et al. 2006): minus the logarithm of the probability that
 * the scores give to all alignments of the labels with the time steps.
 *
 * The labels with blanks before, between and after them are L = 2*S+1 places. alpha[t,s] is the logarithm of the
 * probability of all alignments of the first t time steps with the first s places:
 *
 *     alpha[t,s] = e[t,s] + log(exp(alpha[t-1,s]) + exp(alpha[t-1,s-1]) + exp(alpha[t-1,s-2]) if s may be skipped)
 *
 * where e[t,s] is the log-probability of place s. A loop over the time steps computes alpha; its gradient is that of
 * autodiff. NEVER stands for the logarithm of 0, so that differences are finite. Negative labels and `ignore_index` are
 * padding. */
#include "passes/train/loss.h"

#include <math.h>

#define NEVER (-1e30)
#define UNARY(op, v) ir_unary(t->b, IR_OP_##op, v)
#define BINARY(op, v, w) ir_binary(t->b, IR_OP_##op, v, w)
#define NUMBER(v, number) ir_scalar_like(t->b, v, number)
#define CHOOSE(condition, v, w) ir_done(t->b, ir_new(t->b, IR_OP_where, 3, condition, v, w))

typedef struct alignment {
    const loss_term *t;
    ir_value *places;  /* i64[N,L]: the class of each place */
    ir_value *lengths; /* i64[N]: the number of labels of each sample */
    ir_dim batch, steps, count;
} alignment;

static ir_value *concat(const loss_term *t, ir_value *v, ir_value *w, int axis)
{
    ir_node *n = ir_new(t->b, IR_OP_concat, 2, v, w);
    ir_set_int(n, IR_ATTR(concat, axis), axis);
    return ir_done(t->b, n);
}

static ir_value *iota(const loss_term *t, ir_dim size)
{
    ir_node *n = ir_new(t->b, IR_OP_iota, 0);
    ir_set_list(n, IR_ATTR(iota, size), &size, 1);
    return ir_done(t->b, n);
}

/* v [N,L] moved by `places` along axis 1; NEVER enters. */
static ir_value *shift(ir_builder *b, ir_value *v, int64_t places)
{
    ir_node *n = ir_new(b, IR_OP_pad, 2, v, ir_scalar_like(b, v, NEVER));
    ir_set_list(n, IR_ATTR(pad, before), (int64_t[]){0, places}, 2);
    ir_set_list(n, IR_ATTR(pad, after), (int64_t[]){0, -places}, 2);
    return ir_done(b, n);
}

static bool find_places(alignment *a)
{
    const loss_term *t = a->t;
    const double padding = t->spec->ignore_index;
    ir_value *blank = NUMBER(t->y, t->spec->blank), *absent = BINARY(less, t->y, NUMBER(t->y, 0));
    if (!isnan(padding)) absent = BINARY(or, absent, BINARY(equal, t->y, NUMBER(t->y, padding)));
    ir_dim size = t->y->type.dims[1], one[3] = {a->batch, size, 1}, row[2] = {a->batch, 1};
    ir_dim both[2] = {a->batch, ir_dim_mul(t->b->graph->module->dims, size, 2)};
    ir_value *labels = ir_reshape(t->b, CHOOSE(absent, blank, t->y), one, 3);
    ir_value *pairs = concat(t, ir_expand(t->b, blank, one, 3), labels, 2);
    ir_value *last = ir_expand(t->b, blank, row, 2);
    a->places = concat(t, ir_reshape(t->b, pairs, both, 2), last, 1);
    ir_value *one_label = NUMBER(t->y, 1), *present = CHOOSE(absent, NUMBER(t->y, 0), one_label);
    a->lengths = ir_reduce_sum(t->b, present, (int64_t[]){1}, 1, false);
    if (a->places) a->count = a->places->type.dims[1];
    return a->places && a->lengths;
}

/* 0 for places that may follow the place but one before them, else NEVER. */
static ir_value *skip_terms(const alignment *a)
{
    const loss_term *t = a->t;
    ir_node *n = ir_new(t->b, IR_OP_pad, 2, a->places, NUMBER(a->places, -1));
    ir_set_list(n, IR_ATTR(pad, before), (int64_t[]){0, 2}, 2);
    ir_set_list(n, IR_ATTR(pad, after), (int64_t[]){0, -2}, 2);
    ir_value *same = BINARY(equal, ir_done(t->b, n), a->places);
    ir_value *zero = NUMBER(t->x, 0);
    return CHOOSE(same, NUMBER(t->x, NEVER), zero);
}

/* log(exp(v) + exp(w) + exp(u)) */
static ir_value *add_logs(ir_builder *b, ir_value *v, ir_value *w, ir_value *u)
{
    ir_value *max = ir_binary(b, IR_OP_max, ir_binary(b, IR_OP_max, v, w), u), *sum = NULL, *terms[] = {v, w, u};
    for (int i = 0; i < 3; i++) {
        ir_value *share = ir_unary(b, IR_OP_exp, ir_binary(b, IR_OP_sub, terms[i], max));
        sum = i ? ir_binary(b, IR_OP_add, sum, share) : share;
    }
    return ir_binary(b, IR_OP_add, max, ir_unary(b, IR_OP_log, sum));
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* One time step: alpha from that before and e[t]. After the last step of a sample, its alpha stays the same. */
static void fill_body(ir_node *n, ir_value *alpha, ir_value *const *scanned, ir_value *skips, ir_value *sizes, diag *d)
{
    ir_graph *g = ir_body_new(n->graph->module);
    ir_region_add(n, "body", g);
    ir_builder b = ir_builder_at_end(g, d);
    ir_type slice = scanned[0]->type, number = ir_type_scalar(IR_i64);
    slice.rank--;
    for (int i = 0; i < slice.rank; i++) slice.dims[i] = slice.dims[i + 1];
    ir_value *before = ir_graph_input(g, "alpha", &alpha->type), *e = ir_graph_input(g, "e", &slice);
    ir_value *step = ir_graph_input(g, "step", &number);
    ir_value *skip = ir_capture_add(g, skips), *skipped = ir_binary(&b, IR_OP_add, shift(&b, before, 2), skip);
    ir_value *next = ir_binary(&b, IR_OP_add, e, add_logs(&b, before, shift(&b, before, 1), skipped));
    if (sizes) {
        ir_value *inside = ir_binary(&b, IR_OP_less, step, ir_capture_add(g, sizes));
        next = ir_done(&b, ir_new(&b, IR_OP_where, 3, inside, next, before));
    }
    if (next) ir_output(&b, "alpha", next);
}

/* alpha [N,L] after the last time step. e [T,N,L]; sizes i64[N,1] are the numbers of steps, or NULL. */
static ir_value *align(const alignment *a, ir_value *first, ir_value *e, ir_value *skips, ir_value *sizes)
{
    const loss_term *t = a->t;
    ir_value *steps = iota(t, a->steps), *operands[] = {first, e, steps};
    if (!first || !e || !skips || !steps) return NULL;
    ir_node *n = ir_new_array(t->b, IR_OP_loop, 3, operands, 1);
    ir_set_bool(n, IR_ATTR(loop, counted), false);
    ir_set_int(n, IR_ATTR(loop, scanned), 2);
    n->out[0]->type = first->type;
    ir_node_insert(t->b, n);
    fill_body(n, first, &operands[1], skips, sizes, t->b->diag);
    if (diag_status(t->b->diag) != AMPC_OK || ir_infer(n, t->b->diag) != AMPC_OK) return NULL;
    ir_name_results(n);
    return n->out[0];
}

/* ---- the loss -------------------------------------------------------------------------------- */

/* The log-probabilities of the places at each time step, [T,N,L]. */
static ir_value *place_scores(const alignment *a)
{
    const loss_term *t = a->t;
    ir_node *n = ir_new(t->b, IR_OP_log_softmax, 1, t->x);
    ir_set_int(n, IR_ATTR(log_softmax, axis), 2);
    ir_value *log_prob = ir_done(t->b, n);
    ir_dim one[3] = {1, a->batch, a->count}, all[3] = {a->steps, a->batch, a->count};
    ir_value *index = ir_expand(t->b, ir_reshape(t->b, a->places, one, 3), all, 3);
    n = ir_new(t->b, IR_OP_gather_elements, 2, log_prob, index);
    ir_set_int(n, IR_ATTR(gather_elements, axis), 2);
    return ir_done(t->b, n);
}

/* i64[N,1] of i64[N]. */
static ir_value *as_column(const alignment *a, ir_value *v)
{
    return ir_reshape(a->t->b, v, (ir_dim[]){a->batch, 1}, 2);
}

/* Minus the logarithm of the sum over the two places where an alignment may end, [N]. */
static ir_value *end_loss(const alignment *a, ir_value *alpha)
{
    const loss_term *t = a->t;
    ir_value *last = as_column(a, BINARY(mul, a->lengths, NUMBER(a->lengths, 2))), *place = iota(t, a->count);
    ir_value *before = BINARY(sub, last, NUMBER(last, 1));
    ir_value *is_before = BINARY(equal, place, before), *ends = BINARY(or, BINARY(equal, place, last), is_before);
    ir_value *reached = CHOOSE(ends, alpha, NUMBER(alpha, NEVER));
    int64_t axis = 1;
    ir_node *n = ir_new(t->b, IR_OP_reduce_max, 1, reached);
    ir_set_list(n, IR_ATTR(reduce_max, axes), &axis, 1);
    ir_value *max = ir_done(t->b, n);
    ir_value *sum = ir_reduce_sum(t->b, UNARY(exp, BINARY(sub, reached, max)), &axis, 1, true);
    ir_value *loss = UNARY(neg, BINARY(add, max, UNARY(log, sum)));
    ir_value *possible = BINARY(less, loss, NUMBER(loss, -0.5 * NEVER));
    loss = CHOOSE(possible, loss, NUMBER(loss, t->spec->zero_infinity != 0 ? 0 : INFINITY));
    if (loss) ir_value_rename(loss, "ctc"); /* which messages about an infinite loss contain */
    return ir_reshape(t->b, loss, &a->batch, 1);
}

ir_value *loss_ctc(const loss_term *t)
{
    alignment a = {.t = t, .steps = t->x->type.dims[0], .batch = t->x->type.dims[1]};
    if (!find_places(&a)) return NULL;
    ir_value *place = iota(t, a.count), *sizes = t->steps ? as_column(&a, t->steps) : NULL;
    ir_value *never = NUMBER(t->x, NEVER), *zero = NUMBER(t->x, 0);
    ir_value *start = CHOOSE(BINARY(equal, place, NUMBER(place, 0)), zero, never);
    ir_value *first = ir_expand(t->b, start, (ir_dim[]){a.batch, a.count}, 2);
    ir_value *skips = skip_terms(&a), *alpha = align(&a, first, place_scores(&a), skips, sizes);
    if (!alpha) return NULL;
    ir_value *loss = end_loss(&a, alpha), *length = BINARY(max, a.lengths, NUMBER(a.lengths, 1));
    ir_value *share = BINARY(div, loss, loss ? ir_cast(t->b, length, loss->type.dtype) : NULL);
    if (!share) return NULL;
    ir_node *mean = ir_new(t->b, IR_OP_reduce_mean, 1, share);
    ir_set_list(mean, IR_ATTR(reduce_mean, axes), (int64_t[]){0}, 1);
    ir_set_bool(mean, IR_ATTR(reduce_mean, keepdims), false);
    return ir_done(t->b, mean);
}
