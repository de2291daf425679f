/* make_graphs.c - derives the graphs that run from the one imported graph.
 *
 * @forward is the imported network. It becomes @infer, which uses running statistics and no dropout unless --mode asks
 * for something else. Its copies are @eval, which is always in evaluation mode and gets the loss, and @train, which is
 * in the mode that --mode selects and keeps the stores of states.
 *   --mode     @infer                              @eval       @train
 *   (none)     evaluation                          evaluation  as written
 *   file       as written                          evaluation  as written
 *   train      evaluation; no loss: training       evaluation  training
 *   eval       evaluation                          evaluation  evaluation
 *   before  graph @forward                      after  graph @infer [, graph @eval, graph @train] */
#include "passes/pass.h"

#include <string.h>

static void set_batch_norm(ir_node *n, bool training) { ir_set_bool(n, IR_ATTR(batch_norm, training), training); }

/* Replaces y by a view of x, which the cleanup passes drop, and the mask, if it is used, by all true. */
static bool drop_dropout(ir_node *n, diag *d)
{
    ir_builder b = ir_builder_before(n, d);
    if (ir_value_used(ir_out(n, 1))) {
        const ir_type *t = &ir_out(n, 1)->type;
        ir_value *all = ir_expand(&b, ir_scalar(&b, IR_bool, 1.0), t->dims, t->rank);
        if (!all) return false;
        ir_value_replace(ir_out(n, 1), all);
    }
    const ir_type *t = &ir_in(n, 0)->type;
    ir_node *view = ir_new(&b, IR_OP_reshape, 1, ir_in(n, 0));
    ir_set_list(view, IR_ATTR(reshape, shape), t->dims, t->rank);
    ir_value *y = ir_done(&b, view);
    if (!y) return false;
    ir_value_replace(ir_out(n, 0), y);
    y->name = ir_out(n, 0)->name;
    ir_node_remove(n);
    return true;
}

static void remove_stores(ir_graph *g)
{
    for (ir_node *n = ir_first_store(g), *next; n; n = next) {
        next = ir_next_store(n);
        ir_node_remove(n);
    }
}

static ampc_status make_eval(ir_graph *g, diag *d)
{
    remove_stores(g);
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op == IR_OP_batch_norm) set_batch_norm(n, false);
        else if (n->op == IR_OP_dropout && !drop_dropout(n, d)) return diag_status(d);
    }
    return AMPC_OK;
}

static bool has_frozen_statistics(const ir_node *n, const compile_options *o)
{
    return pass_match(&o->freeze, ir_in(n, IR_IN(batch_norm, mean))->name) ||
           pass_match(&o->freeze, ir_in(n, IR_IN(batch_norm, var))->name);
}

static void remove_store(ir_graph *g, const ir_value *fresh)
{
    for (ir_node *n = ir_first_store(g), *next; n; n = next) {
        next = ir_next_store(n);
        if (ir_in(n, 1) == fresh) ir_node_remove(n);
    }
}

/* A BatchNormalization whose running statistics match --freeze uses them and does not update them. */
static void freeze_statistics(ir_graph *g, const compile_options *o)
{
    for (ir_node *n = g->first; n; n = n->next) {
        if (n->op != IR_OP_batch_norm || !has_frozen_statistics(n, o)) continue;
        set_batch_norm(n, false);
        remove_store(g, ir_out(n, IR_OUT(batch_norm, mean_out)));
        remove_store(g, ir_out(n, IR_OUT(batch_norm, var_out)));
    }
}

static void make_state(ir_storage *s)
{
    s->kind = IR_STATE;
    s->frozen = false;
    s->held = IR_NOT_HELD;
}

static ir_node *find_store(const ir_value *state)
{
    for (const ir_use *u = state->first_use; u; u = u->next)
        if (u->user->op == IR_OP_store && u->index == 0) return u->user;
    return NULL;
}

/* Stores the new value of a statistic. If the model uses a module several times, each use continues from the statistics
 * of the previous one. */
static void move_statistic(ir_graph *g, ir_node *n, int slot, int fresh, diag *d)
{
    ir_storage *s = ir_in(n, slot)->storage;
    ir_node *store = find_store(ir_in(n, slot));
    make_state(s);
    if (store) {
        ir_node_set_input(n, slot, ir_in(store, 1));
        ir_node_set_input(store, 1, ir_out(n, fresh));
        return;
    }
    ir_builder b = ir_builder_at_end(g, d);
    b.phase = IR_UPDATE;
    b.loc = n->loc;
    ir_store(&b, s, ir_out(n, fresh));
}

/* --mode=train: every BatchNormalization uses batch statistics and updates its running ones, unless they are frozen. */
static void make_train(ir_graph *g, const compile_options *o, diag *d)
{
    for (ir_node *n = g->first; n; n = n->next) {
        if (n->op != IR_OP_batch_norm || n->attr[IR_ATTR(batch_norm, training)].i) continue;
        ir_value *mean = ir_in(n, IR_IN(batch_norm, mean)), *var = ir_in(n, IR_IN(batch_norm, var));
        if (mean->kind != IR_VALUE_STORAGE || var->kind != IR_VALUE_STORAGE || has_frozen_statistics(n, o)) continue;
        set_batch_norm(n, true);
        move_statistic(g, n, IR_IN(batch_norm, mean), IR_OUT(batch_norm, mean_out), d);
        move_statistic(g, n, IR_IN(batch_norm, var), IR_OUT(batch_norm, var_out), d);
    }
}

/* Tells, unless --mode is given, that a model exported for evaluation does not train as its network originally did. */
static void note_fixed_statistics(const ir_graph *g, const compile_options *o, diag *d)
{
    int fixed = 0, all = 0;
    for (const ir_node *n = g->first; n && o->mode == PASS_MODE_DEFAULT; n = n->next) {
        if (n->op != IR_OP_batch_norm) continue;
        all++;
        fixed += !n->attr[IR_ATTR(batch_norm, training)].i && !has_frozen_statistics(n, o);
    }
    if (fixed)
        diag_note(d, DIAG_FILE(ir_module_source(g->module)),
                  "%d of %d BatchNormalization nodes are in evaluation mode in the file: they train with the running "
                  "statistics that it has; --mode=train takes those of the batch, --mode=file says that this is meant",
                  fixed, all);
}

/* Puts @infer into the mode of the table above; `training`: there is a training step. */
static ampc_status make_infer(ir_graph *g, const compile_options *o, bool training, diag *d)
{
    if (o->mode == PASS_MODE_FILE) return AMPC_OK;
    if (o->mode != PASS_MODE_TRAIN || training) return make_eval(g, d);
    make_train(g, o, d);
    return diag_status(d);
}

static bool is_loss_op(ir_op op) { return op == IR_OP_softmax_cross_entropy || op == IR_OP_nll_loss; }

/* A model whose only scalar float output comes from a loss op is to be trained on that output. */
static ir_node *find_loss(const ir_graph *g)
{
    ir_node *found = NULL;
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const ir_value *v = ir_in(n, 0);
        if (!ir_dtype_is_float(v->type.dtype) || v->type.rank != 0) continue;
        while (v->kind == IR_VALUE_RESULT && (v->def->op == IR_OP_cast || v->def->op == IR_OP_reshape))
            v = ir_in(v->def, 0);
        if (found || v->kind != IR_VALUE_RESULT || !is_loss_op(v->def->op)) return NULL;
        found = n;
    }
    return found;
}

bool pass_wants_training(const ir_module *m, const compile_options *o, ir_node **found)
{
    const ir_graph *forward = ir_graph_by_role(m, IR_GRAPH_forward);
    bool given = o->loss || o->loss_output;
    *found = forward && !given && !o->plain_runtime ? find_loss(forward) : NULL;
    return given || *found || (forward && ir_output_by_role(forward, IR_OUTPUT_loss));
}

ampc_status pass_mode_graphs(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    diag *d = c->diag;
    ir_graph *forward = ir_graph_by_role(m, IR_GRAPH_forward);
    if (!forward) return AMPC_OK;
    ir_node *found;
    bool training = pass_wants_training(m, o, &found);
    if (found) found->role = IR_OUTPUT_loss;
    if (training) {
        ir_graph *eval = ir_graph_derive(m, forward, IR_GRAPH_eval);
        TRY(make_eval(eval, d));
        ir_graph *train = ir_graph_derive(m, forward, IR_GRAPH_train);
        note_fixed_statistics(train, o, d);
        if (o->mode == PASS_MODE_EVAL) TRY(make_eval(train, d));
        if (o->mode == PASS_MODE_TRAIN) make_train(train, o, d);
        freeze_statistics(train, o);
    }
    ir_graph_set_role(forward, IR_GRAPH_infer);
    TRY(make_infer(forward, o, training, d));
    remove_stores(forward);
    for (size_t i = 0; i < m->graphs.count; i++)
        if (m->graphs.items[i]->subgraph) TRY(make_eval(m->graphs.items[i], d));
    return diag_status(d);
}
