/* evaluate.h - loss and metrics over every sample of a data set. */
#ifndef RT_EVALUATE_H
#define RT_EVALUATE_H

#include "runtime/data/data.h"
#include "runtime/session/session.h"
#include "runtime/train/metrics.h"

#include <signal.h>

typedef struct rt_eval_options {
    int64_t batch;                     /* 0: the fixed batch, or 256 */
    int64_t first;                     /* the first sample */
    int64_t limit;                     /* only so many samples; 0: all */
    const rt_metric_choices *metrics;  /* NULL or empty: the usual ones for the loss and the data */
    const rt_metric_choices *required; /* in addition to those; may be NULL */
    const volatile sig_atomic_t *stop; /* rt_loader_watch; NULL: never */
} rt_eval_options;

typedef struct rt_eval_value {
    const char *name;   /* of the module or the options, or static */
    const char *format; /* printf conversion for people */
    double value;       /* NaN: not defined for these samples */
    bool named;         /* by the options: also reported if it is NaN */
} rt_eval_value;

enum { RT_EVAL_PARTS = 16, RT_EVAL_VALUES = 1 + RT_EVAL_PARTS + 2 * RT_METRICS_MAX };

typedef struct rt_eval {
    int64_t samples;
    int count;
    rt_eval_value value[RT_EVAL_VALUES]; /* the loss, its terms (at most 16), and the metrics, each once */
    int64_t *confusion;                  /* [classes, classes] by label and prediction, if chosen; else NULL */
    int64_t classes;
    rt_names names; /* of the classes; none: unknown */
    bool stopped;   /* the program stops before all samples were evaluated: nothing is known */
} rt_eval;

/* Runs @eval (or @infer if there is none) on every sample in stored order. "loss" and its terms, "loss.NAME", are
 * those of all samples together (averages.h). A last partial batch binds the batch symbol to a smaller size. A fixed
 * batch is padded with copies of one sample, which are measured in a separate run and subtracted. `o` NULL: the
 * defaults. Fails with AMPC_USAGE if a chosen metric has no meaning for this module and data, AMPC_REJECTED if a label
 * is not a class of the scores, otherwise like rt_loader_open and rt_session_run. */
ampc_status rt_evaluate(rt_session *s, const ir_module *m, rt_dataset *data, const rt_eval_options *o, diag *d,
                        rt_eval *out);
void rt_eval_clear(rt_eval *e);
/* NaN if there is no value of that name. */
double rt_eval_number(const rt_eval *e, const char *name);

#endif
