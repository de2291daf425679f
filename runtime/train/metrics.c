/* metrics.c - the table of metrics and their formulas. */
#include "runtime/train/metrics.h"

#include "ir/base/text_buffer.h"
#include "ir/ops/settings.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/train/metrics_auc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TP, PREDICTED, ACTUAL, COUNTS }; /* counts of one class, or of "yes" in one column */
enum { SEEN, MEAN, SQUARES, RESIDUAL, MOMENTS };
enum { MAX_MATRIX = 1000 };

struct rt_metric_rule {
    const char *name;   /* "topK": K is a number */
    unsigned of, usual; /* bits of rt_scored: what it is defined for, and by default reported for */
    rt_better better;
    const char *format;
    int counts, moments; /* numbers per class */
    bool has_matrix, has_lists, has_k;
    ampc_status (*add)(rt_metric *m, const rt_item *item, diag *d);
    double (*value)(const rt_metric *m);
};

struct rt_metric {
    const rt_metric_rule *rule;
    rt_subject subject;
    int64_t k;
    int64_t n; /* items */
    double sum;
    int64_t *counts;    /* [classes, rule->counts] */
    double *moments;    /* [classes, rule->moments] */
    int64_t *matrix;    /* [sides, sides] */
    rt_auc_list *lists; /* [classes] */
};

int64_t rt_predicted_class(const double *scores, int64_t classes)
{
    int64_t found = -1;
    for (int64_t c = 0; c < classes; c++)
        if (!isnan(scores[c]) && (found < 0 || scores[c] > scores[found])) found = c;
    return found;
}

static double mean(const rt_metric *m) { return m->n ? m->sum / (double)m->n : NAN; }

/* ---- classes and yes or no ---- */

static ampc_status add_correct(rt_metric *m, const rt_item *item, diag *d)
{
    (void)d;
    m->n++;
    m->sum += item->predicted == item->label;
    return AMPC_OK;
}

/* The label is among the K highest scores; of equal scores, the lower class is the higher one, as in accuracy. */
static ampc_status add_top(rt_metric *m, const rt_item *item, diag *d)
{
    const double own = item->scores[item->label];
    int64_t above = 0;
    (void)d;
    for (int64_t c = 0; c < m->subject.classes; c++)
        above += item->scores[c] > own || (item->scores[c] == own && c < item->label);
    m->n++;
    m->sum += !isnan(own) && above < m->k;
    return AMPC_OK;
}

/* The scores of one item, x, as probabilities: exp(x - top) / sum. */
typedef struct normaliser {
    double top, sum;
} normaliser;

/* The longer sum is equal for equal scores in another order of classes, so that they stay equal in rank. */
static normaliser normalise(const rt_metric *m, const double *x)
{
    long double sum = 0;
    normaliser n = {.top = -INFINITY};
    for (int64_t c = 0; c < m->subject.classes; c++) n.top = isnan(x[c]) || x[c] > n.top ? x[c] : n.top;
    for (int64_t c = 0; c < m->subject.classes; c++) sum += exp(x[c] - n.top);
    n.sum = (double)sum;
    return n;
}

static ampc_status add_entropy(rt_metric *m, const rt_item *item, diag *d)
{
    const double own = item->scores[item->label];
    const normaliser n = normalise(m, item->scores);
    (void)d;
    m->n++;
    m->sum += m->subject.probabilities ? -log(own) : log(n.sum) - (own - n.top);
    return AMPC_OK;
}

static double perplexity(const rt_metric *m) { return exp(mean(m)); }

static ampc_status add_counts(rt_metric *m, const rt_item *item, diag *d)
{
    int64_t label = item->label, predicted = item->predicted;
    (void)d;
    if (m->subject.scored == RT_SCORED_BINARY) {
        label = label == 1 ? item->column : -1;
        predicted = predicted == 1 ? item->column : -1;
    }
    if (label >= 0) m->counts[COUNTS * label + ACTUAL]++;
    if (predicted >= 0) m->counts[COUNTS * predicted + PREDICTED]++;
    if (label >= 0 && label == predicted) m->counts[COUNTS * label + TP]++;
    return AMPC_OK;
}

static double ratio(int64_t a, int64_t b) { return (double)a / (double)b; }

/* 2 TP / (2 TP + FP + FN), or the overlap TP / (TP + FP + FN). */
static double agreement(int64_t tp, int64_t predicted, int64_t actual, bool overlap)
{
    return overlap ? ratio(tp, predicted + actual - tp) : ratio(2 * tp, predicted + actual);
}

/* The mean over the classes. One that is neither a label nor predicted has no part in it; a column without any "yes"
 * counts as 0. Both as in scikit-learn. */
static double mean_agreement(const rt_metric *m, bool overlap)
{
    const bool columns = m->subject.scored == RT_SCORED_BINARY;
    double sum = 0;
    int64_t n = 0;
    for (int64_t c = 0; c < m->subject.classes; c++) {
        const int64_t *of = m->counts + COUNTS * c;
        const bool seen = of[PREDICTED] || of[ACTUAL];
        n += seen || columns;
        if (seen) sum += agreement(of[TP], of[PREDICTED], of[ACTUAL], overlap);
    }
    return n ? sum / (double)n : NAN;
}

static double f1_macro(const rt_metric *m) { return mean_agreement(m, false); }
static double iou(const rt_metric *m) { return mean_agreement(m, true); }

static double f1_micro(const rt_metric *m)
{
    int64_t total[COUNTS] = {0};
    for (int64_t i = 0; i < COUNTS * m->subject.classes; i++) total[i % COUNTS] += m->counts[i];
    if (!total[PREDICTED] && !total[ACTUAL]) return m->subject.scored == RT_SCORED_BINARY ? 0 : NAN;
    return agreement(total[TP], total[PREDICTED], total[ACTUAL], false);
}

static int64_t sides(const rt_subject *s) { return s->scored == RT_SCORED_BINARY ? 2 : s->classes; }

static ampc_status add_to_matrix(rt_metric *m, const rt_item *item, diag *d)
{
    (void)d;
    if (item->predicted >= 0) m->matrix[item->label * sides(&m->subject) + item->predicted]++;
    return AMPC_OK;
}

static double no_value(const rt_metric *m)
{
    (void)m;
    return NAN;
}

/* ---- ranking ---- */

/* Ranks depend on the other classes, so scores of several classes become probabilities. Of two classes, the second one
 * alone determines the area. */
static ampc_status add_ranked(rt_metric *m, const rt_item *item, diag *d)
{
    if (m->subject.scored == RT_SCORED_BINARY)
        return rt_auc_add(&m->lists[item->column], item->scores[0], item->label == 1, d);
    const normaliser n = normalise(m, item->scores);
    for (int64_t c = m->subject.classes == 2; c < m->subject.classes; c++) {
        const double x = item->scores[c];
        TRY(rt_auc_add(&m->lists[c], m->subject.probabilities ? x : exp(x - n.top) / n.sum, item->label == c, d));
    }
    return AMPC_OK;
}

/* The mean over the classes or columns that have items of both kinds. */
static double auc(const rt_metric *m)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t c = 0; c < m->subject.classes; c++) {
        if (!rt_auc_defined(&m->lists[c])) continue;
        sum += rt_auc_area(&m->lists[c]);
        n++;
    }
    return n ? sum / (double)n : NAN;
}

/* ---- values ---- */

static ampc_status add_square(rt_metric *m, const rt_item *item, diag *d)
{
    const double e = item->scores[0] - item->target;
    (void)d;
    m->n++;
    m->sum += e * e;
    return AMPC_OK;
}

static ampc_status add_distance(rt_metric *m, const rt_item *item, diag *d)
{
    (void)d;
    m->n++;
    m->sum += fabs(item->scores[0] - item->target);
    return AMPC_OK;
}

/* Welford's update of mean and variance. */
static ampc_status add_moments(rt_metric *m, const rt_item *item, diag *d)
{
    double *of = m->moments + MOMENTS * item->column;
    const double e = item->scores[0] - item->target, from_mean = item->target - of[MEAN];
    (void)d;
    of[SEEN]++;
    of[MEAN] += from_mean / of[SEEN];
    of[SQUARES] += from_mean * (item->target - of[MEAN]);
    of[RESIDUAL] += e * e;
    return AMPC_OK;
}

/* The mean over the columns. For a constant target it is 1 if all values equal it, otherwise 0, as in scikit-learn. */
static double r2(const rt_metric *m)
{
    double sum = 0;
    for (int64_t c = 0; c < m->subject.classes; c++) {
        const double *of = m->moments + MOMENTS * c;
        if (of[SEEN] < 2) return NAN;
        sum += of[SQUARES] != 0 ? 1 - of[RESIDUAL] / of[SQUARES] : of[RESIDUAL] == 0;
    }
    return sum / (double)m->subject.classes;
}

/* ---- the table ---- */

#define CLASS 1u << RT_SCORED_CLASSES
#define TOKENS 1u << RT_SCORED_TOKENS
#define MAPS 1u << RT_SCORED_MAPS
#define BINARY 1u << RT_SCORED_BINARY
#define VALUES 1u << RT_SCORED_VALUES
#define ALL_CLASSES CLASS | TOKENS | MAPS
#define FRACTION "%.4f"

/* clang-format off */
static const rt_metric_rule rules[] = {
    {.name = "loss", .of = ~0u, .better = RT_BETTER_LOWER, .format = "%.6f"},
    {.name = "accuracy", .of = ALL_CLASSES | BINARY, .usual = ALL_CLASSES | BINARY, .better = RT_BETTER_HIGHER,
     .format = FRACTION, .add = add_correct, .value = mean},
    {.name = "topK", .has_k = true, .of = ALL_CLASSES, .better = RT_BETTER_HIGHER, .format = FRACTION, .add = add_top,
     .value = mean},
    {.name = "perplexity", .of = ALL_CLASSES, .usual = TOKENS, .better = RT_BETTER_LOWER, .format = "%.4f",
     .add = add_entropy, .value = perplexity},
    {.name = "f1_macro", .of = ALL_CLASSES | BINARY, .better = RT_BETTER_HIGHER, .format = FRACTION, .counts = COUNTS,
     .add = add_counts, .value = f1_macro},
    {.name = "f1_micro", .of = ALL_CLASSES | BINARY, .better = RT_BETTER_HIGHER, .format = FRACTION, .counts = COUNTS,
     .add = add_counts, .value = f1_micro},
    {.name = "iou", .of = TOKENS | MAPS | BINARY, .usual = MAPS, .better = RT_BETTER_HIGHER, .format = FRACTION,
     .counts = COUNTS, .add = add_counts, .value = iou},
    {.name = "auc", .of = ALL_CLASSES | BINARY, .better = RT_BETTER_HIGHER, .format = FRACTION, .has_lists = true,
     .add = add_ranked, .value = auc},
    {.name = "confusion", .of = ALL_CLASSES | BINARY, .format = FRACTION, .has_matrix = true, .add = add_to_matrix,
     .value = no_value},
    {.name = "mse", .of = VALUES, .usual = VALUES, .better = RT_BETTER_LOWER, .format = "%.6g", .add = add_square,
     .value = mean},
    {.name = "mae", .of = VALUES, .usual = VALUES, .better = RT_BETTER_LOWER, .format = "%.6g", .add = add_distance,
     .value = mean},
    {.name = "r2", .of = VALUES, .better = RT_BETTER_HIGHER, .format = FRACTION, .moments = MOMENTS,
     .add = add_moments, .value = r2},
};
/* clang-format on */
enum { RULES = sizeof rules / sizeof *rules };

static const char *const scored_words[RT_SCORED_COUNT] = {
    [RT_SCORED_NOTHING] = "nothing that is compared with labels",
    [RT_SCORED_CLASSES] = "one class per sample",
    [RT_SCORED_TOKENS] = "a row of classes per sample",
    [RT_SCORED_MAPS] = "a map of classes per sample",
    [RT_SCORED_BINARY] = "yes or no",
    [RT_SCORED_VALUES] = "real numbers",
};

/* ---- choosing ---- */

static const char *rule_name(int index) { return index < RULES ? rules[index].name : NULL; }
const char *rt_metric_listed(int index) { return index + 1 < RULES ? rules[index + 1].name : NULL; }

/* The K of "topK"; 0 if the name is another. */
static int64_t k_of(const rt_metric_rule *rule, const char *name)
{
    const size_t n = strlen(rule->name) - 1, digits = strlen(name);
    if (!rule->has_k || strncmp(name, rule->name, n) != 0 || digits == n || digits - n > 9) return 0;
    return strspn(name + n, "0123456789") == digits - n ? atoll(name + n) : 0;
}

/* Appends the names of the metrics for one of the subjects `of`. */
static void list_names(unsigned of, char *text, size_t size)
{
    text_buffer t = text_in(text, size);
    for (int i = 0; i < RULES; i++)
        if (rules[i].of & of) text_add_item(&t, ", ", rules[i].name);
}

ampc_status rt_metric_find(const char *name, option_id option, diag *d, rt_metric_choice *out)
{
    for (int i = 0; i < RULES; i++) {
        const int64_t k = k_of(&rules[i], name);
        if (!k && (rules[i].has_k || strcmp(rules[i].name, name) != 0)) continue;
        *out = (rt_metric_choice){.rule = &rules[i], .k = k};
        snprintf(out->name, sizeof out->name, "%s", name);
        return AMPC_OK;
    }
    return settings_unknown(option, "metric", name, rule_name, NULL, d);
}

ampc_status rt_metrics_add(rt_metric_choices *all, const rt_metric_choice *one, option_id option, diag *d)
{
    for (int i = 0; i < all->count; i++)
        if (all->items[i].rule == one->rule && all->items[i].k == one->k) return AMPC_OK;
    if (all->count == RT_METRICS_MAX)
        return diag_error(d, AMPC_USAGE, diag_about(DIAG_NOWHERE, option), "more than %d metrics", RT_METRICS_MAX);
    all->items[all->count++] = *one;
    return AMPC_OK;
}

ampc_status rt_metrics_parse(const char *text, option_id option, diag *d, rt_metric_choices *out)
{
    char *copy = strdup(text), *rest = copy;
    ampc_status s = copy ? AMPC_OK : rt_no_memory(d);
    for (char *name; s == AMPC_OK && (name = strsep(&rest, ","));) {
        rt_metric_choice one;
        s = rt_metric_find(name, option, d, &one);
        if (s == AMPC_OK) s = rt_metrics_add(out, &one, option, d);
    }
    free(copy);
    return s;
}

void rt_metrics_usual(const rt_subject *subject, rt_metric_choices *out)
{
    *out = (rt_metric_choices){.count = 0};
    for (int i = 0; i < RULES; i++) {
        if (!(rules[i].usual & 1u << subject->scored)) continue;
        rt_metric_choice *one = &out->items[out->count++];
        one->rule = &rules[i];
        snprintf(one->name, sizeof one->name, "%s", rules[i].name);
    }
}

const char *rt_metric_name(const rt_metric_choice *c) { return c->rule->has_k ? c->name : c->rule->name; }
rt_better rt_metric_better(const rt_metric_choice *c) { return c->rule->better; }
const char *rt_metric_format(const rt_metric_choice *c) { return c->rule->format; }
bool rt_metric_is_loss(const rt_metric_choice *c) { return !c->rule->add; }

ampc_status rt_metric_check(const rt_metric_choice *c, const rt_subject *subject, diag *d)
{
    char names[256];
    if (!(c->rule->of & 1u << subject->scored)) {
        list_names(1u << subject->scored, names, sizeof names);
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "metric '%s' has no meaning here: the model predicts %s; metrics for that: %s", c->name,
                          scored_words[subject->scored], names);
    }
    if (c->rule->has_k && c->k >= subject->classes)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "metric '%s' is always 1: there are %" PRId64 " classes",
                          c->name, subject->classes);
    if (c->rule->has_matrix && sides(subject) > MAX_MATRIX)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "metric '%s': %" PRId64 " classes are more than %d", c->name,
                          subject->classes, MAX_MATRIX);
    return AMPC_OK;
}

/* ---- computing one ---- */

ampc_status rt_metric_open(const rt_metric_choice *c, const rt_subject *subject, diag *d, rt_metric **out)
{
    rt_metric *m = rt_alloc(1, sizeof *m);
    if (!m) return rt_no_memory(d);
    const rt_metric_rule *rule = c->rule;
    const size_t classes = (size_t)subject->classes, side = rule->has_matrix ? (size_t)sides(subject) : 0;
    *m = (rt_metric){.rule = rule, .subject = *subject, .k = c->k};
    m->counts = rt_alloc(classes, (size_t)rule->counts * sizeof *m->counts);
    m->moments = rt_alloc(classes, (size_t)rule->moments * sizeof *m->moments);
    m->matrix = rt_alloc(side, side * sizeof *m->matrix);
    m->lists = rt_alloc(rule->has_lists ? classes : 0, sizeof *m->lists);
    if (!m->counts || !m->moments || !m->matrix || !m->lists) {
        rt_metric_close(m);
        return rt_no_memory(d);
    }
    *out = m;
    return AMPC_OK;
}

void rt_metric_close(rt_metric *m)
{
    if (!m) return;
    for (int64_t c = 0; m->lists && m->rule->has_lists && c < m->subject.classes; c++) rt_auc_clear(&m->lists[c]);
    rt_free(m->counts);
    rt_free(m->moments);
    rt_free(m->matrix);
    rt_free(m->lists);
    rt_free(m);
}

ampc_status rt_metric_add(rt_metric *m, const rt_item *item, diag *d) { return m->rule->add(m, item, d); }
double rt_metric_value(const rt_metric *m) { return m->rule->value(m); }

const int64_t *rt_metric_matrix(const rt_metric *m, int64_t *classes)
{
    *classes = sides(&m->subject);
    return m->rule->has_matrix ? m->matrix : NULL;
}
