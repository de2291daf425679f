/* accumulate.c - splits the training step, so that one update can use the gradients of several micro-batches.
 *
 * @accumulate adds the scaled f32 gradients of a micro-batch to the states grad_sum of the parameters, and counts
 * micro-batches. Nothing but such pending state changes: buffers of the model are stored to their states `next`. @apply
 * has no inputs. It checks the sums once, updates the parameters by the mean gradients, and makes the pending buffers
 * current, or keeps the old ones in a skipped step. A window with one micro-batch has the result of @train_step.
 *
 * Pending state is void while no micro-batch is counted, so nothing has to be set to zero between windows, and values
 * that a caller sets there are used. The loss scale changes only in @apply, so all sums have the same scale.
 *
 * @unscale replaces the sums by mean gradients, for callers that inspect or change them before @apply, which then does
 * not divide again. It also records whether they are finite, as such a caller may hide that.
 *
 *   before  graph @train_step     after  graph @train_step, graph @accumulate, graph @unscale, graph @apply */
#include "passes/pass.h"

static ir_value *state_of(ir_graph *g, ir_state_role role)
{
    return ir_graph_storage(g, ir_state_by_role(g->module, role));
}

static void store_state(ir_builder *b, ir_state_role role, ir_value *v)
{
    if (v) ir_store(b, ir_state_by_role(b->graph->module, role), v);
}

/* ---- @accumulate ------------------------------------------------------------------------------- */

static ir_value *select_value(ir_builder *b, ir_value *cond, ir_value *yes, ir_value *no)
{
    return ir_done(b, ir_new(b, IR_OP_select, 3, cond, yes, no));
}

/* Makes the graph read and store the pending value of buffer s instead of the current one. */
static void defer_buffer(ir_node *store, ir_value *empty, diag *d)
{
    ir_graph *g = store->graph;
    ir_storage *s = ir_in(store, 0)->storage, *next = pass_state_of(g->module, IR_STATE_next, s);
    ir_value *current = ir_in(store, 0), *fresh = ir_in(store, 1);
    ir_builder after = ir_builder_after(store, d), read = ir_builder_after(empty->def, d);
    ir_node_remove(store);
    ir_value *old = select_value(&read, empty, current, ir_graph_storage(g, next));
    if (!old) return;
    ir_value_rename(old, arena_printf(g->module->arena, "%s.old", s->name));
    ir_value_replace(current, old);
    ir_node_set_input(old->def, IR_IN(select, a), current);
    ir_store(&after, next, fresh == current ? old : fresh);
}

/* Appends: the sum becomes v for the first micro-batch, otherwise v is added to it. */
static void add_to_sum(ir_builder *b, ir_value *empty, ir_storage *sum, ir_value *v)
{
    v = ir_cast(b, v, sum->type.dtype);
    ir_value *added = ir_binary(b, IR_OP_add, ir_graph_storage(b->graph, sum), v);
    pass_store_new(b, sum, select_value(b, empty, v, added));
}

static void add_gradients(ir_graph *g, ir_value *empty, diag *d)
{
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    for (ir_node *n = ir_first_output(g), *next; n; n = next) {
        next = ir_next_output(n);
        if (n->role != IR_OUTPUT_gradient) continue;
        add_to_sum(&b, empty, pass_state_of(g->module, IR_STATE_grad_sum, n->of->storage), ir_in(n, 0));
        ir_node_remove(n);
    }
}

static ampc_status make_accumulate(ir_module *m, const ir_graph *step, diag *d)
{
    ir_graph *g = ir_graph_derive(m, step, IR_GRAPH_accumulate);
    ir_builder begin = {.graph = g, .before = g->first, .phase = IR_FORWARD, .diag = d};
    ir_value *count = state_of(g, IR_STATE_micro_batches);
    ir_value *empty = ir_binary(&begin, IR_OP_equal, count, ir_scalar(&begin, IR_i64, 0));
    if (!empty) return diag_status(d);
    ir_value_rename(empty, "empty");
    for (ir_node *n = ir_first_store(g), *next; n; n = next) {
        next = ir_next_store(n);
        if (!ir_state_roles[ir_in(n, 0)->storage->role].moves) defer_buffer(n, empty, d);
    }
    add_gradients(g, empty, d);
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    ir_value *loss = ir_in(ir_output_by_role(g, IR_OUTPUT_loss), 0);
    ir_storage *loss_sum = ir_state_by_role(m, IR_STATE_loss_sum);
    add_to_sum(&b, empty, loss_sum, ir_reshape_like(&b, loss, &loss_sum->type));
    pass_store_new(&b, ir_state_by_role(m, IR_STATE_micro_batches),
                   ir_binary(&b, IR_OP_add, count, ir_scalar(&b, IR_i64, 1)));
    pass_advance_random(&b);
    return diag_status(d);
}

/* ---- @unscale and @apply ----------------------------------------------------------------------- */

static ir_value *count_micro_batches(ir_builder *b)
{
    return ir_cast(b, state_of(b->graph, IR_STATE_micro_batches), IR_f32);
}

ir_value *pass_gradient_divisor(ir_builder *b)
{
    ir_graph *g = b->graph;
    ir_storage *s = ir_state_by_role(g->module, IR_STATE_loss_scale);
    ir_value *scale = s ? ir_graph_storage(g, s) : NULL;
    if (g->role != IR_GRAPH_unscale && g->role != IR_GRAPH_apply) return scale;
    ir_value *count = count_micro_batches(b), *product = scale ? ir_binary(b, IR_OP_mul, scale, count) : count;
    ir_value *one = ir_scalar(b, IR_f32, 1), *unscaled = state_of(g, IR_STATE_unscaled);
    ir_value *divisor = select_value(b, unscaled, one, product);
    if (divisor) ir_value_rename(divisor, "divisor");
    return divisor;
}

/* Makes the sums gradient outputs. pass_unscale divides them, unless there is no loss scale. */
static void output_sums(ir_builder *b, const ir_graph *step)
{
    ir_graph *g = b->graph;
    ir_value *divisor = ir_state_by_role(g->module, IR_STATE_loss_scale) ? NULL : pass_gradient_divisor(b);
    for (ir_node *n = ir_first_output(step); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_gradient) continue;
        ir_storage *param = n->of->storage;
        ir_value *v = ir_graph_storage(g, pass_state_of(g->module, IR_STATE_grad_sum, param));
        if (divisor) v = ir_binary(b, IR_OP_div, v, ir_cast(b, divisor, v->type.dtype));
        if (v) ir_output_as(b, IR_OUTPUT_gradient, ir_graph_storage(g, param), v);
    }
}

static ir_builder new_graph(ir_module *m, ir_graph_role role, diag *d)
{
    ir_graph *g = ir_graph_new(m, ir_graph_words[role]);
    g->role = role;
    return pass_builder(g, IR_UPDATE, d);
}

static void make_apply(ir_module *m, const ir_graph *step, diag *d)
{
    ir_builder b = new_graph(m, IR_GRAPH_apply, d);
    ir_value *count = count_micro_batches(&b);
    ir_value *loss = ir_binary(&b, IR_OP_div, state_of(b.graph, IR_STATE_loss_sum), count);
    if (loss) ir_value_rename(loss, ir_output_words[IR_OUTPUT_loss]);
    if (loss) ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    output_sums(&b, step);
    for (ir_node *n = ir_first_store(step); n; n = ir_next_store(n)) {
        ir_storage *s = ir_in(n, 0)->storage;
        if (!ir_state_roles[s->role].moves)
            ir_store(&b, s, ir_graph_storage(b.graph, pass_state_of(m, IR_STATE_next, s)));
    }
    store_state(&b, IR_STATE_micro_batches, ir_scalar(&b, IR_i64, 0));
    store_state(&b, IR_STATE_unscaled, ir_scalar(&b, IR_bool, 0));
    store_state(&b, IR_STATE_overflow, ir_scalar(&b, IR_bool, 0));
}

void pass_store_unscaled(ir_graph *g, diag *d)
{
    ir_module *m = g->module;
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    const ir_node *found = ir_output_by_role(g, IR_OUTPUT_found_inf);
    VEC(ir_value *) gradients = {0};
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_gradient) continue;
        vec_push(m->arena, &gradients, ir_in(n, 0));
        ir_store(&b, pass_state_of(m, IR_STATE_grad_sum, n->of->storage), ir_in(n, 0));
    }
    if (gradients.count)
        ir_output_as(&b, IR_OUTPUT_grad_norm, NULL, pass_gradient_norm(&b, gradients.items, (int)gradients.count));
    store_state(&b, IR_STATE_unscaled, ir_scalar(&b, IR_bool, 1));
    if (found)
        store_state(&b, IR_STATE_overflow, ir_binary(&b, IR_OP_or, ir_in(found, 0), state_of(g, IR_STATE_overflow)));
}

ampc_status pass_accumulate(ir_module *m, compile *c)
{
    static const ir_state_role states[] = {IR_STATE_micro_batches, IR_STATE_loss_sum, IR_STATE_unscaled,
                                           IR_STATE_overflow};
    const ir_graph *step = ir_graph_by_role(m, IR_GRAPH_train_step);
    if (!step || !c->options->accumulate) return AMPC_OK;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) pass_state(m, states[i], 0);
    TRY(make_accumulate(m, step, c->diag));
    ir_builder unscale = new_graph(m, IR_GRAPH_unscale, c->diag);
    output_sums(&unscale, step);
    make_apply(m, step, c->diag);
    m->training.window = c->options->accumulate;
    return diag_status(c->diag);
}
