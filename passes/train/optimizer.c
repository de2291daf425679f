/* optimizer.c - appends the update phase to @train_step and @apply.
 *
 * One optimizer node per parameter consumes its gradient, reads the f32 master and writes the new one. If @found_inf is
 * set it returns the old values, so skipping a step needs no control flow. Other states stored so far
 * (BatchNormalization statistics) and the count of good steps are updated through select %found_inf; the random counter
 * always advances. Masters are f32 at every level. */
#include "ir/text.h"
#include "passes/pass.h"

#include <math.h>
#include <string.h>

/* The optimizers and the names of their options on the command line. */
typedef struct optimizer_kind {
    const char *name;
    ir_op op;
    double lr;
    int slots; /* f32 state tensors per parameter */
    const char *slot[2];
    bool has_step;         /* reads @step, for bias correction */
    const char *option[6]; /* by attribute slot, a key of option_limits; NULL: not settable */
    struct {
        int attr;
        double value;
    } set[2]; /* attributes that the name implies; terminated by attr -1 */
} optimizer_kind;

/* clang-format off */
static const optimizer_kind optimizer_kinds[] = {
    {"sgd", IR_OP_sgd, 0.01, 0, {NULL}, false, {"weight_decay"}, {{-1, 0}}},
    {"momentum", IR_OP_momentum, 0.01, 1, {"velocity"}, false, {"momentum", NULL, "weight_decay"}, {{-1, 0}}},
    {"nesterov", IR_OP_momentum, 0.01, 1, {"velocity"}, false, {"momentum", NULL, "weight_decay"},
     {{IR_ATTR(momentum, nesterov), 1}, {-1, 0}}},
    {"adam", IR_OP_adamw, 1e-3, 2, {"m", "v"}, true, {"beta1", "beta2", "eps", "weight_decay", NULL},
     {{IR_ATTR(adamw, weight_decay), 0}, {IR_ATTR(adamw, decoupled), 0}}},
    {"adamw", IR_OP_adamw, 1e-3, 2, {"m", "v"}, true, {"beta1", "beta2", "eps", "weight_decay", NULL}, {{-1, 0}}},
};
/* clang-format on */

typedef struct optimizer {
    const optimizer_kind *kind;
    double lr;
    double attr[6]; /* by attribute slot of the op */
} optimizer;

static void set_defaults(optimizer *opt)
{
    const ir_op_info *info = ir_op_get(opt->kind->op);
    opt->lr = opt->kind->lr;
    for (int i = 0; i < info->n_attr; i++)
        opt->attr[i] = info->attr[i].kind == IR_SLOT_DOUBLE ? info->attr[i].initial.f : (double)info->attr[i].initial.i;
    for (int i = 0; i < 2 && opt->kind->set[i].attr >= 0; i++)
        if (opt->kind->set[i].attr < info->n_attr) opt->attr[opt->kind->set[i].attr] = opt->kind->set[i].value;
}

static const optimizer_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof optimizer_kinds / sizeof *optimizer_kinds; i++)
        if (strcmp(optimizer_kinds[i].name, name) == 0) return &optimizer_kinds[i];
    return NULL;
}

static const struct option_limit {
    const char *key;
    double low, high;
} option_limits[] = {
    {"lr", LIMITS_RATE},    {"momentum", LIMITS_MOMENTUM}, {"weight_decay", LIMITS_WEIGHT_DECAY},
    {"beta1", LIMITS_BETA}, {"beta2", LIMITS_BETA},        {"eps", LIMITS_EPS},
};

static ampc_status check_limits(const char *key, double v, diag *d)
{
    for (size_t i = 0; i < sizeof option_limits / sizeof *option_limits; i++) {
        const struct option_limit *l = &option_limits[i];
        if (strcmp(l->key, key) == 0 && !is_within(v, l->low, l->high))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s=%g is not within %g and %g", key, v, l->low,
                              l->high);
    }
    return AMPC_OK;
}

static ampc_status set_option(optimizer *opt, const char *key, const char *text, diag *d)
{
    double v;
    if (!text || !ir_float_parse(text, &v) || !isfinite(v))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: '%s' needs a number", key);
    TRY(check_limits(key, v, d));
    if (strcmp(key, "lr") == 0) {
        opt->lr = v;
        return AMPC_OK;
    }
    const ir_op_info *info = ir_op_get(opt->kind->op);
    for (int i = 0; i < info->n_attr; i++)
        if (opt->kind->option[i] && strcmp(opt->kind->option[i], key) == 0) {
            opt->attr[i] = v;
            return AMPC_OK;
        }
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s has no option '%s'", opt->kind->name, key);
}

static ampc_status parse_optimizer(ir_module *m, const char *text, diag *d, optimizer *opt)
{
    const char *key, *value;
    if (!text || !pass_next_option(&text, m->arena, &key, &value)) key = "sgd";
    opt->kind = find_kind(key);
    if (!opt->kind) {
        static const char *const later[] = {"adagrad", "rmsprop", "lamb", "lars"};
        for (size_t i = 0; i < sizeof later / sizeof *later; i++)
            if (strcmp(later[i], key) == 0)
                return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "optimizer '%s' is not supported yet", key);
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "unknown optimizer '%s': expected sgd, momentum, nesterov, adam or adamw", key);
    }
    set_defaults(opt);
    while (pass_next_option(&text, m->arena, &key, &value)) TRY(set_option(opt, key, value, d));
    return AMPC_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

typedef struct update {
    ir_graph *graph;
    ir_builder b;
    const optimizer *opt;
    ir_value *lr, *step, *skip; /* skip is NULL if every step is accepted */
} update;

static bool update_parameter(update *u, ir_storage *param, ir_value *gradient)
{
    ir_module *m = u->graph->module;
    const optimizer_kind *kind = u->opt->kind;
    ir_storage *state[3] = {param};
    ir_dtype type = param->type.dtype; /* f32 or f64 */
    ir_value *in[8];
    int n = 0;
    in[n++] = ir_graph_storage(u->graph, param);
    for (int i = 0; i < kind->slots; i++) {
        state[i + 1] = pass_slot(m, param, kind->slot[i]);
        in[n++] = ir_graph_storage(u->graph, state[i + 1]);
    }
    in[n++] = ir_cast(&u->b, gradient, type);
    if (kind->has_step) in[n++] = u->step;
    in[n++] = type == IR_f64 ? ir_cast(&u->b, u->lr, type) : u->lr;
    in[n++] = u->skip;
    ir_node *node = ir_new_array(&u->b, kind->op, n, in, 0);
    for (int i = 0; node && i < ir_op_get(kind->op)->n_attr; i++) {
        if (ir_op_get(kind->op)->attr[i].kind == IR_SLOT_DOUBLE) ir_set_float(node, i, u->opt->attr[i]);
        else ir_set_int(node, i, (int64_t)u->opt->attr[i]);
    }
    if (!ir_done_all(&u->b, node)) return false;
    for (int i = 0; i <= kind->slots; i++) {
        ir_value_rename(node->out[i], arena_printf(m->arena, "%s.new", state[i]->name));
        ir_store(&u->b, state[i], node->out[i]);
    }
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

static ampc_status update_graph(ir_graph *g, const optimizer *opt, ir_storage *step, ir_storage *lr, diag *d)
{
    ir_value **gradients;
    ir_storage **params;
    int n = remove_gradients(g, &gradients, &params);
    const ir_node *flag = ir_output_by_role(g, IR_OUTPUT_found_inf);
    update u = {.graph = g, .b = pass_builder(g, IR_UPDATE, d), .opt = opt};
    u.lr = ir_graph_storage(g, lr);
    u.step = ir_graph_storage(g, step);
    u.skip = flag ? ir_in(flag, 0) : NULL;
    guard_stores(&u);
    if (n && !ir_output_by_role(g, IR_OUTPUT_grad_norm))
        ir_output_as(&u.b, IR_OUTPUT_grad_norm, NULL, pass_gradient_norm(&u.b, gradients, n));
    for (int i = 0; i < n; i++)
        if (!update_parameter(&u, params[i], gradients[i])) return diag_status(d);
    advance_counters(&u, step);
    return diag_status(d);
}

ampc_status pass_optimizer(ir_module *m, compile *c)
{
    static const ir_graph_role roles[] = {IR_GRAPH_train_step, IR_GRAPH_apply};
    optimizer opt = {0};
    if (!ir_graph_by_role(m, IR_GRAPH_train_step)) return AMPC_OK;
    TRY(parse_optimizer(m, c->options->optimizer, c->diag, &opt));
    ir_storage *step = pass_state(m, IR_STATE_step, 0), *lr = pass_state(m, IR_STATE_lr, opt.lr);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        ir_graph *g = ir_graph_by_role(m, roles[i]);
        if (g) TRY(update_graph(g, &opt, step, lr, c->diag));
    }
    return diag_status(c->diag);
}
