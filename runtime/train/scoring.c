/* scoring.c - finds the scores and labels of a module, and reads them one label after the other. */
#include "runtime/train/scoring.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <string.h>

/* ---- what is compared ---- */

const ir_graph *rt_evaluated_graph(const ir_module *m)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_eval);
    return g ? g : ir_graph_by_role(m, IR_GRAPH_infer);
}

static bool has_loss(const rt_scoring *s) { return ir_output_by_role(s->graph, IR_OUTPUT_loss) != NULL; }

/* Whether the loss reads the field as integers; the inputs of the loader need not be those of the loss. */
static bool reads_integers(const rt_scoring *s, int field)
{
    const ir_value *label = ir_input_by_role(s->graph, IR_INPUT_label);
    return rt_loader_reads_integers(s->feed, field) || (label && ir_dtype_is_int(label->type.dtype));
}

/* Class labels are integers that the loss reads as integers, integers without a loss, or probabilities. Other labels
 * are a float input of the graph. Their samples must follow one another, as those of the scores do. */
static bool has_labels(const rt_scoring *s, int field)
{
    if (field < 0 || !rt_loader_packs(s->feed, field)) return false;
    const rt_field *f = rt_dataset_field(s->data, (size_t)field);
    if (s->compares == IR_COMPARED_classes && !s->soft)
        return ir_dtype_is_int(f->dtype) && (!has_loss(s) || reads_integers(s, field));
    return s->compares != IR_COMPARED_nothing && ir_input_by_role(s->graph, IR_INPUT_label);
}

ampc_status rt_scoring_open(rt_scoring *s, rt_session *session, const ir_module *m, rt_dataset *data,
                            const rt_loader *feed, diag *d)
{
    *s = (rt_scoring){.session = session, .graph = rt_evaluated_graph(m), .data = data, .feed = feed};
    const ir_loss *loss = ir_training_primary(&m->training);
    s->compares = loss ? loss->compared : IR_COMPARED_classes;
    s->axis = loss ? loss->axis : 1;
    s->output = ir_output_name(ir_output_by_role(s->graph, IR_OUTPUT_logits));
    s->label_field = rt_loader_label_field(s->graph, data);
    s->ignored = rt_loader_ignored_label(s->graph);
    const ir_value *label = ir_input_by_role(s->graph, IR_INPUT_label);
    s->soft = s->compares == IR_COMPARED_classes && label && ir_dtype_is_float(label->type.dtype);
    if (!has_labels(s, s->label_field)) s->label_field = -1;
    if (s->label_field < 0) return AMPC_OK;
    s->per_sample = rt_field_elements(rt_dataset_field(data, (size_t)s->label_field));
    const size_t count = (size_t)(s->per_sample * rt_loader_batch(feed)) + 1;
    s->labels = rt_alloc(s->compares == IR_COMPARED_classes ? count : 1, sizeof *s->labels);
    s->targets = rt_alloc(s->compares == IR_COMPARED_classes && !s->soft ? 1 : count, sizeof *s->targets);
    return s->labels && s->targets ? AMPC_OK : rt_no_memory(d);
}

void rt_scoring_close(rt_scoring *s)
{
    rt_free(s->labels);
    rt_free(s->targets);
    rt_free(s->scores);
}

/* ---- the output ---- */

static int64_t count_elements(const rt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

static bool has_shape_of_input(const rt_scoring *s, const rt_tensor *t)
{
    for (int i = 0; i < rt_loader_count(s->feed); i++) {
        const rt_tensor *in = &rt_loader_inputs(s->feed)[i];
        if (ir_dtype_is_float(in->dtype) && in->rank == t->rank &&
            memcmp(in->dims, t->dims, (size_t)t->rank * sizeof *t->dims) == 0)
            return true;
    }
    return false;
}

/* Whether the elements of t are those that the labels are for. Without a loss whose output is known, N may count
 * tokens. */
static bool fits(const rt_scoring *s, const rt_tensor *t)
{
    if (!t || !ir_dtype_is_float(t->dtype)) return false;
    const int64_t samples = rt_loader_samples(s->feed);
    int64_t per_label = 1;
    if (s->compares == IR_COMPARED_classes) {
        if (s->axis <= 0 || t->rank <= s->axis || t->dims[s->axis] < 2) return false;
        per_label = t->dims[s->axis];
    }
    if (s->label_field >= 0 && s->soft)
        return count_elements(t) == samples * rt_field_elements(rt_dataset_field(s->data, (size_t)s->label_field));
    if (s->label_field >= 0) return count_elements(t) == samples * s->per_sample * per_label;
    return s->output && samples > 0 && count_elements(t) % (samples * per_label) == 0;
}

const rt_tensor *rt_scoring_output(const rt_scoring *s)
{
    if (s->output) {
        const rt_tensor *t = rt_session_output(s->session, s->output);
        return fits(s, t) ? t : NULL;
    }
    for (int i = 0; s->compares == IR_COMPARED_classes && i < rt_session_output_count(s->session); i++) {
        const rt_tensor *t = rt_session_output_at(s->session, i);
        if (fits(s, t) && (has_loss(s) || !has_shape_of_input(s, t))) return t;
    }
    return NULL;
}

/* Whether the model has normalised its scores: by softmax over the class axis, or by sigmoid. */
static bool is_normalised(const rt_scoring *s, const rt_tensor *t)
{
    const ir_node *output = ir_graph_find_output(s->graph, t->name), *def = output ? ir_def(ir_in(output, 0)) : NULL;
    while (def && ir_op_has(def->op, IR_CONVERTS)) def = ir_def(ir_in(def, 0));
    if (s->compares == IR_COMPARED_probabilities) return true;
    if (s->compares == IR_COMPARED_binary) return def && def->op == IR_OP_sigmoid;
    if (!def || def->op != IR_OP_softmax) return false;
    const int64_t axis = def->attr[IR_ATTR(softmax, axis)].i;
    return (axis < 0 ? axis + t->rank : axis) == s->axis;
}

static rt_scored kind_of(const rt_scoring *s, const rt_tensor *t)
{
    if (s->compares == IR_COMPARED_binary || s->compares == IR_COMPARED_probabilities) return RT_SCORED_BINARY;
    if (s->compares == IR_COMPARED_values) return RT_SCORED_VALUES;
    if (s->per_sample == 1) return RT_SCORED_CLASSES;
    const bool known = s->label_field >= 0 && !s->soft;
    const int rank = known ? rt_dataset_field(s->data, (size_t)s->label_field)->rank : t->rank - 2;
    return rank > 1 ? RT_SCORED_MAPS : RT_SCORED_TOKENS;
}

ampc_status rt_scoring_bind(rt_scoring *s, diag *d)
{
    const rt_tensor *t = rt_scoring_output(s);
    if (!t || s->scores) return AMPC_OK;
    rt_subject *of = &s->subject;
    const bool classes = s->compares == IR_COMPARED_classes;
    of->classes = classes ? t->dims[s->axis] : t->rank > 1 ? t->dims[1] : 1;
    s->scores = rt_alloc(classes ? (size_t)of->classes : 1, sizeof *s->scores);
    if (!s->scores) return rt_no_memory(d);
    if (s->label_field < 0 || s->soft)
        s->per_sample = count_elements(t) / rt_loader_samples(s->feed) / (classes ? of->classes : 1);
    of->probabilities = is_normalised(s, t);
    of->scored = kind_of(s, t);
    return AMPC_OK;
}

/* ---- items ---- */

/* The number of elements for one position along axes 0 to `axis`. */
static int64_t count_inner(const rt_tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < t->rank; i++) n *= t->dims[i];
    return n;
}

/* Sets the labels to the most probable classes. Probabilities are arranged like scores. */
static void find_most_probable(rt_scoring *s, int64_t count)
{
    const rt_tensor *t = rt_scoring_output(s);
    if (!t || !s->scores) return;
    const int64_t classes = s->subject.classes, inner = count_inner(t, s->axis);
    for (int64_t i = 0; i < rt_scoring_items(s, count); i++) {
        for (int64_t c = 0; c < classes; c++) s->scores[c] = s->targets[(i / inner * classes + c) * inner + i % inner];
        s->labels[i] = rt_predicted_class(s->scores, classes);
    }
}

ampc_status rt_scoring_read(rt_scoring *s, int64_t first, int64_t count, diag *d)
{
    if (s->label_field < 0) return AMPC_OK;
    const bool classes = s->compares == IR_COMPARED_classes && !s->soft;
    TRY(rt_dataset_slice(s->data, first, count, (size_t)s->label_field, classes ? (void *)s->labels : s->targets,
                         classes ? IR_i64 : IR_f64, d));
    if (s->soft) find_most_probable(s, count);
    return AMPC_OK;
}

int64_t rt_scoring_items(const rt_scoring *s, int64_t samples) { return samples * s->per_sample; }

bool rt_scoring_counts(const rt_scoring *s, int64_t label) { return label >= 0 && label != s->ignored; }

static void read_classes(const rt_scoring *s, const rt_tensor *t, int64_t index, rt_item *item)
{
    const size_t size = ir_dtype_size(t->dtype);
    const int64_t classes = s->subject.classes, inner = count_inner(t, s->axis);
    const char *at = (const char *)t->data + (size_t)(index / inner * classes * inner + index % inner) * size;
    for (int64_t c = 0; c < classes; c++) s->scores[c] = ir_load_f64(t->dtype, at + (size_t)(c * inner) * size);
    item->predicted = rt_predicted_class(s->scores, classes);
    if (s->label_field >= 0) item->label = s->labels[index];
}

static void read_number(const rt_scoring *s, const rt_tensor *t, int64_t index, rt_item *item)
{
    const size_t size = ir_dtype_size(t->dtype);
    const double x = ir_load_f64(t->dtype, (const char *)t->data + (size_t)index * size);
    s->scores[0] = x;
    item->column = t->rank > 1 ? index / count_inner(t, 1) % s->subject.classes : 0;
    item->predicted = isnan(x) ? -1 : x > (s->subject.probabilities ? 0.5 : 0);
    if (s->label_field < 0) return;
    item->target = s->targets[index];
    item->label = item->target > 0.5;
}

void rt_scoring_item(const rt_scoring *s, const rt_tensor *output, int64_t index, rt_item *item)
{
    *item = (rt_item){.scores = s->scores};
    if (s->compares == IR_COMPARED_classes) read_classes(s, output, index, item);
    else read_number(s, output, index, item);
}
