/* loss_kinds.c - the built-in losses and their formulas. x is the output, with its classes along axis 1, and y the
 * labels or the second output; all are means over the items. */
#include "passes/train/loss.h"

#include <math.h>
#include <string.h>

#define UNARY(op, v) ir_unary(t->b, IR_OP_##op, v)
#define BINARY(op, v, w) ir_binary(t->b, IR_OP_##op, v, w)
/* A scalar with the type of v. */
#define NUMBER(v, number) ir_scalar_like(t->b, v, number)

static ir_value *reduce(const loss_term *t, ir_op op, ir_value *v, const int64_t *axes, int count, bool keepdims)
{
    if (!v) return NULL;
    ir_node *n = ir_new(t->b, op, 1, v);
    ir_set_list(n, IR_ATTR(reduce_sum, axes), axes, count);
    ir_set_bool(n, IR_ATTR(reduce_sum, keepdims), keepdims);
    return ir_done(t->b, n);
}

static ir_value *reduce_all(const loss_term *t, ir_op op, ir_value *v)
{
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < IR_MAX_RANK; i++) axes[i] = i;
    return v ? reduce(t, op, v, axes, v->type.rank, false) : NULL;
}

static ir_value *mean_all(const loss_term *t, ir_value *v) { return reduce_all(t, IR_OP_reduce_mean, v); }

static ir_value *over_classes(const loss_term *t, ir_op op, ir_value *v)
{
    return reduce(t, op, v, (const int64_t[]){1}, 1, false);
}

static ir_value *choose(const loss_term *t, ir_value *condition, ir_value *a, ir_value *b)
{
    return ir_done(t->b, ir_new(t->b, IR_OP_where, 3, condition, a, b));
}

/* v, but at least `low`. */
static ir_value *at_least(const loss_term *t, ir_value *v, double low)
{
    return ir_done(t->b, ir_new(t->b, IR_OP_clip, 2, v, NUMBER(v, low)));
}

/* ---- classes --------------------------------------------------------------------------------- */

static bool ignores(const loss_term *t) { return !isnan(t->spec->ignore_index); }

static int64_t ignored_label(const loss_term *t) { return ignores(t) ? (int64_t)t->spec->ignore_index : INT64_MIN; }

/* The class weights as a constant of the module, which both graphs share, or NULL. */
static ir_value *class_weights(const loss_term *t)
{
    loss_spec *s = t->spec;
    if (!s->class_weights || !t->x) return NULL;
    if (s->constant) return ir_graph_storage(t->b->graph, s->constant);
    const ir_type type = ir_type_make(t->x->type.dtype, 1, (ir_dim[]){ir_dim_number((int64_t)s->class_count)});
    size_t size = ir_dtype_size(type.dtype);
    char *bytes = arena_array(t->b->graph->module->arena, s->class_count, size);
    for (size_t i = 0; i < s->class_count; i++) ir_store_f64(type.dtype, bytes + i * size, s->weights[i]);
    ir_value *v = ir_constant(t->b, "loss.class_weights", &type, bytes);
    s->constant = v->storage;
    return v;
}

/* Whether each label is ignored, or NULL. */
static ir_value *find_ignored(const loss_term *t)
{
    return ignores(t) ? BINARY(equal, t->y, NUMBER(t->y, t->spec->ignore_index)) : NULL;
}

/* The sum over the labels that are not ignored of their weights, or of 1. */
static ir_value *sum_of_shares(const loss_term *t, ir_value *weights)
{
    ir_value *ignored = find_ignored(t), *label = t->y, *share = NUMBER(t->x, 1);
    if (ignored) label = choose(t, ignored, NUMBER(label, 0), label);
    if (weights) share = ir_done(t->b, ir_new(t->b, IR_OP_gather, 2, weights, label));
    if (ignored) share = choose(t, ignored, NUMBER(share, 0), share);
    return reduce_all(t, IR_OP_reduce_sum, share);
}

/* The sum of v, one number per label, over the labels that are not ignored, or NULL. */
static ir_value *sum_of_items(const loss_term *t, ir_value *v)
{
    ir_value *ignored = find_ignored(t);
    if (ignored) v = choose(t, ignored, NUMBER(v, 0), v);
    return reduce_all(t, IR_OP_reduce_sum, v);
}

/* Whether the parts are wanted as sums: the mean is divided by another number than that of the samples. */
static bool wants_sums(const loss_term *t, const ir_value *weights) { return t->parts && (ignores(t) || weights); }

/* The sum of v if sums are wanted, or else its mean; or NULL. With weights, v contains them, and the sum is to be
 * divided by theirs. */
static ir_value *total_of_items(const loss_term *t, ir_value *v, ir_value *weights, bool sums)
{
    if (sums) return sum_of_items(t, v);
    if (!ignores(t) && !weights) return mean_all(t, v);
    ir_value *shares = sum_of_shares(t, weights);
    return BINARY(div, sum_of_items(t, v), shares);
}

/* Reports the total as a part. Returns the mean, or NULL. */
static ir_value *report(const loss_term *t, ir_value *total, ir_value *weights, bool sums)
{
    ir_value *weight = sums ? sum_of_shares(t, weights) : NULL;
    if (t->parts && total) loss_add_part(t->b->graph, t->parts, total, weight);
    return weight ? BINARY(div, total, weight) : total;
}

static ir_value *log_probabilities(const loss_term *t)
{
    ir_node *n = ir_new(t->b, IR_OP_log_softmax, 1, t->x);
    ir_set_int(n, IR_ATTR(log_softmax, axis), 1);
    return ir_done(t->b, n);
}

/* The cross entropy with the uniform distribution, mean(w * -log(softmax(x))) over the classes. The difference of lse
 * and the mean of the scores would be less work, but it loses what large scores have in common. */
static ir_value *uniform_entropy(const loss_term *t, ir_value *weights, bool sums)
{
    ir_value *v = log_probabilities(t);
    if (weights) {
        ir_dim dims[IR_MAX_RANK] = {weights->type.dims[0]};
        for (int i = 1; i < t->x->type.rank - 1; i++) dims[i] = 1;
        v = BINARY(mul, v, ir_reshape(t->b, weights, dims, t->x->type.rank - 1));
    }
    return total_of_items(t, UNARY(neg, over_classes(t, IR_OP_reduce_mean, v)), weights, sums);
}

static ir_value *loss_ce(const loss_term *t)
{
    ir_value *weights = class_weights(t);
    ir_node *n = ir_new(t->b, IR_OP_softmax_cross_entropy, 3, t->x, t->y, weights);
    const bool sums = wants_sums(t, weights);
    ir_set_int(n, IR_ATTR(softmax_cross_entropy, ignore_index), ignored_label(t));
    if (sums) ir_set_int(n, IR_ATTR(softmax_cross_entropy, reduction), IR_WORD(loss, sum));
    ir_value *loss = ir_done(t->b, n), *lse = loss ? ir_out(n, IR_OUT(softmax_cross_entropy, lse)) : NULL;
    double smoothing = t->spec->label_smoothing, z = t->spec->z_loss;
    if (loss && smoothing > 0) {
        ir_value *uniform = uniform_entropy(t, weights, sums);
        uniform = BINARY(mul, uniform, NUMBER(uniform, smoothing));
        loss = BINARY(add, BINARY(mul, loss, NUMBER(loss, 1 - smoothing)), uniform);
    }
    loss = report(t, loss, weights, sums);
    if (loss && z > 0) {
        const bool ignored = wants_sums(t, NULL);
        ir_value *square = total_of_items(t, BINARY(mul, lse, lse), NULL, ignored);
        square = report(t, BINARY(mul, square, NUMBER(square, z)), NULL, ignored);
        loss = BINARY(add, loss, square);
    }
    return loss;
}

static ir_value *loss_nll(const loss_term *t)
{
    ir_value *weights = class_weights(t);
    ir_node *n = ir_new(t->b, IR_OP_nll_loss, 3, t->x, t->y, weights);
    const bool sums = wants_sums(t, weights);
    ir_set_int(n, IR_ATTR(nll_loss, ignore_index), ignored_label(t));
    if (sums) ir_set_int(n, IR_ATTR(nll_loss, reduction), IR_WORD(loss, sum));
    return report(t, ir_done(t->b, n), weights, sums);
}

/* ---- differences ----------------------------------------------------------------------------- */

static ir_value *loss_mse(const loss_term *t)
{
    ir_value *difference = BINARY(sub, t->x, t->y);
    return mean_all(t, BINARY(mul, difference, difference));
}

static ir_value *loss_l1(const loss_term *t) { return mean_all(t, UNARY(abs, BINARY(sub, t->x, t->y))); }

/* m * (a - m/2) with a = |x - y| and m = min(a, delta), so that both halves are one formula. */
static ir_value *huber(const loss_term *t, double delta)
{
    ir_value *a = UNARY(abs, BINARY(sub, t->x, t->y));
    ir_value *m = ir_done(t->b, ir_new(t->b, IR_OP_clip, 3, a, NULL, NUMBER(a, delta)));
    return mean_all(t, BINARY(mul, m, BINARY(sub, a, BINARY(mul, m, NUMBER(m, 0.5)))));
}

static ir_value *loss_huber(const loss_term *t) { return huber(t, t->spec->delta); }

static ir_value *loss_smooth_l1(const loss_term *t)
{
    ir_value *loss = huber(t, t->spec->beta);
    return BINARY(mul, loss, NUMBER(loss, 1 / t->spec->beta));
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* Clamps the operand of log to the smallest normal number, which keeps the gradient at zero finite. */
static ir_value *bounded_log(const loss_term *t, ir_value *v) { return UNARY(log, at_least(t, v, 0x1p-126)); }

/* y*a + (1-y)*b */
static ir_value *mix(const loss_term *t, ir_value *a, ir_value *b)
{
    ir_value *of_ones = BINARY(mul, t->y, a), *rest = BINARY(sub, NUMBER(t->y, 1), t->y);
    return BINARY(add, of_ones, BINARY(mul, rest, b));
}

/* y*softplus(-x) + (1-y)*softplus(x) for each element: minus the logarithms of both probabilities. softplus(x) - x*y is
 * the same number, but its terms cancel where the score is right. */
static ir_value *entropy_of_scores(const loss_term *t)
{
    ir_value *of_zeros = UNARY(softplus, t->x);
    return mix(t, UNARY(softplus, UNARY(neg, t->x)), of_zeros);
}

static ir_value *loss_bce_logits(const loss_term *t) { return mean_all(t, entropy_of_scores(t)); }

/* The logarithm of a probability, at least -100, with the derivative 1/max(v, 1e-12), as in PyTorch: a probability of 0
 * moves, and by a finite amount. The value and the function with this derivative are two: their difference is constant
 * for autodiff. */
static ir_value *log_of_probability(const loss_term *t, ir_value *v)
{
    ir_value *value = at_least(t, UNARY(log, at_least(t, v, 0)), -100), *least = NUMBER(v, 1e-12);
    ir_value *line = ir_done(t->b, ir_new(t->b, IR_OP_clip, 3, v, NULL, least)); /* v below 1e-12 */
    ir_value *slope = BINARY(mul, line, NUMBER(v, 1e12));
    ir_value *sloped = BINARY(add, UNARY(log, at_least(t, v, 1e-12)), slope);
    ir_value *nothing = BINARY(sub, sloped, UNARY(detach, sloped));
    return BINARY(add, UNARY(detach, value), nothing);
}

static ir_value *loss_bce(const loss_term *t)
{
    ir_value *of_ones = log_of_probability(t, t->x);
    ir_value *of_zeros = log_of_probability(t, BINARY(sub, NUMBER(t->x, 1), t->x));
    return mean_all(t, UNARY(neg, mix(t, of_ones, of_zeros)));
}

/* The cross entropy times (1 - p)^gamma, where p is the probability that the scores give to the label. A bound keeps
 * the derivative of the power finite at p = 1. */
static ir_value *loss_focal(const loss_term *t)
{
    ir_value *loss = entropy_of_scores(t);
    ir_value *of_zeros = UNARY(sigmoid, t->x);
    ir_value *missed = mix(t, UNARY(sigmoid, UNARY(neg, t->x)), of_zeros);
    if (t->spec->gamma > 0) {
        ir_value *rest = at_least(t, missed, 0x1p-126);
        loss = BINARY(mul, loss, BINARY(pow, rest, NUMBER(rest, t->spec->gamma)));
    }
    if (t->spec->alpha < 0) return mean_all(t, loss);
    ir_value *beta = NUMBER(t->y, 1 - t->spec->alpha), *alpha = mix(t, NUMBER(t->y, t->spec->alpha), beta);
    return mean_all(t, BINARY(mul, loss, alpha));
}

/* The sum over the classes of y * (log(y) - x). */
static ir_value *loss_kl(const loss_term *t)
{
    ir_value *difference = BINARY(sub, bounded_log(t, t->y), t->x);
    return mean_all(t, over_classes(t, IR_OP_reduce_sum, BINARY(mul, t->y, difference)));
}

/* The cross entropy of the softmax of x with probabilities y, such as those of mixed samples. */
static ir_value *loss_soft_ce(const loss_term *t)
{
    ir_value *product = BINARY(mul, t->y, log_probabilities(t));
    return UNARY(neg, mean_all(t, over_classes(t, IR_OP_reduce_sum, product)));
}

/* ---- directions ------------------------------------------------------------------------------ */

/* v divided by its length along axis 1. */
static ir_value *direction(const loss_term *t, ir_value *v)
{
    ir_value *length = reduce(t, IR_OP_reduce_l2, v, (const int64_t[]){1}, 1, true);
    return BINARY(div, v, at_least(t, length, 1e-12));
}

static ir_value *loss_cosine(const loss_term *t)
{
    ir_value *y = direction(t, t->y), *product = BINARY(mul, direction(t, t->x), y);
    ir_value *mean = mean_all(t, over_classes(t, IR_OP_reduce_sum, product));
    return BINARY(sub, NUMBER(mean, 1), mean);
}

/* The cross entropy of scores [n,m] where row i belongs to column i. */
static ir_value *entropy_of_rows(const loss_term *t, ir_value *scores)
{
    if (!scores) return NULL;
    ir_node *n = ir_new(t->b, IR_OP_iota, 0);
    ir_set_list(n, IR_ATTR(iota, size), scores->type.dims, 1);
    return ir_done(t->b, ir_new(t->b, IR_OP_softmax_cross_entropy, 2, scores, ir_done(t->b, n)));
}

/* The loss of all samples together is not to be had from batches: rows compete with the others of their batch. */
static ir_value *loss_contrastive(const loss_term *t)
{
    if (t->parts)
        diag_note(t->b->diag, DIAG_NOWHERE,
                  "loss contrastive compares the samples of a batch with each other: an evaluation reports the mean of "
                  "the batches, which depends on their size");
    ir_value *scores = t->x;
    if (t->y) {
        ir_value *y = direction(t, t->y);
        scores = ir_matmul(t->b, direction(t, t->x), y, NULL, false, true);
        scores = BINARY(mul, scores, NUMBER(scores, 1 / t->spec->temperature));
    }
    if (!scores) return NULL;
    ir_value *columns = entropy_of_rows(t, ir_transpose(t->b, scores, (const int64_t[]){1, 0}));
    ir_value *sum = BINARY(add, entropy_of_rows(t, scores), columns);
    return BINARY(mul, sum, NUMBER(sum, 0.5));
}

static ir_value *loss_itself(const loss_term *t)
{
    if (t->parts) loss_find_parts(t->b->graph, t->x, 1, t->b->diag, t->parts);
    return ir_reshape(t->b, t->x, NULL, 0);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define NOT_NORMALISED IR_OP_COUNT, -1, NULL
#define OF_SIGMOID(rule) IR_OP_sigmoid, -1, rule

/* clang-format off */
const loss_kind loss_kinds[] = {
    {"ce", LOSS_CLASSES, loss_ce, IR_OP_softmax, IR_ATTR(softmax, axis), loss_ce, false, IR_COMPARED_classes,
     "axis ignore_index class_weights label_smoothing z_loss"},
    {"nll", LOSS_CLASSES, loss_nll, IR_OP_log_softmax, IR_ATTR(log_softmax, axis), loss_ce, true, IR_COMPARED_classes,
     "axis ignore_index class_weights"},
    {"soft_ce", LOSS_VALUES, loss_soft_ce, IR_OP_softmax, IR_ATTR(softmax, axis), loss_soft_ce, false,
     IR_COMPARED_classes, "axis"},
    {"mse", LOSS_VALUES, loss_mse, NOT_NORMALISED, false, IR_COMPARED_values, ""},
    {"l1", LOSS_VALUES, loss_l1, NOT_NORMALISED, false, IR_COMPARED_values, ""},
    {"huber", LOSS_VALUES, loss_huber, NOT_NORMALISED, false, IR_COMPARED_values, "delta"},
    {"smooth_l1", LOSS_VALUES, loss_smooth_l1, NOT_NORMALISED, false, IR_COMPARED_values, "beta"},
    {"bce", LOSS_VALUES, loss_bce, OF_SIGMOID(loss_bce_logits), false, IR_COMPARED_probabilities, ""},
    {"bce_logits", LOSS_VALUES, loss_bce_logits, OF_SIGMOID(loss_bce_logits), false, IR_COMPARED_binary, ""},
    {"focal", LOSS_VALUES, loss_focal, OF_SIGMOID(loss_focal), false, IR_COMPARED_binary, "gamma alpha"},
    {"kl", LOSS_VALUES, loss_kl, NOT_NORMALISED, true, IR_COMPARED_nothing, "axis"},
    {"cosine", LOSS_VALUES, loss_cosine, NOT_NORMALISED, false, IR_COMPARED_nothing, "axis"},
    {"contrastive", LOSS_PAIR, loss_contrastive, NOT_NORMALISED, false, IR_COMPARED_nothing, "temperature"},
    {"ctc", LOSS_SEQUENCE, loss_ctc, NOT_NORMALISED, false, IR_COMPARED_nothing,
     "blank ignore_index batch_axis lengths zero_infinity"},
    {"scalar", LOSS_NONE, loss_itself, NOT_NORMALISED, false, IR_COMPARED_nothing, ""},
};
/* clang-format on */
const int loss_kind_count = (int)(sizeof loss_kinds / sizeof *loss_kinds);

const char *pass_loss_name(int index) { return index < loss_kind_count ? loss_kinds[index].name : NULL; }
