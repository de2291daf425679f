/* metrics_auc.h - the area under the ROC curve of a list of scores; private to metrics.c. */
#ifndef RT_METRICS_AUC_H
#define RT_METRICS_AUC_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rt_auc_item {
    double score;
    bool positive;
} rt_auc_item;

/* All scores are kept, because the area depends on their order. Zeroed: empty. */
typedef struct rt_auc_list {
    rt_auc_item *items;
    size_t count, capacity, positives;
} rt_auc_list;

/* Fails with AMPC_NO_MEMORY. */
ampc_status rt_auc_add(rt_auc_list *l, double score, bool positive, diag *d);
void rt_auc_clear(rt_auc_list *l);
/* Whether there are both positive and negative items. */
bool rt_auc_defined(const rt_auc_list *l);
/* The probability that a positive item has a higher score than a negative one, where equal scores count as one half.
 * NaN if a score is NaN. Sorts the list. */
double rt_auc_area(rt_auc_list *l);

#endif
