/* metrics_auc.c - the area under the ROC curve from the ranks of the positive items (Mann-Whitney). */
#include "runtime/train/metrics_auc.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ampc_status rt_auc_add(rt_auc_list *l, double score, bool positive, diag *d)
{
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 256;
        rt_auc_item *items = rt_alloc(capacity, sizeof *items);
        if (!items) return rt_no_memory(d);
        if (l->count) memcpy(items, l->items, l->count * sizeof *items);
        rt_free(l->items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->count++] = (rt_auc_item){score, positive};
    l->positives += positive;
    return AMPC_OK;
}

void rt_auc_clear(rt_auc_list *l)
{
    rt_free(l->items);
    *l = (rt_auc_list){0};
}

bool rt_auc_defined(const rt_auc_list *l) { return l->positives > 0 && l->positives < l->count; }

static int by_score(const void *a, const void *b)
{
    const double x = ((const rt_auc_item *)a)->score, y = ((const rt_auc_item *)b)->score;
    return (x > y) - (x < y);
}

double rt_auc_area(rt_auc_list *l)
{
    double above = 0; /* pairs in which the positive item is higher */
    size_t negatives = 0;
    for (size_t i = 0; i < l->count; i++)
        if (isnan(l->items[i].score)) return NAN;
    qsort(l->items, l->count, sizeof *l->items, by_score);
    for (size_t i = 0, next; i < l->count; i = next) {
        size_t ties = 0;
        for (next = i; next < l->count && l->items[next].score == l->items[i].score; next++)
            ties += !l->items[next].positive;
        above += (double)(next - i - ties) * ((double)negatives + (double)ties / 2);
        negatives += ties;
    }
    return above / ((double)negatives * (double)l->positives);
}
