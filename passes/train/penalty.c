/* penalty.c - adds a penalty of the loss's gradient to the loss of @train (--grad-penalty).
 *
 *   L2:input[=GLOB],WEIGHT[,target=T]     of the gradient with respect to the float inputs, without labels, that match
 *   L2:params[=GLOB],WEIGHT[,target=T]    ... with respect to the trained parameters that match
 *
 * The penalty is WEIGHT * n, or WEIGHT * (n - T)^2, where n is the norm of all elements of these gradients together.
 *
 * The walk of autodiff computes the gradients, here as nodes of the forward phase without an ONNX origin, so that mixed
 * precision and autodiff treat them like any other part of the loss. It is seeded with the loss scale, by which the
 * norm is divided: in fp16, unscaled gradients would vanish. The result is the penalty of the unscaled loss.
 *
 *   before  output "loss" = %l as loss       after  %g.w = ...
 *                                                   %global_norm = global_norm %g.w, ..
 *                                                   %penalty = mul (%global_norm / @loss_scale), WEIGHT
 *                                                   %penalized = add %l, %penalty
 *                                                   output "penalty" = %penalty as penalty
 *                                                   output "loss" = %penalized as loss */
#include "ir/ops/settings.h"
#include "passes/pass.h"
#include "passes/train/grad.h"
#include "passes/train/trainers.h"

#include <math.h>
#include <string.h>

typedef struct penalty_spec {
    bool params; /* of the gradient by parameters; else by inputs */
    const char *glob;
    double weight, target; /* target < 0: none */
} penalty_spec;

/* ---- the option ---------------------------------------------------------------------------------- */

static ampc_status refuse_form(diag *d)
{
    return diag_error(d, AMPC_USAGE, DIAG_OPTION(grad_penalty),
                      "expected L2:input[=NAME],WEIGHT[,target=NORM] or "
                      "L2:params[=GLOB],WEIGHT[,target=NORM]");
}

static const setting keys[] = {
    SETTING(penalty_spec, "target", target, REAL, "penalize the square of the difference of the norm from X",
            LIMITS_PENALTY_TARGET),
};

const setting *pass_penalty_key(int index) { return index < (int)(sizeof keys / sizeof *keys) ? &keys[index] : NULL; }

static ampc_status parse_spec(char *text, diag *d, penalty_spec *s)
{
    static const setting weight = SETTING(penalty_spec, "the weight", weight, REAL, NULL, LIMITS_PENALTY);
    settings read = {.option = OPTION_grad_penalty, .rows = keys, .count = sizeof keys / sizeof *keys};
    *s = (penalty_spec){.target = -1};
    if (strncmp(text, "L2:", 3) != 0) return refuse_form(d);
    text += 3;
    char *of = strsep(&text, ","), *number = strsep(&text, ",");
    const char *what = strsep(&of, "=");
    s->glob = of;
    s->params = strcmp(what, "params") == 0;
    if ((!s->params && strcmp(what, "input") != 0) || (s->glob && !*s->glob)) return refuse_form(d);
    if (!number || !*number || strchr(number, '=')) return refuse_form(d);
    TRY(settings_value(&read, &weight, number, &s->weight, d));
    return settings_read(&read, text, s, d);
}

/* ---- the values ---------------------------------------------------------------------------------- */

/* Several inputs need a name, because the loss may depend on a mask as well as on data. */
static ampc_status check_number(const penalty_spec *s, const grad_values *found, diag *d)
{
    if (!found->count && s->glob)
        return diag_error(d, AMPC_REJECTED, DIAG_OPTION(grad_penalty), "no %s is named '%s'",
                          s->params ? "trained parameter" : "float input", s->glob);
    if (!found->count)
        return diag_error(d, AMPC_REJECTED, DIAG_OPTION(grad_penalty), "the model has no %s",
                          s->params ? "trained parameter" : "float input");
    if (s->params || s->glob || found->count == 1) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_OPTION(grad_penalty),
                      "the model has several float inputs: name one, as in L2:input=%s (a glob such as "
                      "input=* names several)",
                      found->items[0]->name);
}

static ampc_status choose_values(ir_graph *g, const penalty_spec *s, arena *a, diag *d, grad_values *out)
{
    grad_values all = {0};
    if (s->params) grad_trained_values(g, a, &all);
    else grad_input_values(g, a, &all);
    for (size_t i = 0; i < all.count; i++)
        if (!s->glob || pass_match(&(pass_strings){&s->glob, 1}, all.items[i]->name)) vec_push(a, out, all.items[i]);
    return check_number(s, out, d);
}

/* ---- the penalty --------------------------------------------------------------------------------- */

/* The norm of the gradients that are not zero, of which there is at least one, divided by the scale. */
static ir_value *norm_of(ir_builder *b, const grad_walk *w, ir_value *scale, arena *a)
{
    ir_value **in = arena_array(a, (size_t)w->count, sizeof *in);
    ir_dtype type = IR_f32;
    int n = 0;
    for (int i = 0; i < w->count; i++)
        if (w->gradients[i] && w->gradients[i]->type.dtype == IR_f64) type = IR_f64;
    for (int i = 0; i < w->count; i++)
        if (w->gradients[i]) in[n++] = ir_cast(b, w->gradients[i], type);
    ir_value *norm = ir_done(b, ir_new_array(b, IR_OP_global_norm, n, in, 0));
    return norm && scale ? ir_binary(b, IR_OP_div, norm, ir_cast(b, scale, norm->type.dtype)) : norm;
}

static ir_value *penalty_of(ir_builder *b, const penalty_spec *s, ir_value *norm)
{
    if (norm && s->target >= 0) {
        ir_value *excess = ir_binary(b, IR_OP_sub, norm, ir_scalar_like(b, norm, s->target));
        norm = ir_binary(b, IR_OP_mul, excess, excess);
    }
    ir_value *penalty = norm ? ir_binary(b, IR_OP_mul, norm, ir_scalar_like(b, norm, s->weight)) : NULL;
    if (penalty) ir_value_rename(penalty, ir_output_words[IR_OUTPUT_penalty]);
    return penalty;
}

/* Replaces the loss by its sum with the penalty. */
static void add_to_loss(ir_builder *b, ir_node *loss, ir_value *penalty)
{
    ir_value *l = ir_in(loss, 0);
    ir_value *sum = penalty ? ir_binary(b, IR_OP_add, l, ir_cast(b, penalty, l->type.dtype)) : NULL;
    if (!sum) return;
    ir_value_rename(sum, "penalized");
    ir_output_as(b, IR_OUTPUT_penalty, NULL, penalty);
    ir_output_again(b, loss, sum);
}

/* The nodes lose the origin that they have from the nodes whose gradients they compute: the operator lists are about
 * the operators of the model. */
static void forget_origins(ir_graph *g, const ir_node *last)
{
    for (ir_node *n = last ? last->next : g->first; n && n->phase == IR_FORWARD; n = n->next)
        n->loc = (ir_loc){.file = n->loc.file};
}

static ampc_status differentiate_loss(ir_graph *g, ir_node *loss, ir_value *scale, grad_walk *w, diag *d)
{
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    ir_value *l = ir_in(loss, 0);
    w->seed = scale ? ir_cast(&b, scale, l->type.dtype == IR_f64 ? IR_f64 : IR_f32) : ir_scalar_like(&b, l, 1);
    TRY(grad_walk_run(w, d));
    bool any = false;
    for (int i = 0; i < w->count; i++) any |= w->gradients[i] != NULL;
    if (any) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_OPTION(grad_penalty), "the gradient of the loss with respect to '%s' is 0",
                      w->wrt[0]->name);
}

static ampc_status penalize(ir_graph *g, const penalty_spec *s, const scaling_rules *scaling, arena *a, diag *d)
{
    ir_node *loss = ir_output_by_role(g, IR_OUTPUT_loss);
    if (!loss) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "graph @%s has no loss to penalize", g->name);
    lift_params(g);
    grad_values wrt = {0};
    TRY(choose_values(g, s, a, d, &wrt));
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    const ir_node *last = b.before ? b.before->prev : g->last;
    if (last == loss) last = loss->prev; /* the statement is replaced */
    ir_value *of = ir_in(loss, 0);
    grad_walk w = {.graph = g, .phase = IR_FORWARD, .prefix = "g.", .of = &of, .of_count = 1, .wrt = wrt.items};
    w.second = true;
    w.count = (int)wrt.count;
    w.gradients = arena_array(a, wrt.count + 1, sizeof *w.gradients);
    ir_value *scale = NULL;
    if (scaling->on) scale = ir_graph_storage(g, pass_state(g->module, IR_STATE_loss_scale, scaling->init));
    TRY(differentiate_loss(g, loss, scale, &w, d));
    add_to_loss(&b, loss, penalty_of(&b, s, norm_of(&b, &w, scale, a)));
    TRY(diag_status(d));
    pass_remove_dead_after(g, last);
    TRY(grad_check_second(g, last ? last->next : g->first, d));
    forget_origins(g, last);
    return AMPC_OK;
}

ampc_status pass_penalty(ir_module *m, compile *c)
{
    const char *text = c->options->grad_penalty;
    ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train);
    penalty_spec spec;
    trainer_list trainers;
    if (!text) return AMPC_OK;
    if (!g) return diag_error(c->diag, AMPC_USAGE, DIAG_OPTION(grad_penalty), "the model has no loss");
    TRY(trainers_find(m, c->options, c->diag, &trainers));
    if (trainers.items[0].losses.count)
        return diag_error(c->diag, AMPC_UNSUPPORTED,
                          diag_about(recipe_place(m, trainers.items[0].line), OPTION_grad_penalty),
                          "the losses of a recipe cannot have a penalty");
    TRY(parse_spec(arena_strdup(m->arena, text), c->diag, &spec));
    arena *scratch = pass_scratch_new(m);
    ampc_status status = penalize(g, &spec, &c->scaling, scratch, c->diag);
    arena_free(scratch);
    return status;
}
