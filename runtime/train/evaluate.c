/* evaluate.c - runs every sample of a data set: the mean loss, and the metrics of metrics.c. */
#include "runtime/train/evaluate.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/train/scoring.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DEFAULT_BATCH = 256, MAX_CHOSEN = 2 * RT_METRICS_MAX };

/* The loss, or a part of it. */
typedef struct mean_output {
    const char *name;
    double sum, value; /* value: of the last run */
} mean_output;

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
    bool bound;    /* the metrics are open */
    bool has_loss; /* mean[0] is the loss */
    bool weighted; /* the loss is a mean over the labels that are not ignored */
    mean_output mean[1 + RT_EVAL_PARTS];
    int means;
    double weight;
    rt_metric_choices usual;
    chosen_metric chosen[MAX_CHOSEN];
    int metrics;
} evaluation;

/* ---- loss ---- */

/* Finds the loss and the outputs that are parts of it. */
static void find_means(evaluation *e)
{
    static const char prefix[] = "loss.";
    const char *loss = ir_output_name(ir_output_by_role(e->graph, IR_OUTPUT_loss));
    e->has_loss = loss;
    if (loss) e->mean[e->means++].name = loss;
    const int limit = e->means + RT_EVAL_PARTS;
    for (const ir_node *n = ir_first_output(e->graph); n && e->means < limit; n = ir_next_output(n)) {
        const ir_type *type = &ir_in(n, 0)->type;
        const char *name = ir_output_name(n);
        if (n->role == IR_OUTPUT_result && strncmp(name, prefix, sizeof prefix - 1) == 0 && type->rank == 0 &&
            ir_dtype_is_float(type->dtype))
            e->mean[e->means++].name = name;
    }
}

/* If the loss is a mean over labels other than those of the data (such as labels shifted by one token), samples are
 * weighted equally. */
static bool is_weighted(const evaluation *e)
{
    const ir_value *input = ir_input_by_role(e->graph, IR_INPUT_label);
    ir_dim_table *dims = e->graph->module->dims;
    const ir_value *labels = NULL;
    for (const ir_node *n = e->graph->first; n; n = n->next)
        if (ir_in_named(n, "label")) labels = ir_in_named(n, "label");
    return labels && input && e->scoring.ignored != INT64_MIN && e->scoring.label_field >= 0 &&
           ir_type_count(dims, &labels->type) == ir_type_count(dims, &input->type);
}

static ampc_status run(evaluation *e, diag *d)
{
    TRY(rt_session_run(e->session, e->graph->name, rt_loader_inputs(e->feed), rt_loader_count(e->feed), d));
    for (int i = 0; i < e->means; i++) {
        const rt_tensor *t = rt_session_output(e->session, e->mean[i].name);
        e->mean[i].value = t ? ir_load_f64(t->dtype, t->data) : NAN;
    }
    return rt_session_fetched(e->session, d);
}

/* The weight of samples [first, first + count) of the current batch in the mean over all samples. */
static double weigh(const evaluation *e, int64_t first, int64_t count)
{
    const rt_scoring *s = &e->scoring;
    int64_t n = 0;
    if (!e->weighted) return (double)count;
    for (int64_t i = first * s->per_sample; i < (first + count) * s->per_sample; i++) n += s->labels[i] != s->ignored;
    return (double)n;
}

/* Without weight the loss is 0/0, so it is not added. */
static void add_loss(evaluation *e, double weight)
{
    for (int i = 0; i < e->means && weight != 0; i++) e->mean[i].sum += e->mean[i].value * weight;
    e->weight += weight;
}

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
        if (rt_metric_is_loss(c) && !e->has_loss)
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

/* Evaluates samples first .. first+count-1. */
static ampc_status add_batch(evaluation *e, int64_t first, int64_t count, diag *d)
{
    TRY(rt_loader_slice(e->feed, first, count, d));
    if (rt_loader_stopped(e->feed)) return AMPC_OK;
    TRY(run(e, d));
    if (!e->bound) TRY(bind_metrics(e, d));
    TRY(rt_scoring_read(&e->scoring, first, count, d));
    TRY(observe(e, first, count, d));
    double copies = (double)(rt_loader_samples(e->feed) - count) * weigh(e, count - 1, 1);
    add_loss(e, weigh(e, 0, count) + copies);
    if (copies == 0) return AMPC_OK;
    TRY(rt_loader_slice(e->feed, first + count - 1, 1, d));
    if (rt_loader_stopped(e->feed)) return AMPC_OK;
    TRY(run(e, d));
    add_loss(e, -copies);
    return AMPC_OK;
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
    find_means(e);
    e->weighted = is_weighted(e);
    for (int64_t first = 0; first < rows && !rt_loader_stopped(e->feed); first += batch)
        TRY(add_batch(e, first, rows - first < batch ? rows - first : batch, d));
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
    for (int i = 0; i < e->means; i++) {
        const bool loss = !i && e->has_loss;
        out->value[out->count++] = (rt_eval_value){.name = loss ? "loss" : e->mean[i].name,
                                                   .format = "%.6f",
                                                   .value = e->weight > 0 ? e->mean[i].sum / e->weight : NAN};
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
    const int64_t rows = rt_dataset_rows(data), limit = e->options->limit;
    *out = (rt_eval){.samples = limit && limit < rows ? limit : rows};
    ampc_status status = evaluate(e, m, data, out->samples, d);
    if (status == AMPC_OK) status = copy_names(rt_dataset_classes(data), out, d);
    out->stopped = e->feed && rt_loader_stopped(e->feed);
    if (status == AMPC_OK && !out->stopped) status = collect(e, out, d);
    for (int i = 0; i < e->metrics; i++) rt_metric_close(e->chosen[i].metric);
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
