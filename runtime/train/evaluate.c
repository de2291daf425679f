/* evaluate.c - runs every sample of a data set: the mean loss, and the metrics of metrics.c. */
#include "runtime/train/evaluate.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/train/averages.h"
#include "runtime/train/scoring.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DEFAULT_BATCH = 256, MAX_CHOSEN = 2 * RT_METRICS_MAX };

typedef struct chosen_metric {
    const rt_metric_choice *choice; /* of the options, or in `usual` */
    rt_metric *metric;
    bool named;
} chosen_metric;

typedef struct evaluation {
    rt_session *session;
    const ir_graph *graph;
    const rt_eval_options *options;
    rt_loader *feed;
    rt_scoring scoring;
    rt_averages *averages;
    bool bound; /* the metrics are open */
    rt_metric_choices usual;
    chosen_metric chosen[MAX_CHOSEN];
    int metrics;
} evaluation;

/* ---- metrics ---- */

static bool is_chosen(const evaluation *e, const rt_metric_choice *c)
{
    for (int i = 0; i < e->metrics; i++)
        if (e->chosen[i].choice->rule == c->rule && e->chosen[i].choice->k == c->k) return true;
    return false;
}

/* Opens the metrics that are not open yet. */
static ampc_status choose(evaluation *e, const rt_metric_choices *from, bool named, diag *d)
{
    for (int i = 0; from && i < from->count; i++) {
        const rt_metric_choice *c = &from->items[i];
        if (rt_metric_is_loss(c) && !rt_averages_has_loss(e->averages))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "metric '%s' has no meaning here: the module has no loss",
                              c->name);
        if (rt_metric_is_loss(c) || is_chosen(e, c)) continue;
        chosen_metric *one = &e->chosen[e->metrics];
        TRY(rt_metric_check(c, &e->scoring.subject, d));
        TRY(rt_metric_open(c, &e->scoring.subject, d, &one->metric));
        one->choice = c;
        one->named = named;
        e->metrics++;
    }
    return AMPC_OK;
}

/* Called after the first run, which shows the sizes of the outputs. */
static ampc_status bind_metrics(evaluation *e, diag *d)
{
    const rt_eval_options *o = e->options;
    TRY(rt_scoring_bind(&e->scoring, d));
    if (e->scoring.label_field < 0) e->scoring.subject.scored = RT_SCORED_NOTHING;
    rt_metrics_usual(&e->scoring.subject, &e->usual);
    e->bound = true;
    const bool named = o->metrics && o->metrics->count;
    TRY(choose(e, named ? o->metrics : &e->usual, named, d));
    return choose(e, o->required, true, d);
}

static ampc_status check_label(const evaluation *e, int64_t label, int64_t sample, diag *d)
{
    const rt_subject *of = &e->scoring.subject;
    if (of->scored == RT_SCORED_BINARY || of->scored == RT_SCORED_VALUES || label < of->classes) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                      "sample %" PRId64 " has label %" PRId64 ", but the scores are of %" PRId64 " classes", sample,
                      label, of->classes);
}

/* Adds the items of the first `count` samples of the current batch. */
static ampc_status observe(evaluation *e, int64_t first, int64_t count, diag *d)
{
    rt_item item;
    const rt_scoring *s = &e->scoring;
    const rt_tensor *t = e->metrics ? rt_scoring_output(s) : NULL;
    for (int64_t i = 0; t && i < rt_scoring_items(s, count); i++) {
        rt_scoring_item(s, t, i, &item);
        if (!rt_scoring_counts(s, item.label)) continue;
        TRY(check_label(e, item.label, first + i / s->per_sample, d));
        for (int k = 0; k < e->metrics; k++) TRY(rt_metric_add(e->chosen[k].metric, &item, d));
    }
    return rt_session_fetched(e->session, d);
}

/* ---- the loop ---- */

/* Whether the program stops, and the samples did not arrive or the run was abandoned. */
static bool is_stopped(const evaluation *e)
{
    return (e->feed && rt_loader_stopped(e->feed)) || rt_session_stopped(e->session);
}

static ampc_status run(evaluation *e, int64_t first, int64_t count, diag *d)
{
    TRY(rt_loader_slice(e->feed, first, count, d));
    if (is_stopped(e)) return AMPC_OK;
    const ampc_status s = rt_session_run(e->session, e->graph->name, rt_loader_inputs(e->feed),
                                         rt_loader_count(e->feed), d);
    return is_stopped(e) ? AMPC_OK : s;
}

/* Evaluates samples first .. first+count-1. A fixed batch is filled up with copies of the last one, which a run of
 * copies alone shows the loss of. */
static ampc_status add_batch(evaluation *e, int64_t first, int64_t count, diag *d)
{
    TRY(run(e, first, count, d));
    if (is_stopped(e)) return AMPC_OK;
    if (!e->bound) TRY(bind_metrics(e, d));
    TRY(rt_scoring_read(&e->scoring, first, count, d));
    TRY(observe(e, first, count, d));
    const int64_t samples = rt_loader_samples(e->feed), copies = samples - count;
    const bool alike = copies && count == 1;
    rt_averages_add(e->averages, e->session, samples, 1, alike ? samples : 1);
    if (!copies || alike) return rt_session_fetched(e->session, d);
    TRY(rt_session_fetched(e->session, d));
    TRY(run(e, first + count - 1, 1, d));
    if (is_stopped(e)) return AMPC_OK;
    rt_averages_add(e->averages, e->session, samples, -copies, samples);
    return rt_session_fetched(e->session, d);
}

static ampc_status evaluate(evaluation *e, const ir_module *m, rt_dataset *data, int64_t rows, diag *d)
{
    const int64_t *sizes = rt_session_sizes(e->session);
    const int64_t fixed = rt_loader_fixed_batch(e->graph, sizes);
    int64_t batch = e->options->batch;
    if (!batch) batch = fixed ? fixed : DEFAULT_BATCH;
    TRY(rt_loader_open(e->graph, data, sizes, batch, d, &e->feed));
    if (e->options->stop) TRY(rt_loader_watch(e->feed, e->options->stop, d));
    TRY(rt_scoring_open(&e->scoring, e->session, m, data, e->feed, d));
    TRY(rt_averages_open(e->graph, RT_EVAL_PARTS, d, &e->averages));
    for (int64_t at = 0; at < rows && !is_stopped(e); at += batch)
        TRY(add_batch(e, e->options->first + at, rows - at < batch ? rows - at : batch, d));
    return AMPC_OK;
}

/* ---- the result ---- */

static ampc_status copy_matrix(const rt_metric *metric, rt_eval *out, diag *d)
{
    const int64_t *matrix = rt_metric_matrix(metric, &out->classes);
    if (!matrix) return AMPC_OK;
    const size_t bytes = (size_t)(out->classes * out->classes) * sizeof *matrix;
    out->confusion = rt_alloc(1, bytes);
    if (!out->confusion) return rt_no_memory(d);
    memcpy(out->confusion, matrix, bytes);
    return AMPC_OK;
}

static ampc_status collect(const evaluation *e, rt_eval *out, diag *d)
{
    for (int i = 0; i < rt_averages_count(e->averages); i++) {
        const bool loss = !i && rt_averages_has_loss(e->averages);
        out->value[out->count++] = (rt_eval_value){.name = loss ? "loss" : rt_averages_name(e->averages, i),
                                                   .format = "%.6f",
                                                   .value = rt_averages_value(e->averages, i)};
    }
    for (int i = 0; i < e->metrics; i++) {
        const chosen_metric *one = &e->chosen[i];
        if (rt_metric_better(one->choice) == RT_BETTER_NEITHER) {
            TRY(copy_matrix(one->metric, out, d));
            continue;
        }
        out->value[out->count++] = (rt_eval_value){.name = rt_metric_name(one->choice),
                                                   .format = rt_metric_format(one->choice),
                                                   .value = rt_metric_value(one->metric),
                                                   .named = one->named};
    }
    return AMPC_OK;
}

static ampc_status copy_names(const rt_names *names, rt_eval *out, diag *d)
{
    for (size_t i = 0; names && i < names->count; i++) TRY(rt_names_add(&out->names, strdup(names->items[i]), d));
    return AMPC_OK;
}

ampc_status rt_evaluate(rt_session *s, const ir_module *m, rt_dataset *data, const rt_eval_options *o, diag *d,
                        rt_eval *out)
{
    static const rt_eval_options defaults = {.batch = 0};
    const ir_graph *g = rt_evaluated_graph(m);
    if (!g) return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "the module has no entry @eval or @infer");
    evaluation *e = rt_alloc(1, sizeof *e);
    if (!e) return rt_no_memory(d);
    *e = (evaluation){.session = s, .graph = g, .options = o ? o : &defaults};
    const int64_t rows = rt_dataset_rows(data) - e->options->first, limit = e->options->limit;
    *out = (rt_eval){.samples = limit && limit < rows ? limit : rows};
    ampc_status status = evaluate(e, m, data, out->samples, d);
    if (status == AMPC_OK) status = copy_names(rt_dataset_classes(data), out, d);
    out->stopped = is_stopped(e);
    if (status == AMPC_OK && !out->stopped) status = collect(e, out, d);
    for (int i = 0; i < e->metrics; i++) rt_metric_close(e->chosen[i].metric);
    rt_averages_close(e->averages);
    rt_scoring_close(&e->scoring);
    rt_loader_close(e->feed);
    rt_free(e);
    return status;
}

void rt_eval_clear(rt_eval *e)
{
    rt_free(e->confusion);
    rt_names_clear(&e->names);
    *e = (rt_eval){0};
}

double rt_eval_number(const rt_eval *e, const char *name)
{
    for (int i = 0; i < e->count; i++)
        if (strcmp(e->value[i].name, name) == 0) return e->value[i].value;
    return NAN;
}
