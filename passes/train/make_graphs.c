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
#include "passes/train/batch_norm_mode.h"

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

/* Replaces inputs that training and evaluation draw by random numbers of streams that nothing else uses. */
static ampc_status draw_inputs(ir_graph *g, uint64_t seed, diag *d)
{
    enum { STREAMS = 1 << 29 };
    ir_module *m = g->module;
    ir_builder b = {.graph = g, .before = g->first, .phase = IR_FORWARD, .diag = d};
    int64_t drawn = 0;
    for (size_t i = 0; i < g->inputs.count; i++) {
        ir_value *v = g->inputs.items[i];
        if (v->role != IR_INPUT_normal && v->role != IR_INPUT_uniform) continue;
        ir_storage *rng = pass_random_state(m, seed);
        ir_node *n = ir_new(&b, IR_OP_random, 1, ir_graph_storage(g, rng));
        ir_set_list(n, IR_ATTR(random, shape), v->type.dims, v->type.rank);
        ir_set_bool(n, IR_ATTR(random, normal), v->role == IR_INPUT_normal);
        ir_set_int(n, IR_ATTR(random, stream), STREAMS + drawn++);
        ir_set_dtype(n, IR_ATTR(random, type), v->type.dtype);
        if (!ir_done(&b, n)) return diag_status(d);
        ir_value_rename(n->out[0], arena_printf(m->arena, "%s.drawn", v->name));
        ir_value_replace(v, n->out[0]);
        ir_graph_drop_input(g, v);
        i--;
    }
    return AMPC_OK;
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
    pass_remove_detach(g);
    batch_norm_set_eval(g);
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op == IR_OP_dropout && !drop_dropout(n, d)) return diag_status(d);
    }
    return AMPC_OK;
}

/* Puts @infer into the mode of the table above; `training`: there is a training step. */
static ampc_status make_infer(ir_graph *g, const compile_options *o, bool training, diag *d)
{
    if (o->mode == PASS_MODE_FILE) return AMPC_OK;
    if (o->mode != PASS_MODE_TRAIN || training) return make_eval(g, d);
    batch_norm_set_train(g, o, d);
    return diag_status(d);
}

/* The number of rows that a gradient has would be known only during the run. */
static ampc_status refuse_sized(const ir_graph *g, diag *d)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (ir_op_has(n->op, IR_SIZES))
            diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n),
                       "cannot be trained: the size of its result depends on data, which is supported for inference "
                       "only");
    return diag_status(d);
}

ampc_status pass_mode_graphs(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    diag *d = c->diag;
    ir_graph *forward = ir_graph_by_role(m, IR_GRAPH_forward);
    ir_node *found;
    if (!forward) return AMPC_OK;
    bool training = pass_trains(m, o, &found);
    if (found) found->role = IR_OUTPUT_loss;
    if (training) {
        TRY(refuse_sized(forward, d));
        ir_graph *eval = ir_graph_derive(m, forward, IR_GRAPH_eval);
        TRY(make_eval(eval, d));
        TRY(draw_inputs(eval, o->seed, d));
        ir_graph *train = ir_graph_derive(m, forward, IR_GRAPH_train);
        TRY(draw_inputs(train, o->seed, d));
        batch_norm_note_fixed(train, o, d);
        if (o->mode == PASS_MODE_EVAL) TRY(make_eval(train, d));
        if (o->mode == PASS_MODE_TRAIN) batch_norm_note_absent(train, d);
        if (o->mode == PASS_MODE_TRAIN) batch_norm_set_train(train, o, d);
        batch_norm_freeze(train, o);
    }
    ir_graph_set_role(forward, IR_GRAPH_infer);
    TRY(make_infer(forward, o, training, d));
    remove_stores(forward);
    pass_remove_detach(forward);
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        if (g->owner) TRY(make_eval(g, d));
    return diag_status(d);
}
