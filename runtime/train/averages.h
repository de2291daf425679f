/* averages.h - the loss and its terms over a data set, from those of its batches.
 *
 * An output is averaged over the samples unless the module says what it is made of (passes/train/loss_parts.c):
 * quotients of sums, both of which are added up, sums alone and means. */
#ifndef RT_AVERAGES_H
#define RT_AVERAGES_H

#include "runtime/session/session.h"

typedef struct rt_averages rt_averages;

/* Averages the loss of the graph, which comes first if there is one, and up to `limit` outputs that are terms of it.
 * The graph must outlive it. AMPC_REJECTED if the module describes an output wrongly, AMPC_NO_MEMORY. */
ampc_status rt_averages_open(const ir_graph *g, int limit, diag *d, rt_averages **out);
void rt_averages_close(rt_averages *a); /* NULL allowed */
int rt_averages_count(const rt_averages *a);
bool rt_averages_has_loss(const rt_averages *a);
const char *rt_averages_name(const rt_averages *a, int i);

/* Adds the last run, of `samples` samples, times times/of; negative for what copies have added too much. */
void rt_averages_add(rt_averages *a, rt_session *s, int64_t samples, int64_t times, int64_t of);
/* NaN if nothing had a weight. */
double rt_averages_value(const rt_averages *a, int i);

#endif
