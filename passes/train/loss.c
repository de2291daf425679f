/* loss.c - adds the loss to @eval and @train: a built-in one on a model output, or a scalar output of the model.
 *
 *   --loss ce[:OUTPUT[,LABEL]]   softmax cross entropy over axis 1, averaged over all labels, which are i64 without
 *                                that axis
 *          nll                   the same for log-probabilities
 *          mse, l1               mean of (x - y)^2, of |x - y|; labels have the type of the output
 *          bce_logits            mean of softplus(x) - x*y, which is max(x,0) - x*y + log(1 + exp(-|x|))
 *          bce                   the same for probabilities: mean of -y*log(p) - (1-y)*log(1-p)
 *
 * If the loss includes a normalisation (softmax, sigmoid) that the model has already applied to the output, the loss
 * reads the operand of the model's normalisation instead. The output is unchanged and the loss keeps its stable form.
 *
 * The output for the loss, the output it is computed from, and the labels get these roles. @infer keeps all outputs of
 * the model, including a loss: a run without labels selects the others. */
#include "passes/pass.h"

#include <string.h>

typedef ir_value *loss_rule(ir_builder *b, ir_value *x, ir_value *label);

static ir_value *mean_all(ir_builder *b, ir_value *x)
{
    if (!x) return NULL;
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) axes[i] = i;
    ir_node *n = ir_new(b, IR_OP_reduce_mean, 1, x);
    ir_set_list(n, IR_ATTR(reduce_mean, axes), axes, x->type.rank);
    ir_set_bool(n, IR_ATTR(reduce_mean, keepdims), false);
    return ir_done(b, n);
}

static ir_value *loss_ce(ir_builder *b, ir_value *x, ir_value *label)
{
    return ir_done(b, ir_new(b, IR_OP_softmax_cross_entropy, 2, x, label));
}

static ir_value *loss_nll(ir_builder *b, ir_value *x, ir_value *label)
{
    return ir_done(b, ir_new(b, IR_OP_nll_loss, 2, x, label));
}

static ir_value *loss_mse(ir_builder *b, ir_value *x, ir_value *label)
{
    ir_value *difference = ir_binary(b, IR_OP_sub, x, label);
    return mean_all(b, ir_binary(b, IR_OP_mul, difference, difference));
}

static ir_value *loss_l1(ir_builder *b, ir_value *x, ir_value *label)
{
    return mean_all(b, ir_unary(b, IR_OP_abs, ir_binary(b, IR_OP_sub, x, label)));
}

static ir_value *loss_bce_logits(ir_builder *b, ir_value *x, ir_value *label)
{
    return mean_all(b, ir_binary(b, IR_OP_sub, ir_unary(b, IR_OP_softplus, x), ir_binary(b, IR_OP_mul, x, label)));
}

/* Clamps the operand of log to the smallest normal number, which keeps the gradient at zero finite. */
static ir_value *bounded_log(ir_builder *b, ir_value *x)
{
    return ir_unary(b, IR_OP_log, ir_done(b, ir_new(b, IR_OP_clip, 2, x, ir_scalar(b, x->type.dtype, 0x1p-126))));
}

static ir_value *loss_bce(ir_builder *b, ir_value *p, ir_value *label)
{
    ir_value *one = ir_scalar(b, p->type.dtype, 1);
    ir_value *of_ones = ir_binary(b, IR_OP_mul, label, bounded_log(b, p));
    ir_value *rest = ir_binary(b, IR_OP_sub, one, label);
    ir_value *of_zeros = ir_binary(b, IR_OP_mul, rest, bounded_log(b, ir_binary(b, IR_OP_sub, one, p)));
    return mean_all(b, ir_unary(b, IR_OP_neg, ir_binary(b, IR_OP_add, of_ones, of_zeros)));
}

typedef struct loss_kind {
    const char *name;
    bool classes; /* labels are class indices along axis 1 */
    loss_rule *make;
    ir_op normalisation;  /* if it produces the output, of_scores on its operand replaces `make` */
    int axis;             /* attribute of `normalisation`: must be the class axis; -1: elementwise */
    loss_rule *of_scores; /* NULL: no replacement */
} loss_kind;

static const loss_kind loss_kinds[] = {
    {"ce", true, loss_ce, IR_OP_softmax, IR_ATTR(softmax, axis), loss_ce},
    {"nll", true, loss_nll, IR_OP_log_softmax, IR_ATTR(log_softmax, axis), loss_ce},
    {"mse", false, loss_mse, IR_OP_COUNT, -1, NULL},
    {"l1", false, loss_l1, IR_OP_COUNT, -1, NULL},
    {"bce_logits", false, loss_bce_logits, IR_OP_sigmoid, -1, loss_bce_logits},
    {"bce", false, loss_bce, IR_OP_sigmoid, -1, loss_bce_logits},
};

/* A parsed "KIND[:OUTPUT[,LABEL]]". */
typedef struct loss_spec {
    const loss_kind *kind;
    const char *output, *label;
} loss_spec;

static ampc_status parse_spec(ir_module *m, const char *text, diag *d, loss_spec *spec)
{
    char *kind = arena_strdup(m->arena, text), *output = strchr(kind, ':'), *label = NULL;
    if (output) *output++ = '\0';
    if (output && (label = strrchr(output, ','))) *label++ = '\0';
    *spec = (loss_spec){.output = output && *output ? output : NULL,
                        .label = label && *label ? label : ir_input_words[IR_INPUT_label]};
    for (size_t i = 0; i < sizeof loss_kinds / sizeof *loss_kinds; i++)
        if (strcmp(loss_kinds[i].name, kind) == 0) spec->kind = &loss_kinds[i];
    if (spec->kind) return AMPC_OK;
    if (strcmp(kind, "huber") == 0)
        return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "loss '%s' is not supported yet", kind);
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown loss '%s': expected ce, nll, mse, l1, bce or bce_logits",
                      kind);
}

static ir_node *first_float_output(const ir_graph *g)
{
    ir_node *n = ir_first_output(g);
    while (n && !ir_dtype_is_float(ir_in(n, 0)->type.dtype)) n = ir_next_output(n);
    return n;
}

static ir_type label_type(const loss_kind *kind, const ir_type *x)
{
    ir_type t = *x;
    if (!kind->classes) return t;
    t.dtype = IR_i64;
    t.rank--;
    for (int i = 1; i < t.rank; i++) t.dims[i] = x->dims[i + 1];
    return t;
}

/* ---- outputs that the model has normalised ----------------------------------------------------- */

/* The node with that op that defines the value, looking through casts, if it normalises along the class axis, which is
 * its attribute `axis` (-1: it is elementwise). */
static const ir_node *normalised_by(const ir_value *x, ir_op op, int axis)
{
    const ir_node *def = ir_def(x);
    while (def && ir_op_has(def->op, IR_CONVERTS) && ir_dtype_is_float(ir_in(def, 0)->type.dtype))
        def = ir_def(ir_in(def, 0));
    if (!def || def->op != op) return NULL;
    if (axis < 0) return def;
    int64_t at = def->attr[axis].i;
    return (at < 0 ? at + ir_in(def, 0)->type.rank : at) == 1 ? def : NULL;
}

/* Reported once, for @train. It is a note if the loss changes (one normalisation instead of two), and a remark if only
 * its form does. */
static void report_operand(const ir_graph *g, const loss_spec *spec, const ir_node *n, const char *output, diag *d)
{
    static const char text[] =
        "loss %s includes this normalisation: it reads the operand of this node instead of output '%s'";
    if (g->role != IR_GRAPH_train) return;
    if (spec->kind->make == spec->kind->of_scores) diag_note(d, ir_diag_loc(n), text, spec->kind->name, output);
    else diag_remark(d, ir_diag_loc(n), text, spec->kind->name, output);
}

/* Warns if the loss expects logarithms, but the output has probabilities. */
static ampc_status check_logarithms(const ir_graph *g, const loss_spec *spec, const ir_value *x, const char *output,
                                    diag *d)
{
    const ir_node *n = spec->kind->make == loss_nll ? normalised_by(x, IR_OP_softmax, IR_ATTR(softmax, axis)) : NULL;
    if (!n || g->role != IR_GRAPH_train) return AMPC_OK;
    return diag_warning(d, ir_diag_loc(n), "output '%s' has probabilities, but loss nll needs their logarithms: use ce",
                        output);
}

/* Selects the loss rule. If the model has normalised the output, *x becomes the operand of that normalisation. */
static loss_rule *choose_rule(const ir_graph *g, const loss_spec *spec, const char *output, ir_value **x, diag *d)
{
    const loss_kind *kind = spec->kind;
    const ir_node *normalisation = kind->of_scores ? normalised_by(*x, kind->normalisation, kind->axis) : NULL;
    if (!normalisation) return kind->make;
    report_operand(g, spec, normalisation, output, d);
    *x = ir_in(normalisation, 0);
    return kind->of_scores;
}

static ampc_status append(ir_graph *g, const loss_spec *spec, diag *d)
{
    ir_node *out = spec->output ? ir_graph_find_output(g, spec->output) : first_float_output(g);
    if (!out)
        return spec->output ? diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the model has no output '%s'", spec->output)
                            : diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the model has no float output for the loss");
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    ir_value *x = ir_in(out, 0);
    const char *output = ir_output_name(out);
    if (spec->kind->classes && x->type.rank < 2)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "loss %s needs a class axis 1, output '%s' has rank %d",
                          spec->kind->name, output, x->type.rank);
    TRY(check_logarithms(g, spec, x, output, d));
    loss_rule *make = choose_rule(g, spec, output, &x, d);
    if (ir_dtype_is_low(x->type.dtype)) x = ir_cast(&b, x, IR_f32);
    if (!x) return diag_status(d);
    ir_type type = label_type(spec->kind, &x->type);
    ir_value *label = ir_graph_find_input(g, spec->label);
    if (!label) label = ir_graph_input(g, spec->label, &type);
    else if (!ir_type_equal(&label->type, &type))
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "input '%s' is %s, the loss needs labels of type %s",
                          spec->label, ir_type_print(g->module, &label->type, g->module->arena),
                          ir_type_print(g->module, &type, g->module->arena));
    ir_value *loss = make(&b, x, label);
    if (!loss) return diag_status(d);
    const ir_node *made = ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    ir_value_rename(loss, ir_output_name(made));
    label->role = IR_INPUT_label;
    out->role = IR_OUTPUT_logits;
    ir_meta_set(g->module, "loss_kind", spec->kind->name);
    return diag_status(d);
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
        ir_value *v = ir_in_named(n, "label");
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

static ampc_status use_output_as_loss(ir_graph *g, const char *name, diag *d)
{
    ir_node *n = mark_loss(g, name);
    if (n) return make_scalar(n, d);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the model has no output '%s'", name);
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
    bool specified = o->loss || o->loss_output;
    *found = forward && !specified && !o->plain_runtime ? find_loss(forward) : NULL;
    return specified || *found || (forward && ir_output_by_role(forward, IR_OUTPUT_loss));
}

ampc_status pass_loss(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    diag *d = c->diag;
    ir_graph *eval = ir_graph_by_role(m, IR_GRAPH_eval), *train = ir_graph_by_role(m, IR_GRAPH_train);
    const ir_graph *infer = ir_graph_by_role(m, IR_GRAPH_infer);
    if (!eval || !train) return AMPC_OK;
    if (o->loss && o->loss_output)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss and --loss-output exclude each other");
    if (o->loss) {
        loss_spec spec;
        TRY(parse_spec(m, o->loss, d, &spec));
        TRY(append(eval, &spec, d));
        return append(train, &spec, d);
    }
    TRY(use_output_as_loss(eval, o->loss_output, d));
    TRY(use_output_as_loss(train, o->loss_output, d));
    if (infer) mark_loss(infer, o->loss_output);
    ir_meta_set(m, "loss_kind", "graph");
    return AMPC_OK;
}
