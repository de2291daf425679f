/* scoring.h - which output of a module is compared with which labels of a data set, and how their elements
 * correspond.
 *
 * The loss decides (ir_loss.compared, a column of loss_kinds in passes/train/loss_kinds.c). A loss that is part of the
 * model, or a module without one, has scores of classes if the data have integer labels for them; then an output with
 * the shape of an input is not scores. */
#ifndef RT_SCORING_H
#define RT_SCORING_H

#include "runtime/data/loader.h"
#include "runtime/train/metrics.h"

typedef struct rt_scoring {
    rt_subject subject; /* RT_SCORED_NOTHING until rt_scoring_bind */
    int label_field;    /* -1: the data have no labels to compare with */
    int64_t per_sample; /* labels per sample */
    int64_t ignored;    /* the label that the loss ignores; INT64_MIN: none */
    int64_t *labels;    /* [batch, per_sample] of the samples last read, unless they are real numbers, */
    double *targets;    /* which are here, also those of yes or no */
    /* of the implementation */
    rt_session *session;
    const ir_graph *graph;
    rt_dataset *data;
    const rt_loader *feed;
    const char *output; /* NULL: the first that fits */
    bool soft;          /* the data have probabilities of the classes; the most probable one is the label */
    ir_compared compares;
    int axis;       /* of the classes; 0: there are none */
    double *scores; /* [classes], of one item */
} rt_scoring;

/* @eval, or @infer if there is no loss; NULL: neither. */
const ir_graph *rt_evaluated_graph(const ir_module *m);

/* Session, module, data and loader must outlive the scoring. The module needs an evaluated graph. Fails with
 * AMPC_NO_MEMORY. Call rt_scoring_close also on failure. */
ampc_status rt_scoring_open(rt_scoring *s, rt_session *session, const ir_module *m, rt_dataset *data,
                            const rt_loader *feed, diag *d);
void rt_scoring_close(rt_scoring *s);

/* After a run of the inputs of the loader: finds the output and sets the subject. */
ampc_status rt_scoring_bind(rt_scoring *s, diag *d);
/* Reads the labels of these samples, which must be those of the loader. */
ampc_status rt_scoring_read(rt_scoring *s, int64_t first, int64_t count, diag *d);
/* The number of items of `samples` samples. */
int64_t rt_scoring_items(const rt_scoring *s, int64_t samples);
/* The output with the scores of the last run; NULL: none. */
const rt_tensor *rt_scoring_output(const rt_scoring *s);
/* Item `index` of the last run; its scores are valid until the next call. Without labels, label and target are not
 * set. */
void rt_scoring_item(const rt_scoring *s, const rt_tensor *output, int64_t index, rt_item *item);
/* Whether the label counts in metrics: negative ones belong to no class. */
bool rt_scoring_counts(const rt_scoring *s, int64_t label);

#endif
