/* loss.c - adds the loss to @eval and @train: built-in ones on outputs of the model, or a scalar that it computes.
 *
 *   --loss TERM[+TERM..]                a sum of losses (docs/training.md); several ones are also outputs, loss.NAME
 *   --loss-output NAME                  a scalar output or another scalar of the model
 *   losses of a recipe                  each is a sum and an output, loss.NAME; the loss is the sum of all of them
 *
 * If a built-in loss includes a normalisation (softmax, sigmoid) that the model has already applied to the output, the
 * loss reads the operand of the model's normalisation instead. The output is unchanged and the loss keeps its stable
 * form.
 *
 * The output for the loss, the output of the first loss with class labels (or else the first one), and its labels get
 * these roles. @infer keeps all outputs of the model, including a loss: a run without labels selects the others. */
#include "passes/train/loss.h"
#include "passes/train/trainers.h"

#include "ir/ops/number.h"
#include "ir/ops/settings.h"

#include <math.h>
#include <string.h>

/* A term that is being appended to a graph. */
typedef struct appending {
    ir_graph *graph;
    ir_builder b;
    loss_spec *spec;
    diag *diag;
    ir_node *output;  /* the output that the loss is computed from, or NULL */
    const char *name; /* of the value that the loss is computed from */
    ir_value *x, *y;
    ir_value *steps; /* of sequences, or NULL */
    ir_value *label; /* the graph input that y comes from, or NULL */
    int axis;        /* of the classes in x; -1 if the kind has none */
    loss_rule *make;
} appending;

static const char *show(const appending *p, const ir_type *type)
{
    return ir_type_print(p->graph->module, type, p->graph->module->arena);
}

/* ---- the output ------------------------------------------------------------------------------ */

static bool is_float(const ir_node *output) { return ir_dtype_is_float(ir_in(output, 0)->type.dtype); }

static ir_node *first_float_output(const ir_graph *g)
{
    ir_node *n = ir_first_output(g);
    while (n && !is_float(n)) n = ir_next_output(n);
    return n;
}

/* The result with that name in the graph, or NULL. */
static ir_value *find_result(const ir_graph *g, const char *name)
{
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i]->name && strcmp(n->out[i]->name, name) == 0) return n->out[i];
    return NULL;
}

static ampc_status find_operand(appending *p)
{
    const char *name = p->spec->output;
    p->output = name ? ir_graph_find_output(p->graph, name) : first_float_output(p->graph);
    p->x = p->output ? ir_in(p->output, 0) : NULL;
    if (!p->x && name && p->spec->kind->target == LOSS_NONE) p->x = find_result(p->graph, name);
    p->name = p->output ? ir_output_name(p->output) : name;
    if (!p->x && name) return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "the model has no output '%s'", name);
    if (!p->x) return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "the model has no float output for the loss");
    if (!ir_dtype_is_float(p->x->type.dtype))
        return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "loss %s: '%s' is %s, not of a float type",
                          p->spec->kind->name, p->name, show(p, &p->x->type));
    return AMPC_OK;
}

/* ---- the class axis -------------------------------------------------------------------------- */

static bool has_classes(const loss_kind *kind)
{
    return kind->target == LOSS_CLASSES || kind->logarithms || kind->axis >= 0;
}

static ampc_status find_axis(appending *p)
{
    const loss_kind *kind = p->spec->kind;
    int rank = p->x->type.rank;
    p->axis = -1;
    if (!settings_listed(kind->keys, "axis")) return AMPC_OK;
    if (rank < 2)
        return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "loss %s needs a class axis 1, output '%s' has rank %d",
                          kind->name, p->name, rank);
    if (!isnan(p->spec->axis)) {
        p->axis = (int)p->spec->axis + (p->spec->axis < 0 ? rank : 0);
        if (p->axis > 0 && p->axis < rank) return AMPC_OK;
        return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE,
                          "loss %s: axis=%g is not a class axis of output '%s', which is %s", kind->name, p->spec->axis,
                          p->name, show(p, &p->x->type));
    }
    p->axis = rank == 2 ? 1 : has_classes(kind) ? loss_class_axis(p->graph, p->x) : rank - 1;
    if (p->axis > 0) return AMPC_OK;
    return diag_error(
        p->diag, AMPC_REJECTED, DIAG_NOWHERE,
        "loss %s: which axis of output '%s', which is %s, has the classes is unknown, because neither a "
        "matmul nor a convolution makes the scores: use %s,axis=1 for [N,C,..] or %s,axis=-1 for [N,..,C]",
        kind->name, p->name, show(p, &p->x->type), kind->name, kind->name);
}

static ampc_status check_class_weights(const appending *p)
{
    if (!p->spec->class_weights || p->x->type.dims[p->axis] == (ir_dim)p->spec->class_count) return AMPC_OK;
    return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE,
                      "loss %s: class_weights has %zu numbers, but output '%s' is %s with classes along axis %d",
                      p->spec->kind->name, p->spec->class_count, p->name, show(p, &p->x->type), p->axis);
}

/* ---- outputs that the model has normalised ----------------------------------------------------- */

/* The node with that op that defines the value, looking through casts, if it normalises along the class axis, which is
 * its attribute `axis` (-1: it is elementwise). */
static const ir_node *normalised_by(const appending *p, ir_op op, int axis)
{
    const ir_node *def = ir_def(p->x);
    while (def && ir_op_has(def->op, IR_CONVERTS) && ir_dtype_is_float(ir_in(def, 0)->type.dtype))
        def = ir_def(ir_in(def, 0));
    if (!def || def->op != op) return NULL;
    if (axis < 0) return def;
    int64_t at = def->attr[axis].i;
    return (at < 0 ? at + ir_in(def, 0)->type.rank : at) == p->axis ? def : NULL;
}

/* Reported once, for @train. It is a note if the loss changes (one normalisation instead of two), and a remark if only
 * its form does. */
static void report_operand(const appending *p, const ir_node *n)
{
    static const char text[] =
        "loss %s includes this normalisation: it reads the operand of this node instead of output '%s'";
    const loss_kind *kind = p->spec->kind;
    if (p->graph->role != IR_GRAPH_train) return;
    if (kind->make == kind->of_scores) diag_note(p->diag, ir_diag_loc(n), text, kind->name, p->name);
    else diag_remark(p->diag, ir_diag_loc(n), text, kind->name, p->name);
}

/* Warns if the loss expects logarithms, but the output has probabilities. */
static ampc_status check_logarithms(const appending *p)
{
    const loss_kind *kind = p->spec->kind;
    const ir_node *n = kind->logarithms ? normalised_by(p, IR_OP_softmax, IR_ATTR(softmax, axis)) : NULL;
    if (!n || p->graph->role != IR_GRAPH_train) return AMPC_OK;
    return diag_warning(p->diag, ir_diag_loc(n), "output '%s' has probabilities, but loss %s needs their logarithms%s",
                        p->name, kind->name, kind->of_scores ? ": use ce" : "");
}

/* Selects the loss rule. If the model has normalised the output, x becomes the operand of that normalisation. */
static void choose_rule(appending *p)
{
    const loss_kind *kind = p->spec->kind;
    const ir_node *normalisation = kind->of_scores ? normalised_by(p, kind->normalisation, kind->axis) : NULL;
    p->make = kind->make;
    if (!normalisation) return;
    report_operand(p, normalisation);
    p->x = ir_in(normalisation, 0);
    p->make = kind->of_scores;
}

/* ---- the labels ------------------------------------------------------------------------------ */

/* The type of the labels, or of the second output, for the scores. */
static ir_type target_type(const appending *p)
{
    ir_type t = p->x->type;
    if (p->spec->kind->target != LOSS_CLASSES) return t;
    t.dtype = IR_i64;
    t.rank--;
    for (int i = p->axis; i < t.rank; i++) t.dims[i] = p->x->type.dims[i + 1];
    return t;
}

/* The input with that name, made if there is none; a table may have any number of columns. */
static ampc_status find_input(const appending *p, const char *name, ir_type type, ir_value **out)
{
    *out = ir_graph_find_input(p->graph, name);
    if (!*out) *out = ir_graph_input(p->graph, name, &type);
    const ir_type *is = &(*out)->type;
    if (type.rank == 2 && is->rank == 2) type.dims[1] = is->dims[1];
    if (ir_type_equal(is, &type)) return AMPC_OK;
    return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "input '%s' is %s, the loss needs one of type %s", name,
                      show(p, is), show(p, &type));
}

/* The axis of the samples in the scores of sequences: the one with the size of the first axis of the first input. */
static int batch_axis(const appending *p)
{
    const ir_dim *dims = p->x->type.dims;
    const ir_value *input = p->graph->inputs.count ? p->graph->inputs.items[0] : NULL;
    if (!isnan(p->spec->batch_axis)) return (int)p->spec->batch_axis;
    if (!input || !input->type.rank || dims[0] == dims[1]) return -1;
    return dims[0] == input->type.dims[0] ? 0 : dims[1] == input->type.dims[0] ? 1 : -1;
}

/* Makes x [T,N,C] and finds its labels i64[N,S] and the numbers of time steps i64[N]. */
static ampc_status find_sequences(appending *p)
{
    ir_module *m = p->graph->module;
    int batch = p->x->type.rank == 3 ? batch_axis(p) : -1;
    if (batch < 0)
        return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE,
                          "loss %s: output '%s' is %s: use %s,batch_axis=1 for [T,N,C] or %s,batch_axis=0 for [N,T,C]",
                          p->spec->kind->name, p->name, show(p, &p->x->type), p->spec->kind->name, p->spec->kind->name);
    const char *name = p->spec->target ? p->spec->target : ir_input_words[IR_INPUT_label];
    const ir_dim dims[2] = {p->x->type.dims[batch], ir_dim_symbol(m->dims, arena_printf(m->arena, "%s_length", name))};
    ir_type labels = ir_type_make(IR_i64, 2, dims), sizes = ir_type_make(IR_i64, 1, dims);
    if (batch == 0) p->x = ir_transpose(&p->b, p->x, (const int64_t[]){1, 0, 2});
    TRY(find_input(p, name, labels, &p->label));
    p->y = p->label;
    return p->spec->lengths ? find_input(p, p->spec->lengths, sizes, &p->steps) : AMPC_OK;
}

/* Whether values of type `is` can be the second operand, which for a pair may have another number of rows. */
static bool is_target(const appending *p, const ir_type *is, ir_type wanted)
{
    if (p->spec->kind->target == LOSS_PAIR && is->rank == wanted.rank) wanted.dims[0] = is->dims[0];
    bool floats = ir_dtype_is_float(is->dtype) && ir_dtype_is_float(wanted.dtype);
    return ir_type_same_shape(is, &wanted) && (floats || is->dtype == wanted.dtype);
}

/* Labels that are one number, unless that is the name of an output or input; else NULL. */
static ir_value *constant_target(appending *p, const char *name, const ir_type *wanted)
{
    double v;
    if (!ir_float_parse(name, &v) || !isfinite(v) || ir_graph_find_input(p->graph, name)) return NULL;
    if (wanted->dtype == IR_i64 && !(v == floor(v) && is_within(v, LIMITS_LABEL))) return NULL;
    return ir_expand(&p->b, ir_scalar(&p->b, wanted->dtype, v), wanted->dims, wanted->rank);
}

/* Finds the second operand: an output of the model, an input, a number, or a new input. */
static ampc_status find_target(appending *p)
{
    const char *name = p->spec->target ? p->spec->target : ir_input_words[IR_INPUT_label];
    const ir_node *output = p->spec->target ? ir_graph_find_output(p->graph, name) : NULL;
    const ir_type wanted = target_type(p);
    p->y = output ? NULL : constant_target(p, name, &wanted);
    if (p->y) return AMPC_OK;
    if (output) {
        p->y = ir_in(output, 0);
    } else {
        p->label = ir_graph_find_input(p->graph, name);
        if (!p->label) p->label = ir_graph_input(p->graph, name, &wanted);
        p->y = p->label;
    }
    if (!is_target(p, &p->y->type, wanted))
        return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "%s '%s' is %s, the loss needs labels of type %s",
                          output ? "output" : "input", name, show(p, &p->y->type), show(p, &wanted));
    if (ir_dtype_is_float(p->y->type.dtype)) p->y = ir_cast(&p->b, p->y, p->x->type.dtype);
    return AMPC_OK;
}

/* The pair of a contrastive loss is two embeddings [N,D] and [M,D], or one table of scores [N,M] without labels. */
static ampc_status find_pair(appending *p)
{
    if (p->x->type.rank != 2)
        return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "loss %s needs an output of rank 2, '%s' is %s",
                          p->spec->kind->name, p->name, show(p, &p->x->type));
    return p->spec->target ? find_target(p) : AMPC_OK;
}

static ampc_status find_second(appending *p)
{
    switch (p->spec->kind->target) {
    case LOSS_NONE: return AMPC_OK;
    case LOSS_PAIR: return find_pair(p);
    case LOSS_SEQUENCE: return find_sequences(p);
    default: return find_target(p);
    }
}

/* ---- appending ------------------------------------------------------------------------------- */

static ampc_status check_scalar(const appending *p)
{
    if (p->spec->kind->target != LOSS_NONE || ir_type_count(p->graph->module->dims, &p->x->type) == 1) return AMPC_OK;
    return diag_error(p->diag, AMPC_REJECTED, DIAG_NOWHERE, "output '%s' is %s, a loss is one float", p->name,
                      show(p, &p->x->type));
}

/* Returns the unweighted loss and its parts, unless `parts` is NULL; or NULL after an error. */
static ir_value *make_term(appending *p, loss_parts *parts)
{
    if (find_operand(p) || check_scalar(p) || find_axis(p) || check_class_weights(p) || check_logarithms(p))
        return NULL;
    choose_rule(p);
    if (ir_dtype_is_low(p->x->type.dtype)) p->x = ir_cast(&p->b, p->x, IR_f32);
    if (!p->x || find_second(p)) return NULL;
    const ir_type scores = p->x->type;
    loss_term term = {.b = &p->b, .spec = p->spec, .x = p->x, .y = p->y, .steps = p->steps, .parts = parts};
    if (p->axis > 1) {
        term.x = loss_arrange(&p->b, p->x, &scores, p->axis, false);
        term.y = loss_arrange(&p->b, p->y, &scores, p->axis, p->spec->kind->target == LOSS_CLASSES);
    }
    ir_value *loss = term.x ? p->make(&term) : NULL;
    if (loss && parts && !parts->count) loss_add_part(p->graph, parts, loss, NULL);
    return loss;
}

/* sum + weight * loss; the sum is NULL for the first term. */
static ir_value *add_weighted(ir_builder *b, ir_value *sum, ir_value *loss, double weight)
{
    if (weight != 1) loss = ir_binary(b, IR_OP_mul, loss, ir_scalar_like(b, loss, weight));
    if (!sum || !loss) return loss;
    if (loss->type.dtype == IR_f64) sum = ir_cast(b, sum, IR_f64);
    return ir_binary(b, IR_OP_add, sum, sum ? ir_cast(b, loss, sum->type.dtype) : NULL);
}

/* Losses to be added: one sum of terms, whose terms are outputs, or several sums of a recipe, which are. */
typedef struct loss_sum {
    const char *name; /* NULL: not of a recipe */
    int line;
    loss_specs terms;
} loss_sum;

typedef VEC(loss_sum) loss_sums;

/* The term whose output and labels are those of accuracy. */
static const loss_spec *primary_term(const loss_sums *sums)
{
    for (size_t k = 0; k < sums->count; k++)
        for (size_t i = 0; i < sums->items[k].terms.count; i++)
            if (sums->items[k].terms.items[i].kind->target == LOSS_CLASSES) return &sums->items[k].terms.items[i];
    return sums->items[0].terms.items;
}

static void set_primary(const appending *p)
{
    if (p->output && p->spec->kind->target != LOSS_NONE) p->output->role = IR_OUTPUT_logits;
    if (p->label) p->label->role = IR_INPUT_label;
}

/* Tells the module what has been compared. */
static void record(const appending *p)
{
    ir_loss *l = &p->graph->module->training.losses.items[p->spec->record];
    l->output = ir_output_name(p->output);
    if (p->label) l->target = p->label->name;
    l->weight = p->spec->weight;
    l->compared = p->spec->kind->compared;
    l->axis = l->compared == IR_COMPARED_classes ? p->axis : 1;
}

static void output_named(ir_graph *g, const char *name, ir_value *loss, const loss_parts *parts, diag *d)
{
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    const char *prefix = ir_output_roles[IR_OUTPUT_loss_term].name;
    ir_node *n = ir_output(&b, ir_graph_name_output(g, arena_printf(g->module->arena, "%s%s", prefix, name)), loss);
    n->role = IR_OUTPUT_loss_term;
    loss_output_parts(g, ir_output_name(n), parts, d);
}

static void add_parts(const ir_graph *g, loss_parts *to, const loss_parts *from, double factor)
{
    for (size_t i = 0; i < from->count; i++) {
        loss_part part = from->items[i];
        part.factor *= factor;
        vec_push(g->module->arena, to, part);
    }
}

/* Returns the weighted sum, or NULL after an error, and appends its parts, if the graph is @eval. */
static ir_value *append_sum(ir_graph *g, const loss_sum *s, const loss_spec *primary, diag *d, loss_parts *parts)
{
    ir_value *sum = NULL;
    loss_parts of_sum = {0};
    for (size_t i = 0; i < s->terms.count; i++) {
        appending p = {.graph = g, .b = pass_builder(g, IR_FORWARD, d), .spec = &s->terms.items[i], .diag = d};
        loss_parts of_term = {0};
        ir_value *loss = make_term(&p, g->role == IR_GRAPH_eval ? &of_term : NULL);
        if (!loss) return NULL;
        if (p.spec == primary) set_primary(&p);
        record(&p);
        if (!s->name && s->terms.count > 1) output_named(g, p.spec->name, loss, &of_term, d);
        add_parts(g, &of_sum, &of_term, p.spec->weight);
        sum = add_weighted(&p.b, sum, loss, p.spec->weight);
        if (!sum) return NULL;
    }
    if (s->name) output_named(g, s->name, sum, &of_sum, d);
    add_parts(g, parts, &of_sum, 1);
    return sum;
}

static ampc_status append(ir_graph *g, const loss_sums *sums, diag *d)
{
    ir_value *total = NULL;
    loss_parts parts = {0};
    for (size_t i = 0; i < sums->count; i++) {
        const loss_sum *s = &sums->items[i];
        ir_value *sum = append_sum(g, s, primary_term(sums), d, &parts);
        if (!sum && s->name) diag_note(d, recipe_place(g->module, s->line), "this is loss %s", s->name);
        if (!sum) return diag_status(d);
        ir_builder b = pass_builder(g, IR_FORWARD, d);
        total = add_weighted(&b, total, sum, 1);
    }
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    const ir_node *made = ir_output_as(&b, IR_OUTPUT_loss, NULL, total);
    if (total->kind == IR_VALUE_RESULT) ir_value_rename(total, ir_output_name(made));
    loss_output_parts(g, ir_output_name(made), &parts, d);
    return diag_status(d);
}

/* Adds the loss of the option, whose terms the module then knows. */
static ampc_status add_option(ir_module *m, const char *option, diag *d, loss_sums *sums)
{
    loss_sum s = {0};
    if (!option) return AMPC_OK;
    TRY(loss_parse(m, option, d, &s.terms));
    for (size_t i = 0; i < s.terms.count; i++) {
        loss_spec *term = &s.terms.items[i];
        const ir_loss l = {.name = term->name, .kind = term->kind->name, .options = ""};
        term->record = m->training.losses.count;
        vec_push(m->arena, &m->training.losses, l);
    }
    vec_push(m->arena, sums, s);
    return AMPC_OK;
}

/* Adds a term of the recipe to the loss of its name. */
static ampc_status add_term(ir_module *m, size_t i, diag *d, loss_sums *sums)
{
    const ir_loss *l = &m->training.losses.items[i];
    loss_spec term;
    if (loss_of_term(m, l, d, &term) != AMPC_OK) {
        diag_note(d, recipe_place(m, l->line), "this is loss %s", l->name);
        return diag_status(d);
    }
    term.record = i;
    if (!sums->count || strcmp(sums->items[sums->count - 1].name, l->name) != 0)
        vec_push(m->arena, sums, ((loss_sum){.name = l->name, .line = l->line}));
    vec_push(m->arena, &sums->items[sums->count - 1].terms, term);
    return AMPC_OK;
}

static bool has_recipe_losses(const ir_module *m) { return m->training.losses.count && m->training.losses.items->line; }

/* Adds the losses of the options, or else of the recipe. */
static ampc_status append_losses(ir_module *m, const char *option, diag *d, ir_graph *eval, ir_graph *train)
{
    loss_sums sums = {0};
    TRY(add_option(m, option, d, &sums));
    for (size_t i = 0; !option && i < m->training.losses.count; i++) TRY(add_term(m, i, d, &sums));
    TRY(append(eval, &sums, d));
    return append(train, &sums, d);
}

/* ---- a loss that is part of the model -------------------------------------------------------- */

static ampc_status make_scalar(ir_node *n, diag *d)
{
    ir_value *x = ir_in(n, 0);
    const ir_module *m = n->graph->module;
    if (!ir_dtype_is_float(x->type.dtype) || ir_type_count(m->dims, &x->type) != 1)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "output '%s' is %s, a loss is one float", ir_output_name(n),
                          ir_type_print(m, &x->type, m->arena));
    if (x->type.rank == 0) return AMPC_OK;
    ir_builder b = ir_builder_before(n, d);
    ir_node_set_input(n, 0, ir_reshape(&b, x, NULL, 0));
    return diag_status(d);
}

/* Marks the input that a loss op reads as labels. */
static void mark_label(const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next) {
        ir_value *v = ir_label(n);
        while (v && v->kind == IR_VALUE_RESULT && v->def->n_in > 0 && ir_in(v->def, 0)) v = ir_in(v->def, 0);
        if (!v || v->kind != IR_VALUE_INPUT) continue;
        v->role = IR_INPUT_label;
        return;
    }
}

/* Marks the loss output, which is found by name or else by role, and its labels. */
static ir_node *mark_loss(const ir_graph *g, const char *name)
{
    ir_node *n = name ? ir_graph_find_output(g, name) : ir_output_by_role(g, IR_OUTPUT_loss);
    if (n) n->role = IR_OUTPUT_loss;
    mark_label(g);
    return n;
}

/* Makes the result with that name an output, unless it is one. */
static void add_output(ir_graph *g, const char *name, diag *d)
{
    ir_value *v = name && !ir_graph_find_output(g, name) ? find_result(g, name) : NULL;
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    if (v) ir_output(&b, name, v);
}

static ampc_status use_output_as_loss(ir_graph *g, const char *name, diag *d)
{
    add_output(g, name, d);
    ir_node *n = mark_loss(g, name);
    if (!n) return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the model has no output '%s'", name);
    TRY(make_scalar(n, d));
    if (g->role != IR_GRAPH_eval) return AMPC_OK;
    loss_parts parts = {0};
    loss_find_parts(g, ir_in(n, 0), 1, d, &parts);
    loss_output_parts(g, ir_output_name(n), &parts, d);
    return diag_status(d);
}

/* ---- losses in the model ----------------------------------------------------------------------- */

static bool is_loss_op(ir_op op) { return op == IR_OP_softmax_cross_entropy || op == IR_OP_nll_loss; }

/* A model whose only scalar float output comes from a loss op is to be trained on that output. */
static ir_node *find_loss(const ir_graph *g)
{
    ir_node *found = NULL;
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const ir_value *v = ir_in(n, 0);
        if (!ir_dtype_is_float(v->type.dtype) || v->type.rank != 0) continue;
        const ir_node *def = ir_def(v);
        while (def && ir_op_has(def->op, IR_CONVERTS | IR_VIEW)) def = ir_def(ir_in(def, 0));
        if (found || !def || !is_loss_op(def->op)) return NULL;
        found = n;
    }
    return found;
}

bool pass_trains(const ir_module *m, const compile_options *o, ir_node **found)
{
    const ir_graph *forward = ir_graph_by_role(m, IR_GRAPH_forward);
    bool specified = o->loss || o->loss_output || has_recipe_losses(m);
    *found = forward && !specified && !o->plain_runtime ? find_loss(forward) : NULL;
    return specified || *found || (forward && ir_output_by_role(forward, IR_OUTPUT_loss));
}

static ampc_status check_options(const ir_module *m, const compile_options *o, diag *d)
{
    if (o->loss && o->loss_output)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s and %s exclude each other", diag_option_name(d, OPTION_loss),
                          diag_option_name(d, OPTION_loss_output));
    if ((o->loss || o->loss_output) && has_recipe_losses(m))
        return diag_error(d, AMPC_USAGE, diag_about(recipe_place(m, 0), o->loss ? OPTION_loss : OPTION_loss_output),
                          "the recipe has its own losses");
    return AMPC_OK;
}

ampc_status pass_loss(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    diag *d = c->diag;
    ir_graph *eval = ir_graph_by_role(m, IR_GRAPH_eval), *train = ir_graph_by_role(m, IR_GRAPH_train);
    const ir_graph *infer = ir_graph_by_role(m, IR_GRAPH_infer);
    if (!eval || !train) return AMPC_OK;
    TRY(check_options(m, o, d));
    if (o->loss || has_recipe_losses(m)) return append_losses(m, o->loss, d, eval, train);
    TRY(use_output_as_loss(eval, o->loss_output, d));
    TRY(use_output_as_loss(train, o->loss_output, d));
    if (infer) mark_loss(infer, o->loss_output);
    const char *output = ir_output_name(ir_output_by_role(eval, IR_OUTPUT_loss));
    const ir_loss own = {.name = output,
                         .kind = IR_LOSS_OF_GRAPH,
                         .options = "",
                         .output = output,
                         .weight = 1,
                         .compared = IR_COMPARED_classes,
                         .axis = 1};
    vec_push(m->arena, &m->training.losses, own);
    return AMPC_OK;
}
