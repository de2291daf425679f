/* autodiff.c - appends the backward graph to @train.
 *
 * The pass emits nodes that compute the derivative of (loss * scale) with respect to every trained parameter and every
 * float input. The results become outputs with the roles gradient and input_gradient.
 *
 * It walks the forward nodes once, in reverse order. A side table holds the accumulated gradient of each value. For a
 * node with a gradient at some result, it calls the gradient rule of the op, reduces what the rule returns over
 * broadcast axes, casts it to the operand's type and adds it to the table. Nodes that no trained value flows through
 * are skipped, so integer and shape ops need no rule.
 *
 * With several optimizers (a recipe), there is one walk for each. It begins at the losses of the optimizer, and only
 * the parameters that this one owns are differentiated. Each gradient belongs to one walk.
 *
 * The seed is the loss scale itself (1 without scaling). It is f32, because 65536 is infinite in f16.
 *
 * The same walk, run before mixed precision, computes the gradients that a penalty of the loss is made of (penalty.c).
 *
 * Requires: forward phase only.
 *
 *   before  %y = mul @w, %x : f32[3]             after  %d.y = ...
 *           output "loss" = %l as loss                  %d.w = mul %d.y, %x : f32[3]
 *                                                       output "grad/w" = %d.w as gradient @w */
#include "passes/train/grad.h"
#include "passes/train/trainers.h"

#include <string.h>

static grad_rule *const rules[IR_OP_COUNT] = {
#define OP(name, amp, traits, infer, fold, word, kernel) [IR_OP_##name] = grad_##word,
#include "ir/ops/ops.def"
};

bool pass_has_gradient(ir_op op) { return rules[op] != grad_none; }

typedef struct autodiff {
    ir_graph *graph;
    diag *diag;
    const char *prefix; /* of the names of gradients */
    bool second;        /* the gradients will be differentiated */
    bool *flows;        /* by value id: depends on a value of interest */
    ir_value **grads;   /* by value id: its accumulated gradient */
    uint32_t count;     /* number of value ids before the walk */
    ir_builder end;     /* after the last node of the walk's phase */
    ir_node *last;      /* the last node before the walk */
} autodiff;

static bool is_float_value(const ir_value *v) { return ir_dtype_is_float(v->type.dtype); }

/* A detach is a request, so it causes no warning. */
static void warn_stopped(autodiff *a, const ir_node *n, const ir_value *v)
{
    if (a->second || n->op == IR_OP_detach) return;
    diag_warning(a->diag, ir_diag_loc(n), "no gradient flows through '%s': parameters before it train without it",
                 v->name);
}

/* Marks every float value that depends on a marked parameter or input. */
static void mark_flow(autodiff *a)
{
    for (ir_node *n = a->graph->first; n; n = n->next) {
        bool any = false;
        if (n->phase != IR_FORWARD) continue; /* of an earlier walk */
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v) continue;
            any |= a->flows[v->id] && !ir_node_stops(n, i);
            if (a->flows[v->id] && ir_node_stops(n, i)) warn_stopped(a, n, v);
        }
        /* Rounding to integers and comparing end the flow: only float results have gradients. */
        for (int i = 0; any && i < n->n_out; i++) a->flows[n->out[i]->id] = is_float_value(n->out[i]);
    }
}

/* Sums dx over the axes that broadcasting added or stretched, which restores the operand's shape. A symbolic size of
 * the operand counts as not stretched; the reshape is refused for sizes where it is. */
static ir_value *reduce_to(ir_builder *b, ir_value *dx, const ir_value *operand)
{
    const ir_type *from = &dx->type, *to = &operand->type;
    if (ir_type_same_shape(from, to)) return dx;
    int64_t axes[IR_MAX_RANK];
    int n = 0, lead = from->rank - to->rank;
    for (int i = 0; i < from->rank; i++)
        if (i < lead || (to->dims[i - lead] == 1 && from->dims[i] != 1)) axes[n++] = i;
    return ir_reshape_like(b, ir_reduce_sum(b, dx, axes, n, false), to);
}

/* The gradient of a low copy of a parameter belongs to the parameter, so that its terms are summed in f32. */
static const ir_value *master_of(const ir_value *v)
{
    const ir_node *def = ir_def(v);
    if (!def || !ir_op_has(def->op, IR_CONVERTS) || !ir_dtype_is_low(v->type.dtype)) return v;
    const ir_value *x = ir_in(def, 0);
    return x->kind == IR_VALUE_STORAGE && x->storage->kind == IR_PARAM && x->type.dtype == IR_f32 ? x : v;
}

static void accumulate(autodiff *a, ir_builder *b, const ir_value *operand, ir_value *dx)
{
    operand = master_of(operand);
    dx = ir_cast(b, reduce_to(b, dx, operand), operand->type.dtype);
    ir_value **sum = &a->grads[operand->id];
    if (*sum) dx = ir_binary(b, IR_OP_add, *sum, dx);
    if (!dx) return;
    if (dx->kind == IR_VALUE_RESULT && dx->id >= a->count)
        ir_value_rename(dx, arena_printf(a->graph->module->arena, "%s%s", a->prefix, operand->name));
    *sum = dx;
}

/* Without this check, an operand that a rule forgets would train with part of its gradient. */
static void report_missing(autodiff *a, const ir_node *n, const ir_value *operand)
{
    if (diag_status(a->diag) != AMPC_OK) return; /* reported by the rule */
    diag_error(a->diag, AMPC_UNSUPPORTED, ir_diag_loc(n), "operator %s has no gradient for its operand '%s'",
               n->loc.op ? n->loc.op : ir_op_get(n->op)->name, operand->name);
}

static bool differentiate_subgraph(const grad_subgraph *s, diag *d);

static bool apply_rule(grad *g)
{
    grad_rule *rule = rules[g->n->op];
    if (!rule(g)) return false;
    for (int i = 0; i < g->n_subgraphs; i++)
        if (!differentiate_subgraph(&g->subgraphs[i], g->b->diag)) return false;
    return !g->n_subgraphs || rule(g);
}

static void differentiate(autodiff *a, ir_node *n, arena *scratch)
{
    bool reached = false, any_required = false;
    ir_value **dy = arena_array(scratch, (size_t)n->n_out + 1, sizeof *dy);
    for (int i = 0; i < n->n_out; i++) reached |= (dy[i] = a->grads[n->out[i]->id]) != NULL;
    const size_t operands = (size_t)(n->n_in +
                                     ir_op_get(n->op)->n_in); /* rules may ask about slots without an operand */
    bool *required = arena_array(scratch, operands, sizeof *required);
    for (int i = 0; i < n->n_in; i++)
        any_required |= required[i] = ir_in(n, i) && a->flows[ir_in(n, i)->id] && !ir_node_stops(n, i);
    if (!reached || !any_required) return;

    ir_builder b = a->end;
    b.loc = n->loc;
    b.nameless = true; /* most results are gradients, named in accumulate() */
    ir_node *before = b.before ? b.before->prev : a->graph->last;
    grad g = {.b = &b, .n = n, .dy = dy, .required = required, .primitives = a->second};
    g.dx = arena_array(scratch, operands, sizeof *g.dx);
    bool ok = apply_rule(&g);
    for (int i = 0; i < n->n_in; i++) {
        /* After a failure, which has been reported, the walk continues with zeros in order to report further ones. */
        if (required[i] && !ok) g.dx[i] = grad_zeros(&g, ir_in(n, i));
        if (required[i] && ok && !g.dx[i] && !g.zero) report_missing(a, n, ir_in(n, i));
        if (required[i] && g.dx[i]) accumulate(a, &b, ir_in(n, i), g.dx[i]);
    }
    for (ir_node *made = before->next; made != b.before; made = made->next) ir_name_results(made);
}

static void walk_back(autodiff *a, arena *scratch)
{
    for (ir_node *n = a->last; n; n = n->prev)
        if (n->phase == IR_FORWARD) differentiate(a, n, scratch);
}

static autodiff autodiff_new(ir_graph *graph, ir_phase phase, diag *d, arena *scratch)
{
    ir_graph_renumber(graph);
    autodiff a = {.graph = graph, .diag = d, .prefix = "d.", .count = graph->value_ids};
    a.flows = arena_array(scratch, graph->value_ids + 1, sizeof *a.flows);
    a.grads = arena_array(scratch, graph->value_ids + 1, sizeof *a.grads);
    a.end = pass_builder(graph, phase, d);
    a.last = a.end.before ? a.end.before->prev : graph->last;
    return a;
}

/* ---- subgraphs ----------------------------------------------------------------------------------- */

static bool differentiate_subgraph(const grad_subgraph *s, diag *d)
{
    arena *scratch = pass_scratch_new(s->graph->module);
    autodiff a = autodiff_new(s->graph, IR_BACKWARD, d, scratch);
    for (size_t i = 0; i < s->graph->inputs.count; i++) a.flows[s->graph->inputs.items[i]->id] = s->required[i];
    mark_flow(&a);
    for (int i = 0; i < s->count; i++)
        if (s->dy[i] && a.flows[s->outputs[i]->id]) accumulate(&a, &a.end, s->outputs[i], s->dy[i]);
    walk_back(&a, scratch);
    for (size_t i = 0; i < s->graph->inputs.count; i++) s->dx[i] = a.grads[s->graph->inputs.items[i]->id];
    arena_free(scratch);
    return diag_status(d) == AMPC_OK;
}

/* ---- walks --------------------------------------------------------------------------------------- */

void grad_trained_values(ir_graph *g, arena *a, grad_values *out)
{
    const ir_module *m = g->module;
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind != IR_PARAM || s->frozen || !ir_dtype_is_float(s->type.dtype)) continue;
        ir_value *v = ir_graph_storage(g, s);
        if (v->first_use) vec_push(a, out, v);
    }
}

void grad_input_values(ir_graph *g, arena *a, grad_values *out)
{
    for (size_t i = 0; i < g->inputs.count; i++) {
        ir_value *v = g->inputs.items[i];
        if (is_float_value(v) && v->role != IR_INPUT_label) vec_push(a, out, v);
    }
}

static ampc_status run_walk(grad_walk *w, diag *d, arena *scratch)
{
    autodiff a = autodiff_new(w->graph, w->phase, d, scratch);
    a.prefix = w->prefix;
    a.second = w->second;
    for (int i = 0; i < w->count; i++) a.flows[w->wrt[i]->id] = true;
    mark_flow(&a);
    w->unrelated = NULL;
    for (int i = 0; i < w->of_count; i++) {
        ir_value **sum = &a.grads[w->of[i]->id];
        if (!a.flows[w->of[i]->id]) w->unrelated = w->of[i];
        else *sum = *sum ? ir_binary(&a.end, IR_OP_add, *sum, w->seed) : w->seed;
    }
    walk_back(&a, scratch);
    for (int i = 0; i < w->count; i++) w->gradients[i] = a.grads[w->wrt[i]->id];
    return diag_status(d);
}

ampc_status grad_walk_run(grad_walk *w, diag *d)
{
    arena *scratch = pass_scratch_new(w->graph->module);
    ampc_status status = run_walk(w, d, scratch);
    arena_free(scratch);
    return status;
}

static autodiff mark_second(ir_graph *g, diag *d, arena *scratch)
{
    grad_values of = {0};
    grad_trained_values(g, scratch, &of);
    grad_input_values(g, scratch, &of);
    autodiff a = autodiff_new(g, IR_FORWARD, d, scratch);
    a.second = true;
    for (size_t i = 0; i < of.count; i++) a.flows[of.items[i]->id] = true;
    mark_flow(&a);
    return a;
}

const bool *grad_flow(ir_graph *g, arena *a) { return mark_second(g, NULL, a).flows; }

static ampc_status check_second(ir_graph *g, const ir_node *first, diag *d, arena *scratch)
{
    const autodiff a = mark_second(g, d, scratch);
    for (const ir_node *n = first; n; n = n->next) {
        bool flows = false;
        for (int i = 0; i < n->n_out; i++) flows |= a.flows[n->out[i]->id];
        if (!flows || (pass_has_gradient(n->op) && !ir_op_has(n->op, IR_BODIES))) continue;
        return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n),
                          "the gradient, which is penalized, has no derivative (op %s)", ir_op_get(n->op)->name);
    }
    return AMPC_OK;
}

ampc_status grad_check_second(ir_graph *g, const ir_node *first, diag *d)
{
    arena *scratch = pass_scratch_new(g->module);
    ampc_status status = check_second(g, first, d, scratch);
    arena_free(scratch);
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------------ */

/* Makes the gradients outputs of the graph. */
static void emit_outputs(const grad_walk *w, ir_builder *b)
{
    for (int i = 0; i < w->count; i++) {
        ir_value *of = w->wrt[i], *d = w->gradients[i];
        const bool param = of->kind == IR_VALUE_STORAGE;
        if (!d) d = grad_zeros(&(grad){.b = b}, of);
        ir_output_as(b, param ? IR_OUTPUT_gradient : IR_OUTPUT_input_gradient, of, d);
    }
}

/* The trained parameters that a trainer owns, and float inputs if it is the only one. */
static void find_values(ir_graph *g, const trainer_list *trainers, int k, arena *a, grad_values *out)
{
    grad_values params = {0};
    grad_trained_values(g, a, &params);
    for (size_t i = 0; i < params.count; i++)
        if (trainers_owner(trainers, params.items[i]->storage) == k) vec_push(a, out, params.items[i]);
    if (trainers->count == 1) grad_input_values(g, a, out);
}

/* The output of a loss of the recipe: they are in the order of the losses, of which each has one. */
static const ir_node *find_term(const ir_graph *g, const char *loss)
{
    const ir_training *t = &g->module->training;
    const ir_node *n = ir_first_output(g);
    for (size_t i = 0; i < t->losses.count; i++) {
        const char *name = t->losses.items[i].name;
        if (i && strcmp(name, t->losses.items[i - 1].name) == 0) continue;
        while (n && n->role != IR_OUTPUT_loss_term) n = ir_next_output(n);
        if (!n || strcmp(name, loss) == 0) return n;
        n = ir_next_output(n);
    }
    return NULL;
}

static ampc_status find_losses(ir_graph *g, const ir_trainer *t, arena *a, diag *d, grad_values *out)
{
    const ir_node *loss = ir_output_by_role(g, IR_OUTPUT_loss);
    if (!loss) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "graph @%s has no loss to differentiate", g->name);
    if (!t->losses.count) vec_push(a, out, ir_in(loss, 0));
    for (int i = 0; i < t->losses.count; i++) {
        loss = find_term(g, t->losses.items[i]);
        if (!loss)
            return diag_error(d, AMPC_REJECTED, recipe_place(g->module, t->line), "there is no loss '%s'",
                              t->losses.items[i]);
        vec_push(a, out, ir_in(loss, 0));
    }
    return AMPC_OK;
}

/* The gradient of a loss with respect to itself is the loss scale. */
static ir_value *make_seed(ir_builder *b, ir_dtype type)
{
    ir_storage *scale = ir_state_by_role(b->graph->module, IR_STATE_loss_scale);
    ir_value *seed = scale ? ir_graph_storage(b->graph, scale) : ir_scalar(b, type, 1.0);
    return type == IR_f64 ? ir_cast(b, seed, IR_f64) : seed;
}

static ampc_status check_dependence(const grad_walk *w, const ir_trainer *t, diag *d)
{
    const char *name = "";
    for (int i = 0; i < t->losses.count; i++)
        if (w->of[i] == w->unrelated) name = t->losses.items[i];
    if (!w->unrelated) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, recipe_place(w->graph->module, t->line),
                      "the loss depends on no trained parameter%s%s", *name ? ": loss." : "", name);
}

static ampc_status differentiate_trainer(ir_graph *g, const trainer_list *trainers, int k, diag *d, arena *scratch)
{
    const ir_trainer *t = &trainers->items[k];
    grad_values wrt = {0}, of = {0};
    find_values(g, trainers, k, scratch, &wrt);
    TRY(find_losses(g, t, scratch, d, &of));
    ir_builder b = pass_builder(g, IR_BACKWARD, d);
    grad_walk w = {.graph = g, .phase = IR_BACKWARD, .prefix = "d.", .of = of.items, .wrt = wrt.items};
    w.of_count = (int)of.count;
    w.count = (int)wrt.count;
    w.seed = make_seed(&b, of.items[0]->type.dtype);
    w.gradients = arena_array(scratch, wrt.count + 1, sizeof *w.gradients);
    TRY(grad_walk_run(&w, d));
    TRY(check_dependence(&w, t, d));
    emit_outputs(&w, &b);
    return diag_status(d);
}

static ampc_status differentiate_graph(ir_graph *g, const trainer_list *trainers, diag *d, arena *scratch)
{
    lift_params(g);
    for (size_t k = 0; k < trainers->count; k++) TRY(differentiate_trainer(g, trainers, (int)k, d, scratch));
    pass_remove_detach(g);
    return diag_status(d);
}

ampc_status pass_autodiff(ir_module *m, compile *c)
{
    ir_graph *graph = ir_graph_by_role(m, IR_GRAPH_train);
    trainer_list trainers;
    if (!graph) return AMPC_OK;
    TRY(trainers_find(m, c->options, c->diag, &trainers));
    arena *scratch = pass_scratch_new(m);
    ampc_status status = differentiate_graph(graph, &trainers, c->diag, scratch);
    arena_free(scratch);
    return status;
}
