/* optimizer.c - appends the update phase to @train_step and @apply.
 *
 * One optimizer node per parameter consumes its gradient, reads the f32 master and writes the new one. If @found_inf is
 * set it returns the old values, so skipping a step needs no control flow. Other states stored so far
 * (BatchNormalization statistics) and the count of good steps are updated through select %found_inf; the random counter
 * always advances. Masters are f32 at every level. */
#include "passes/train/optimizer_options.h"

#include <string.h>

/* ---- building -------------------------------------------------------------------------------- */

typedef struct update {
    ir_graph *graph;
    ir_builder b;
    const optimizer *opt;
    const compile_options *options;
    ir_value *lr, *step, *skip; /* skip is NULL if every step is accepted */
} update;

/* The learning rate of a parameter, in its type. */
static ir_value *rate_of(update *u, const optimizer_group *group, ir_dtype type)
{
    ir_value *lr = u->lr;
    if (group->lr_factor != 1) lr = ir_binary(&u->b, IR_OP_mul, lr, ir_scalar(&u->b, IR_f32, group->lr_factor));
    return type == IR_f64 ? ir_cast(&u->b, lr, type) : lr;
}

static void set_attributes(const update *u, ir_node *n, const optimizer_group *group)
{
    const ir_op_info *info = ir_op_get(n->op);
    for (int i = 0; i < info->n_attr; i++) {
        const bool decay = strcmp(info->attr[i].name, "weight_decay") == 0;
        if (info->attr[i].kind == IR_SLOT_DOUBLE) ir_set_float(n, i, decay ? group->weight_decay : u->opt->attr[i]);
        else ir_set_int(n, i, (int64_t)u->opt->attr[i]);
    }
}

static double weight_decay_of(const optimizer *opt)
{
    const ir_op_info *info = ir_op_get(opt->op);
    for (int i = 0; i < info->n_attr; i++)
        if (strcmp(info->attr[i].name, "weight_decay") == 0) return opt->attr[i];
    return 0;
}

static void store_new(update *u, ir_storage *s, ir_value *v)
{
    ir_value_rename(v, arena_printf(u->graph->module->arena, "%s.new", s->name));
    ir_store(&u->b, s, v);
}

/* The graphs that evaluate read the moving average, which starts at the parameter's initial value. */
static void evaluate_average(ir_module *m, ir_storage *param, ir_storage *average)
{
    average->data = param->data;
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        if (g->role == IR_GRAPH_infer || g->role == IR_GRAPH_eval)
            ir_value_replace(ir_graph_storage(g, param), ir_graph_storage(g, average));
    }
}

static void average_parameter(update *u, ir_storage *param, ir_value *fresh)
{
    ir_storage *s = pass_state_of(u->graph->module, IR_STATE_average, param);
    if (u->graph->role == IR_GRAPH_train_step) evaluate_average(u->graph->module, param, s);
    ir_node *node = ir_new(&u->b, IR_OP_average, 3, ir_graph_storage(u->graph, s), fresh, u->skip);
    if (node) ir_set_float(node, IR_ATTR(average, decay), u->options->ema);
    ir_value *average = ir_done(&u->b, node);
    if (average) store_new(u, s, average);
}

/* What the ops of one parameter read. */
typedef struct operands {
    ir_storage *state[OPTIMIZER_STATES]; /* the parameter, then its slots */
    ir_value *gradient, *parts, *ratio;
    ir_value *fresh; /* the new parameter */
    optimizer_group group;
} operands;

static ir_value *operand(update *u, const operands *x, ir_op op, int i)
{
    if (i < ir_op_get(op)->n_out) return ir_graph_storage(u->graph, x->state[i]);
    if (i == ir_op_get(op)->n_out) return x->gradient;
    if (i == ir_op_find_in(op, "ratio")) return x->ratio;
    if (i == ir_op_find_in(op, ir_state_words[IR_STATE_step])) return u->step;
    if (i == ir_op_find_in(op, ir_state_words[IR_STATE_lr])) return rate_of(u, &x->group, x->state[0]->type.dtype);
    return u->skip;
}

/* Operands and results of an optimizer begin with the parameter and its slots; the gradient follows. */
static ir_node *apply_op(update *u, ir_op op, const operands *x)
{
    const ir_op_info *info = ir_op_get(op);
    ir_value *in[OPTIMIZER_STATES + 5];
    for (int i = 0; i < info->n_in; i++) in[i] = operand(u, x, op, i);
    ir_node *node = ir_new_array(&u->b, op, info->n_in, in, 0);
    if (node && op == u->opt->op) set_attributes(u, node, &x->group);
    return ir_done_all(&u->b, node) ? node : NULL;
}

/* The ratios of the norms of the parameters and of their gradients, or what replaces those. Equal ops follow each
 * other, here and below, so that a device can run them in one launch. */
static bool make_ratios(update *u, operands *all, int n)
{
    for (operands *x = all; x < all + n; x++)
        x->parts = ir_done(&u->b,
                           ir_new(&u->b, IR_OP_norm_parts, 2, ir_graph_storage(u->graph, x->state[0]), x->gradient));
    for (operands *x = all; x < all + n; x++) {
        ir_node *node = x->parts ? ir_new(&u->b, IR_OP_trust_ratio, 1, x->parts) : NULL;
        if (!node) return false;
        ir_set_float(node, IR_ATTR(trust_ratio, coefficient), u->opt->trust[IR_ATTR(trust_ratio, coefficient)]);
        ir_set_float(node, IR_ATTR(trust_ratio, eps), u->opt->trust[IR_ATTR(trust_ratio, eps)]);
        if (u->opt->finish == IR_OP_COUNT)
            ir_set_float(node, IR_ATTR(trust_ratio, weight_decay), x->group.weight_decay);
        x->ratio = ir_done(&u->b, node);
    }
    return true;
}

static operands begin_update(update *u, ir_storage *param, ir_value *gradient)
{
    const ir_op_info *info = ir_op_get(u->opt->op);
    arena *a = u->graph->module->arena;
    operands x = {.state = {param}, .group = optimizer_group_of(param, u->options, weight_decay_of(u->opt), a)};
    for (int i = 1; i < info->n_out; i++) x.state[i] = pass_slot(u->graph->module, param, info->in[i].name);
    x.gradient = ir_cast(&u->b, gradient, param->type.dtype); /* f32 or f64 */
    return x;
}

/* Applies the optimizer's op. Result 0 becomes the parameter, or the gradient of the op that finishes the update. */
static bool apply_optimizer(update *u, operands *x)
{
    ir_node *node = apply_op(u, u->opt->op, x);
    if (!node) return false;
    if (u->opt->finish == IR_OP_COUNT) store_new(u, x->state[0], x->fresh = node->out[0]);
    else x->gradient = node->out[0];
    for (int i = 1; i < node->n_out; i++) store_new(u, x->state[i], node->out[i]);
    return true;
}

static bool finish_update(update *u, operands *x)
{
    ir_node *node = apply_op(u, u->opt->finish, x);
    if (node) store_new(u, x->state[0], x->fresh = node->out[0]);
    return node != NULL;
}

static bool update_parameters(update *u, operands *all, int n)
{
    const bool finishes = u->opt->finish != IR_OP_COUNT;
    if (ir_op_find_in(u->opt->op, "ratio") >= 0 && !make_ratios(u, all, n)) return false;
    for (int i = 0; i < n; i++)
        if (!apply_optimizer(u, &all[i])) return false;
    if (finishes && !make_ratios(u, all, n)) return false;
    for (int i = 0; finishes && i < n; i++)
        if (!finish_update(u, &all[i])) return false;
    for (int i = 0; u->options->ema > 0 && i < n; i++) average_parameter(u, all[i].state[0], all[i].fresh);
    return true;
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
        if (selected) {
            ir_value_rename(selected, arena_printf(u->graph->module->arena, "%s.new", s->name));
            ir_store(&u->b, s, selected);
        }
        ir_node_remove(n);
    }
}

static void advance_counters(update *u, ir_storage *step)
{
    ir_module *m = u->graph->module;
    ir_value *next = ir_binary(&u->b, IR_OP_add, u->step, ir_scalar(&u->b, IR_i64, 1));
    if (u->skip) next = ir_done(&u->b, ir_new(&u->b, IR_OP_select, 3, u->skip, u->step, next));
    if (next) ir_value_rename(next, arena_printf(m->arena, "%s.new", step->name));
    if (next) ir_store(&u->b, step, next);
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

static ampc_status update_graph(ir_graph *g, const optimizer *opt, ir_storage *step, ir_storage *lr, compile *c)
{
    ir_value **gradients;
    ir_storage **params;
    int n = remove_gradients(g, &gradients, &params);
    const ir_node *flag = ir_output_by_role(g, IR_OUTPUT_found_inf);
    update u = {.graph = g, .b = pass_builder(g, IR_UPDATE, c->diag), .opt = opt, .options = c->options};
    u.lr = ir_graph_storage(g, lr);
    u.step = ir_graph_storage(g, step);
    u.skip = flag ? ir_in(flag, 0) : NULL;
    guard_stores(&u);
    if (n && !ir_output_by_role(g, IR_OUTPUT_grad_norm))
        ir_output_as(&u.b, IR_OUTPUT_grad_norm, NULL, pass_gradient_norm(&u.b, gradients, n));
    operands *all = arena_array(g->module->arena, (size_t)n, sizeof *all);
    for (int i = 0; i < n; i++) all[i] = begin_update(&u, params[i], gradients[i]);
    if (!update_parameters(&u, all, n)) return diag_status(c->diag);
    advance_counters(&u, step);
    return diag_status(c->diag);
}

ampc_status pass_optimizer(ir_module *m, compile *c)
{
    static const ir_graph_role roles[] = {IR_GRAPH_train_step, IR_GRAPH_apply};
    optimizer opt = {0};
    if (!ir_graph_by_role(m, IR_GRAPH_train_step)) return AMPC_OK;
    TRY(optimizer_parse(c->options, m->arena, c->diag, &opt));
    ir_storage *step = pass_state(m, IR_STATE_step, 0), *lr = pass_state(m, IR_STATE_lr, opt.lr);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        ir_graph *g = ir_graph_by_role(m, roles[i]);
        if (g) TRY(update_graph(g, &opt, step, lr, c));
    }
    return diag_status(c->diag);
}
