/* optimizer.c - appends the update phase to @train_step and @apply.
 *
 * One optimizer node per parameter consumes its gradient, reads the f32 master and writes the new one. If @found_inf is
 * set it returns the old values, so skipping a step needs no control flow. Other states stored so far
 * (BatchNormalization statistics) and the count of good steps are updated through select %found_inf; the random counter
 * always advances. Masters are f32 at every level.
 *
 * Several optimizers (a recipe) share the counter of steps, the flag and the learning rate, which is that of the first
 * one: the others multiply it by the ratio of their initial rates, so that one schedule drives all. */
#include "passes/train/trainers.h"
#include "passes/train/update.h"

#include <math.h>

/* The graphs that evaluate read the moving average, which starts at the parameter's initial value. */
static void evaluate_average(ir_module *m, ir_storage *param, ir_storage *average)
{
    average->data = param->data;
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        if (g->role != IR_GRAPH_infer && g->role != IR_GRAPH_eval) continue;
        ir_value *by = ir_graph_storage(g, average);
        ir_value_replace(ir_graph_storage(g, param), by);
    }
}

static void average_parameter(update *u, ir_storage *param, ir_value *fresh)
{
    ir_storage *s = pass_state_of(u->graph->module, IR_STATE_average, param);
    if (u->graph->role == IR_GRAPH_train_step) evaluate_average(u->graph->module, param, s);
    ir_node *node = ir_new(&u->b, IR_OP_average, 3, ir_graph_storage(u->graph, s), fresh, u->skip);
    if (node) ir_set_float(node, IR_ATTR(average, decay), u->options->ema);
    ir_value *average = ir_done(&u->b, node);
    pass_store_new(&u->b, s, average);
}

static operands begin_update(update *u, const optimizer *opt, ir_storage *param, ir_value *gradient)
{
    operands x = {.opt = opt, .state = {param}};
    x.group = optimizer_group_of(param, u->options, u->graph->module->arena);
    if (opt->rest && !update_takes_muon(u, param, &x.group)) x.opt = opt->rest;
    if (isnan(x.group.weight_decay)) x.group.weight_decay = x.opt->weight_decay;
    const ir_op_info *info = ir_op_get(x.opt->op);
    for (int i = 1; i < info->n_out; i++)
        x.state[i] = pass_slot(u->graph->module, param, info->in[i].name, &param->type);
    x.gradient = ir_cast(&u->b, gradient, param->type.dtype); /* f32 or f64 */
    return x;
}

/* Applies the optimizer's op. Result 0 becomes the parameter, or the gradient of the op that finishes the update. */
static bool apply_optimizer(update *u, operands *x)
{
    ir_node *node = update_op(u, x->opt->op, x);
    if (!node) return false;
    if (x->opt->finish == IR_OP_COUNT) pass_store_new(&u->b, x->state[0], x->fresh = node->out[0]);
    else x->gradient = node->out[0];
    for (int i = 1; i < node->n_out; i++) pass_store_new(&u->b, x->state[i], node->out[i]);
    return true;
}

static bool finish_update(update *u, operands *x)
{
    ir_node *node = update_op(u, x->opt->finish, x);
    if (node) pass_store_new(&u->b, x->state[0], x->fresh = node->out[0]);
    return node != NULL;
}

static bool run_stage(update *u, const optimizer *opt, operands *all, int n)
{
    switch (opt->stage) {
    case OPTIMIZER_RATIOS: return update_ratios(u, all, n);
    case OPTIMIZER_ADAFACTOR: return update_adafactor(u, all, n);
    case OPTIMIZER_MUON: return update_muon(u, all, n);
    default: return true;
    }
}

static bool update_parameters(update *u, const optimizer *opt, operands *all, int n)
{
    const bool finishes = opt->finish != IR_OP_COUNT;
    if (!finishes && !run_stage(u, opt, all, n)) return false;
    for (int i = 0; i < n; i++)
        if (!apply_optimizer(u, &all[i])) return false;
    if (finishes && !run_stage(u, opt, all, n)) return false;
    for (int i = 0; finishes && i < n; i++)
        if (!finish_update(u, &all[i])) return false;
    for (int i = 0; u->options->ema > 0 && i < n; i++) average_parameter(u, all[i].state[0], all[i].fresh);
    return true;
}

/* Updates the parameters that the optimizer itself updates, then the rest. */
static bool update_all(update *u, const optimizer *opt, ir_storage **params, ir_value **gradients, int n)
{
    operands *all = arena_array(u->graph->module->arena, (size_t)n, sizeof *all);
    operands *rest = arena_array(u->graph->module->arena, (size_t)n, sizeof *rest);
    int n_own = 0, n_rest = 0;
    for (int i = 0; i < n; i++) {
        const operands x = begin_update(u, opt, params[i], gradients[i]);
        if (x.opt == opt) all[n_own++] = x;
        else rest[n_rest++] = x;
    }
    if (diag_status(u->b.diag) != AMPC_OK) return false;
    return update_parameters(u, opt, all, n_own) && (!n_rest || update_parameters(u, opt->rest, rest, n_rest));
}

/* Replaces store @s, %v by store @s, select(%skip, @s, %v) at the end of the graph. */
static void guard_stores(update *u)
{
    if (!u->skip) return;
    const uint32_t old = u->graph->node_ids;
    for (ir_node *n = ir_first_store(u->graph), *next; n && n->id < old; n = next) {
        next = ir_next_store(n);
        ir_storage *s = ir_in(n, 0)->storage;
        if (ir_state_roles[s->role].moves) continue;
        ir_value *fresh = ir_in(n, 1);
        ir_value *selected = ir_done(&u->b, ir_new(&u->b, IR_OP_select, 3, u->skip, ir_in(n, 0), fresh));
        pass_store_new(&u->b, s, selected);
        ir_node_remove(n);
    }
}

static void advance_counters(update *u, ir_storage *step)
{
    ir_value *next = ir_binary(&u->b, IR_OP_add, u->step, ir_scalar(&u->b, IR_i64, 1));
    if (u->skip) next = ir_done(&u->b, ir_new(&u->b, IR_OP_select, 3, u->skip, u->step, next));
    pass_store_new(&u->b, step, next);
    if (u->graph->role == IR_GRAPH_train_step) pass_advance_random(&u->b);
}

/* Removes the gradient outputs from the graph. Returns their number, the gradients and their parameters. */
static int remove_gradients(ir_graph *g, ir_value ***gradients, ir_storage ***params)
{
    arena *a = g->module->arena;
    VEC(ir_value *) values = {0};
    VEC(ir_storage *) owners = {0};
    for (ir_node *n = ir_first_output(g), *next; n; n = next) {
        next = ir_next_output(n);
        if (n->role != IR_OUTPUT_gradient) continue;
        vec_push(a, &values, ir_in(n, 0));
        vec_push(a, &owners, n->of->storage);
        ir_node_remove(n);
    }
    *gradients = values.items;
    *params = owners.items;
    return (int)values.count;
}

/* The optimizers, in the order of the recipe. */
typedef struct optimizers {
    trainer_list trainers;
    optimizer *items;
} optimizers;

/* Updates the parameters that optimizer k owns. */
static bool run_optimizer(update *u, const optimizers *o, int k, ir_storage **params, ir_value **gradients, int n)
{
    arena *a = u->graph->module->arena;
    ir_storage **own = arena_array(a, (size_t)n, sizeof *own);
    ir_value **d = arena_array(a, (size_t)n, sizeof *d);
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (trainers_owner(&o->trainers, params[i]) != k) continue;
        own[count] = params[i];
        d[count++] = gradients[i];
    }
    u->lr_factor = k ? o->items[k].lr / o->items[0].lr : 1;
    return update_all(u, &o->items[k], own, d, count);
}

static ampc_status update_graph(ir_graph *g, const optimizers *o, ir_storage *step, ir_storage *lr, compile *c)
{
    ir_value **gradients;
    ir_storage **params;
    int n = remove_gradients(g, &gradients, &params);
    const ir_node *flag = ir_output_by_role(g, IR_OUTPUT_found_inf);
    update u = {.graph = g, .b = pass_builder(g, IR_UPDATE, c->diag), .options = c->options};
    u.network = ir_graph_by_role(g->module, IR_GRAPH_train_step);
    u.lr = ir_graph_storage(g, lr);
    u.step = ir_graph_storage(g, step);
    u.skip = flag ? ir_in(flag, 0) : NULL;
    guard_stores(&u);
    if (n && !ir_output_by_role(g, IR_OUTPUT_grad_norm))
        ir_output_as(&u.b, IR_OUTPUT_grad_norm, NULL, pass_gradient_norm(&u.b, gradients, n));
    for (size_t k = 0; k < o->trainers.count; k++)
        if (!run_optimizer(&u, o, (int)k, params, gradients, n)) return diag_status(c->diag);
    advance_counters(&u, step);
    return diag_status(c->diag);
}

static ampc_status parse_all(const ir_module *m, const compile *c, optimizers *o)
{
    TRY(trainers_find(m, c->options, c->diag, &o->trainers));
    o->items = arena_array(m->arena, o->trainers.count, sizeof *o->items);
    for (size_t k = 0; k < o->trainers.count; k++) {
        const ir_trainer *t = &o->trainers.items[k];
        if (optimizer_parse(t->optimizer, m->arena, c->diag, &o->items[k]) != AMPC_OK) {
            if (t->line) diag_note(c->diag, recipe_place(m, t->line), "this is the optimizer");
            return diag_status(c->diag);
        }
    }
    if (o->trainers.count > 1 && !(o->items[0].lr > 0))
        return diag_error(c->diag, AMPC_REJECTED, recipe_place(m, o->trainers.items[0].line),
                          "the learning rate of the first optimizer is 0, and those of the others are ratios to it");
    return AMPC_OK;
}

/* A step without parameters has neither a learning rate nor anything to write. It is allowed, for the gradients of
 * inputs, unless an optimizer is asked for. */
static ampc_status check_trained(const ir_module *m, const compile *c)
{
    int frozen = 0;
    for (size_t i = 0; i < m->storage.count; i++) {
        if (m->storage.items[i]->kind != IR_PARAM) continue;
        if (!m->storage.items[i]->frozen) return AMPC_OK;
        frozen++;
    }
    const char *why = frozen ? "every parameter is frozen" : "the model has no parameters";
    const diag_loc loc = DIAG_FILE(ir_module_source(m));
    if (c->options->optimizer) return diag_error(c->diag, AMPC_REJECTED, loc, "there is nothing to train: %s", why);
    diag_warning(c->diag, loc, "there is nothing to train: %s; @grad has the gradients of inputs only", why);
    return AMPC_OK;
}

ampc_status pass_optimizer(ir_module *m, compile *c)
{
    static const ir_graph_role roles[] = {IR_GRAPH_train_step, IR_GRAPH_apply};
    optimizers all = {0};
    if (!ir_graph_by_role(m, IR_GRAPH_train_step)) return AMPC_OK;
    TRY(check_trained(m, c));
    TRY(parse_all(m, c, &all));
    ir_storage *step = pass_state(m, IR_STATE_step, 0), *lr = pass_state(m, IR_STATE_lr, all.items[0].lr);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        ir_graph *g = ir_graph_by_role(m, roles[i]);
        if (g) TRY(update_graph(g, &all, step, lr, c));
    }
    return diag_status(c->diag);
}
