/* monitor.h - a metric that a training watches, to keep the best weights or to stop when it no longer improves. */
#ifndef RT_MONITOR_H
#define RT_MONITOR_H

#include "runtime/train/metrics.h"

/* "METRIC[,patience=N][,min-delta=X]" */
typedef struct rt_monitor {
    rt_metric_choice metric;
    int64_t patience; /* evaluations in a row without improvement that end the run */
    double min_delta; /* a value is an improvement if it is better by more than this */
} rt_monitor;

/* Part of the state of a run, so that a resumed run decides like an uninterrupted one. */
typedef struct rt_monitor_state {
    char metric[RT_METRIC_NAME]; /* empty: nothing was observed */
    double best;                 /* NaN: no value was a number */
    uint64_t step;               /* of the best value */
    int64_t bad;                 /* evaluations since then */
} rt_monitor_state;

/* The text of OPTION_best, or of OPTION_early_stop, which may have a patience. Fails with AMPC_USAGE for an unknown
 * metric, one that cannot be compared (confusion), an unknown key, or a value out of range. */
ampc_status rt_monitor_parse(const char *text, option_id option, diag *d, rt_monitor *out);
/* The keys of the two by index; NULL past the last. */
const struct setting *rt_monitor_key(int index), *rt_monitor_stop_key(int index);
/* Records the value of an evaluation after that step; true if it is the best so far. NaN never is. */
bool rt_monitor_observe(const rt_monitor *m, double value, uint64_t step, rt_monitor_state *state);
/* Whether the run has to stop. */
bool rt_monitor_exhausted(const rt_monitor *m, const rt_monitor_state *state);

/* The state as text for a checkpoint, with an exact number. */
enum { RT_MONITOR_TEXT = 128 };
void rt_monitor_print(const rt_monitor_state *state, char text[RT_MONITOR_TEXT]);
bool rt_monitor_read(const char *text, rt_monitor_state *state); /* false if the text is malformed */

#endif
