/* metrics.h - measures of how well the outputs of a model agree with the labels, from one table (metrics.c).
 *
 * A metric is computed in f64, one label after the other, so the batch size does not change it. docs/training.md has
 * the definitions. */
#ifndef RT_METRICS_H
#define RT_METRICS_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What outputs are compared with. */
typedef enum rt_scored {
    RT_SCORED_NOTHING,
    RT_SCORED_CLASSES, /* scores of classes with one label per sample, */
    RT_SCORED_TOKENS,  /* a row of labels per sample, */
    RT_SCORED_MAPS,    /* or labels in two or more dimensions per sample */
    RT_SCORED_BINARY,  /* one yes or no per element */
    RT_SCORED_VALUES,  /* real numbers */
    RT_SCORED_COUNT
} rt_scored;

typedef struct rt_subject {
    rt_scored scored;
    int64_t classes;    /* the size of the class axis; binary and values: of axis 1, whose positions are columns */
    bool probabilities; /* the scores add up to 1; binary: they are at most 1 */
} rt_subject;

/* One label. */
typedef struct rt_item {
    const double *scores; /* [classes]; binary and values: one number */
    int64_t label;        /* a class; binary: 0 or 1 */
    int64_t predicted;    /* the class with the highest score, or 0 or 1; -1: none, because of NaN */
    int64_t column;       /* binary and values */
    double target;        /* values */
} rt_item;

/* The class with the highest score, the first one of several; -1 if all are NaN. */
int64_t rt_predicted_class(const double *scores, int64_t classes);

typedef enum rt_better { RT_BETTER_NEITHER, RT_BETTER_LOWER, RT_BETTER_HIGHER } rt_better;
typedef struct rt_metric_rule rt_metric_rule;

/* A metric chosen by name. */
enum { RT_METRIC_NAME = 24, RT_METRICS_MAX = 32 };
typedef struct rt_metric_choice {
    char name[RT_METRIC_NAME];
    const rt_metric_rule *rule;
    int64_t k; /* of topK */
} rt_metric_choice;

typedef struct rt_metric_choices {
    rt_metric_choice items[RT_METRICS_MAX];
    int count;
} rt_metric_choices;

/* The names of the metrics except the loss, by index; NULL past the last. */
const char *rt_metric_listed(int index);

/* Finds a metric by its name. Fails with AMPC_USAGE, listing the names; `option` is named in the message. */
ampc_status rt_metric_find(const char *name, option_id option, diag *d, rt_metric_choice *out);
/* Appends the metrics of "NAME[,NAME..]", each once. Fails like rt_metric_find, or if there are too many. */
ampc_status rt_metrics_parse(const char *text, option_id option, diag *d, rt_metric_choices *out);
ampc_status rt_metrics_add(rt_metric_choices *all, const rt_metric_choice *one, option_id option, diag *d);
/* The metrics that are reported for the subject if none are named. */
void rt_metrics_usual(const rt_subject *subject, rt_metric_choices *out);

/* Static, except for topK, where it is in `c`. */
const char *rt_metric_name(const rt_metric_choice *c);
rt_better rt_metric_better(const rt_metric_choice *c);
/* printf conversion for people. */
const char *rt_metric_format(const rt_metric_choice *c);
/* Whether the metric is the loss, which the module computes itself. */
bool rt_metric_is_loss(const rt_metric_choice *c);
/* Fails with AMPC_USAGE if the metric has no meaning for the subject, stating why. */
ampc_status rt_metric_check(const rt_metric_choice *c, const rt_subject *subject, diag *d);

/* ---- computing one ---- */

typedef struct rt_metric rt_metric;
/* The metric must fit the subject. Fails with AMPC_NO_MEMORY. */
ampc_status rt_metric_open(const rt_metric_choice *c, const rt_subject *subject, diag *d, rt_metric **out);
void rt_metric_close(rt_metric *m); /* NULL allowed */
ampc_status rt_metric_add(rt_metric *m, const rt_item *item, diag *d);
/* The value over all items so far; NaN if it is not defined for them. */
double rt_metric_value(const rt_metric *m);
/* The counts of a confusion matrix, [classes, classes] by label and prediction, or NULL. Valid until close. */
const int64_t *rt_metric_matrix(const rt_metric *m, int64_t *classes);

#endif
