/* evaluate.c - loss and accuracy over every sample of a data set. */
#include "runtime/train/trainer.h"

#include "ir/text.h"
#include "runtime/backend/alloc.h"
#include "runtime/data/loader.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_BATCH = 256 };

typedef struct evaluation {
    rt_session *session;
    const ir_graph *graph;
    rt_dataset *data;
    rt_loader *feed;
    const char *loss;   /* name of the loss output; NULL: none */
    int label_field;    /* -1: no class labels */
    int axis;           /* of the classes in the scores; 0: there is no accuracy */
    int64_t per_sample; /* labels per sample */
    int64_t *labels;    /* [batch, per_sample], of the current samples */
    int64_t ignored;    /* the label that the loss ignores; INT64_MIN: none */
    bool weighted;      /* the loss is a mean over the labels that are not ignored */
    double loss_sum, weight;
    rt_eval_part part[RT_EVAL_PARTS]; /* `loss` is the sum so far */
    double value[RT_EVAL_PARTS];      /* of the last run */
    int parts;
    int64_t correct, counted;
} evaluation;

/* ---- accuracy ---- */

static int64_t count_elements(const rt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

/* Whether t contains scores of C classes along the class axis, for labels without it; N may count tokens. */
static bool are_scores(const evaluation *e, const rt_tensor *t, int64_t labels)
{
    return t && e->axis > 0 && ir_dtype_is_float(t->dtype) && t->rank > e->axis && t->dims[e->axis] > 1 &&
           count_elements(t) == labels * t->dims[e->axis];
}

static const rt_tensor *find_scores(const evaluation *e)
{
    int64_t labels = e->per_sample * rt_loader_samples(e->feed);
    const char *name = ir_output_name(ir_output_by_role(e->graph, IR_OUTPUT_logits));
    const rt_tensor *t = name ? rt_session_output(e->session, name) : NULL;
    for (int i = 0; !t && i < rt_session_output_count(e->session); i++)
        if (are_scores(e, rt_session_output_at(e->session, i), labels)) t = rt_session_output_at(e->session, i);
    return are_scores(e, t, labels) ? t : NULL;
}

/* The number of labels for one position along the axes before the classes. */
static int64_t count_inner(const evaluation *e, const rt_tensor *t)
{
    int64_t n = 1;
    for (int i = e->axis + 1; i < t->rank; i++) n *= t->dims[i];
    return n;
}

/* The class with the highest score for that label; -1 if all scores are NaN. */
static int64_t argmax(const evaluation *e, const rt_tensor *t, int64_t label)
{
    size_t size = ir_dtype_size(t->dtype);
    int64_t inner = count_inner(e, t), classes = t->dims[e->axis];
    const char *at = (const char *)t->data + (size_t)(label / inner * classes * inner + label % inner) * size;
    double best = -INFINITY;
    int64_t found = -1;
    for (int64_t c = 0; c < classes; c++) {
        double x = ir_load_f64(t->dtype, at + (size_t)(c * inner) * size);
        if (x > best || (found < 0 && x == best)) {
            best = x;
            found = c;
        }
    }
    return found;
}

/* Negative labels belong to no class. */
static bool counts(const evaluation *e, int64_t label) { return label >= 0 && label != e->ignored; }

static void count_correct(evaluation *e, int64_t count)
{
    const rt_tensor *t = e->labels ? find_scores(e) : NULL;
    if (!t) return;
    for (int64_t i = 0; i < count * e->per_sample; i++) {
        if (!counts(e, e->labels[i])) continue;
        e->counted++;
        e->correct += e->labels[i] == argmax(e, t, i);
    }
}

/* ---- loss ---- */

/* Finds the outputs that are parts of the loss. */
static void find_parts(evaluation *e)
{
    static const char prefix[] = "loss.";
    for (const ir_node *n = ir_first_output(e->graph); n && e->parts < RT_EVAL_PARTS; n = ir_next_output(n)) {
        const ir_type *type = &ir_in(n, 0)->type;
        const char *name = ir_output_name(n);
        if (n->role == IR_OUTPUT_result && strncmp(name, prefix, sizeof prefix - 1) == 0 && type->rank == 0 &&
            ir_dtype_is_float(type->dtype))
            e->part[e->parts++].name = name;
    }
}

static ampc_status run(evaluation *e, diag *d, double *loss)
{
    TRY(rt_session_run(e->session, e->graph->name, rt_loader_inputs(e->feed), rt_loader_count(e->feed), d));
    const rt_tensor *t = e->loss ? rt_session_output(e->session, e->loss) : NULL;
    *loss = t ? ir_load_f64(t->dtype, t->data) : NAN;
    for (int i = 0; i < e->parts; i++) {
        t = rt_session_output(e->session, e->part[i].name);
        e->value[i] = t ? ir_load_f64(t->dtype, t->data) : NAN;
    }
    return rt_session_fetched(e->session, d);
}

/* The weight of samples [first, first + count) of the current batch in the mean over all samples. */
static double weigh(const evaluation *e, int64_t first, int64_t count)
{
    int64_t n = 0;
    if (!e->weighted) return (double)count;
    for (int64_t i = first * e->per_sample; i < (first + count) * e->per_sample; i++) n += e->labels[i] != e->ignored;
    return (double)n;
}

/* Without weight the loss is 0/0, so it is not added. */
static void add_loss(evaluation *e, double loss, double weight)
{
    if (weight != 0) e->loss_sum += loss * weight;
    for (int i = 0; i < e->parts && weight != 0; i++) e->part[i].loss += e->value[i] * weight;
    e->weight += weight;
}

/* Evaluates samples first .. first+count-1. */
static ampc_status add_batch(evaluation *e, int64_t first, int64_t count, diag *d)
{
    double loss;
    TRY(rt_loader_slice(e->feed, first, count, d));
    TRY(run(e, d, &loss));
    if (e->labels) TRY(rt_dataset_slice(e->data, first, count, (size_t)e->label_field, e->labels, IR_i64, d));
    count_correct(e, count);
    TRY(rt_session_fetched(e->session, d));
    double copies = (double)(rt_loader_samples(e->feed) - count) * weigh(e, count - 1, 1);
    add_loss(e, loss, weigh(e, 0, count) + copies);
    if (copies == 0) return AMPC_OK;
    TRY(rt_loader_slice(e->feed, first + count - 1, 1, d));
    TRY(run(e, d, &loss));
    add_loss(e, loss, -copies);
    return AMPC_OK;
}

/* ---- the loop ---- */

/* Finds the label that the loss ignores. If the loss is a mean over labels other than those of the data (such as
 * labels shifted by one token), samples are weighted equally. */
static void find_ignored(evaluation *e)
{
    const ir_value *input = ir_input_by_role(e->graph, IR_INPUT_label);
    ir_dim_table *dims = e->graph->module->dims;
    e->ignored = INT64_MIN;
    for (const ir_node *n = e->graph->first; n; n = n->next) {
        const ir_value *labels = ir_in_named(n, "label");
        if (!labels) continue;
        e->ignored = n->attr[ir_op_find_attr(n->op, "ignore_index")].i;
        e->weighted = e->ignored != INT64_MIN && e->labels && input &&
                      ir_type_count(dims, &labels->type) == ir_type_count(dims, &input->type);
    }
}

/* Labels are class numbers if they are integers that the loss reads as integers, or integers without a loss. */
static bool has_classes(const evaluation *e)
{
    if (e->label_field < 0) return false;
    const rt_field *field = rt_dataset_field(e->data, (size_t)e->label_field);
    return ir_dtype_is_int(field->dtype) && (!e->loss || rt_loader_reads_integers(e->feed, e->label_field));
}

static ampc_status set_labels(evaluation *e, diag *d)
{
    e->label_field = rt_loader_label_field(e->graph, e->data);
    if (!has_classes(e)) {
        e->label_field = -1;
        return AMPC_OK;
    }
    const rt_field *field = rt_dataset_field(e->data, (size_t)e->label_field);
    e->per_sample = rt_field_elements(field);
    e->labels = rt_alloc((size_t)(e->per_sample * rt_loader_batch(e->feed)) + 1, sizeof *e->labels);
    return e->labels ? AMPC_OK : rt_no_memory(d);
}

static ampc_status evaluate(evaluation *e, int64_t batch, diag *d)
{
    const int64_t *sizes = rt_session_sizes(e->session);
    int64_t fixed = rt_loader_fixed_batch(e->graph, sizes);
    int64_t rows = rt_dataset_rows(e->data);
    if (!batch) batch = fixed ? fixed : DEFAULT_BATCH;
    TRY(rt_loader_open(e->graph, e->data, sizes, batch, d, &e->feed));
    TRY(set_labels(e, d));
    find_ignored(e);
    for (int64_t first = 0; first < rows; first += batch)
        TRY(add_batch(e, first, rows - first < batch ? rows - first : batch, d));
    return AMPC_OK;
}

/* Axis 1 unless the compiler has noted another one. */
static int class_axis(const ir_module *m)
{
    int64_t axis;
    const char *text = ir_meta_get(m, "class_axis");
    return text && ir_int_parse(text, &axis) && axis >= 0 && axis < IR_MAX_RANK ? (int)axis : 1;
}

const ir_graph *rt_evaluated_graph(const ir_module *m)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_eval);
    return g ? g : ir_graph_by_role(m, IR_GRAPH_infer);
}

ampc_status rt_evaluate(rt_session *s, const ir_module *m, rt_dataset *data, int64_t batch, diag *d, rt_eval *out)
{
    const ir_graph *g = rt_evaluated_graph(m);
    if (!g) return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "the module has no entry @eval or @infer");
    evaluation e = {.session = s,
                    .graph = g,
                    .data = data,
                    .axis = class_axis(m),
                    .loss = ir_output_name(ir_output_by_role(g, IR_OUTPUT_loss))};
    find_parts(&e);
    ampc_status status = evaluate(&e, batch, d);
    if (status == AMPC_OK)
        *out = (rt_eval){.loss = e.weight > 0 ? e.loss_sum / e.weight : NAN,
                         .accuracy = e.counted ? (double)e.correct / (double)e.counted : NAN,
                         .samples = rt_dataset_rows(data),
                         .parts = e.parts};
    for (int i = 0; i < e.parts && status == AMPC_OK; i++)
        out->part[i] = (rt_eval_part){e.part[i].name, e.weight > 0 ? e.part[i].loss / e.weight : NAN};
    rt_free(e.labels);
    rt_loader_close(e.feed);
    return status;
}
