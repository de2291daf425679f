/* scaling.c - dynamic loss scaling, in one pass before and one after autodiff.
 *
 * scale_loss creates the state @loss_scale. autodiff seeds the backward with it, since it is the derivative of the
 * scaled loss with respect to the loss. unscale appends one check_finite_and_unscale per gradient type to the backward.
 * Its flag becomes the output found_inf, and its unscaled f32 gradients replace the scaled ones in the outputs.
 * update_loss_scaling updates the scale from the same flag. All of them read the scale as it was at the start of the
 * step, so a step that grows the scale still unscales by the old one.
 *
 * For bf16 the scale is constantly 1, but the check remains: bf16 gradients can overflow, as rarely as f32 ones.
 *
 * found_inf is also true if the loss is NaN or infinite, since its gradients may be finite all the same: a ctc whose
 * labels do not fit has gradients of 0, and so has a mean over weights that are all 0. */
#include "passes/pass.h"

static bool is_dynamic(const compile_options *o)
{
    return o->scaling == PASS_SCALE_DYNAMIC || (o->scaling == PASS_SCALE_DEFAULT && o->low == IR_f16);
}

/* The rules of other frameworks. PaddlePaddle computes with ratios in f32. */
static const scaling_rules presets[] = {
    [PASS_PRESET_TORCH] = {65536, 2, 0.5, 0, .incr_every = 2000, .decr_every = 1},
    [PASS_PRESET_PADDLE_1_8] = {32768, 2, 0.8f, 1, .incr_every = 1000, .decr_every = 2, .late = true},
    [PASS_PRESET_PADDLE_2] = {32768, 2, 0.8f, 1, .incr_every = 1000, .decr_every = 2},
    [PASS_PRESET_PADDLE_3] = {65536, 2, 0.5, 1, .incr_every = 2000, .decr_every = 1},
};

scaling_rules scaling_resolve(const compile_options *o, scaling_rules r)
{
    if (o->preset != PASS_PRESET_NONE) r = presets[o->preset];
    if (o->init_scale > 0) r.init = o->init_scale;
    if (o->incr_every > 0) r.incr_every = o->incr_every;
    if (o->decr_every > 0) r.decr_every = o->decr_every;
    if (o->incr_ratio > 0) r.incr_ratio = o->incr_ratio;
    if (o->decr_ratio > 0) r.decr_ratio = o->decr_ratio;
    if (o->min_scale > 0) r.min = o->min_scale;
    if (o->max_scale > 0) r.max = o->max_scale;
    if (o->hysteresis > 0) r.decr_every = o->hysteresis, r.hysteresis = true;
    r.on = o->scaling == PASS_SCALE_DEFAULT ? o->level != PASS_O0 : o->scaling != PASS_SCALE_OFF;
    r.dynamic = is_dynamic(o);
    if (o->scaling == PASS_SCALE_DEFAULT && !r.dynamic) r.init = 1;
    return r;
}

static ampc_status check_rules(const compile *c)
{
    const compile_options *o = c->options;
    const scaling_rules *r = &c->scaling;
    if (o->hysteresis && (o->decr_every || r->late))
        return diag_error(c->diag, AMPC_USAGE, DIAG_OPTION(hysteresis),
                          "replaces the count of overflowing steps: not with %s",
                          o->decr_every ? diag_option_name(c->diag, OPTION_decr_every_n_nan_or_inf)
                                        : "counters of n+1 steps (PaddlePaddle 1.8)");
    if (r->dynamic && r->max > 0 && (r->max < r->min || r->max < r->init))
        return diag_error(c->diag, AMPC_USAGE, DIAG_OPTION(max_loss_scaling),
                          "%g is smaller than the %s loss scale, %g", r->max, r->max < r->min ? "smallest" : "initial",
                          r->max < r->min ? r->min : r->init);
    return AMPC_OK;
}

ampc_status pass_scale_loss(ir_module *m, compile *c)
{
    if (!ir_graph_by_role(m, IR_GRAPH_train) || !c->scaling.on) return AMPC_OK;
    TRY(check_rules(c));
    pass_state(m, IR_STATE_loss_scale, c->scaling.init);
    if (c->scaling.dynamic) {
        pass_state(m, IR_STATE_good_steps, 0);
        pass_state(m, IR_STATE_bad_steps, 0);
    }
    return AMPC_OK;
}

/* ---- after the backward ---------------------------------------------------------------------- */

typedef VEC(ir_node *) node_list;

/* Collects the gradient outputs by dtype. */
static void gradient_outputs(ir_graph *g, node_list *lists)
{
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
        if (n->role == IR_OUTPUT_gradient || n->role == IR_OUTPUT_input_gradient)
            vec_push(g->module->arena, &lists[ir_in(n, 0)->type.dtype], n);
}

/* Appends one check over all gradients of a type and moves their outputs after it. Returns its flag. */
static ir_value *check_gradients(ir_graph *g, const node_list *outputs, ir_value *scale, diag *d)
{
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    int n = (int)outputs->count;
    ir_value **in = arena_array(g->module->arena, (size_t)n + 1, sizeof *in);
    for (int i = 0; i < n; i++) in[i] = ir_in(outputs->items[i], 0);
    in[n] = in[0]->type.dtype == IR_f64 ? ir_cast(&b, scale, IR_f64) : scale;
    ir_node *check = ir_new_array(&b, IR_OP_check_finite_and_unscale, n + 1, in, n + 1);
    if (!ir_done_all(&b, check)) return NULL;
    for (int i = 0; i < n; i++) {
        ir_value_rename(check->out[i], arena_printf(g->module->arena, "u.%s", outputs->items[i]->of->name));
        ir_output_again(&b, outputs->items[i], check->out[i]);
    }
    return check->out[n];
}

/* Whether the loss is NaN or infinite; of a window, the sum of its losses. NULL: the module has no loss, only gradients
 * that start from one of its results. */
static ir_value *check_loss(ir_builder *b)
{
    static const ir_type scalar = {0};
    ir_graph *g = b->graph;
    const ir_node *output = ir_output_by_role(g, IR_OUTPUT_loss);
    ir_storage *sum = ir_state_by_role(g->module, IR_STATE_loss_sum);
    ir_value *loss = output ? ir_in(output, 0) : sum ? ir_graph_storage(g, sum) : NULL;
    if (!loss) return NULL;
    if (loss->type.rank) loss = ir_reshape_like(b, loss, &scalar);
    ir_value *nan = ir_unary(b, IR_OP_is_nan, loss), *infinite = ir_unary(b, IR_OP_is_inf, loss);
    return ir_binary(b, IR_OP_or, nan, infinite);
}

static void update_scale(ir_graph *g, const scaling_rules *r, ir_value *found, diag *d)
{
    ir_module *m = g->module;
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    ir_storage *state[] = {ir_state_by_role(m, IR_STATE_loss_scale), ir_state_by_role(m, IR_STATE_good_steps),
                           ir_state_by_role(m, IR_STATE_bad_steps)};
    if (!r->dynamic || !state[1] || !state[2]) return;
    ir_value *old[3];
    for (int i = 2; i >= 0; i--) old[i] = ir_graph_storage(g, state[i]);
    ir_node *n = ir_new(&b, IR_OP_update_loss_scaling, 4, found, old[0], old[1], old[2]);
    ir_set_int(n, IR_ATTR(update_loss_scaling, incr_every), r->incr_every);
    ir_set_int(n, IR_ATTR(update_loss_scaling, decr_every), r->decr_every);
    ir_set_float(n, IR_ATTR(update_loss_scaling, incr_ratio), r->incr_ratio);
    ir_set_float(n, IR_ATTR(update_loss_scaling, decr_ratio), r->decr_ratio);
    ir_set_float(n, IR_ATTR(update_loss_scaling, min), r->min);
    ir_set_bool(n, IR_ATTR(update_loss_scaling, late), r->late);
    if (r->max > 0) ir_set_float(n, IR_ATTR(update_loss_scaling, max), r->max);
    ir_set_bool(n, IR_ATTR(update_loss_scaling, hysteresis), r->hysteresis);
    if (!ir_done_all(&b, n)) return;
    for (int i = 0; i < 3; i++) pass_store_new(&b, state[i], n->out[i]);
}

/* Appends a check per type of gradient. Returns whether one has found something; NULL: there are no gradients. A
 * product of scale and count that overflows would make all gradients 0, so it is found too. */
static ir_value *check_all(ir_builder *b)
{
    static const ir_dtype types[] = {IR_f32, IR_f64, IR_f16, IR_bf16};
    ir_value *found = NULL, *divisor = pass_gradient_divisor(b);
    node_list outputs[IR_DTYPE_COUNT] = {0};
    gradient_outputs(b->graph, outputs);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!outputs[types[i]].count) continue;
        ir_value *flag = check_gradients(b->graph, &outputs[types[i]], divisor, b->diag);
        if (!flag) return NULL;
        found = found ? ir_binary(b, IR_OP_or, found, flag) : flag;
    }
    if (found && divisor->kind != IR_VALUE_STORAGE)
        found = ir_binary(b, IR_OP_or, found, ir_unary(b, IR_OP_is_inf, divisor));
    return found;
}

/* `update`: update rule of the scale; NULL: the graph does not change it. */
static ampc_status unscale_graph(ir_graph *g, const scaling_rules *update, diag *d)
{
    ir_storage *scale = ir_state_by_role(g->module, IR_STATE_loss_scale);
    ir_storage *earlier = ir_state_by_role(g->module, IR_STATE_overflow);
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    ir_value *gradients = scale ? check_all(&b) : NULL, *loss = check_loss(&b);
    ir_value *found = gradients && loss ? ir_binary(&b, IR_OP_or, gradients, loss) : gradients ? gradients : loss;
    if (found && g->role == IR_GRAPH_apply) found = ir_binary(&b, IR_OP_or, found, ir_graph_storage(g, earlier));
    if (!found) return diag_status(d);
    ir_value_rename(found, ir_output_words[IR_OUTPUT_found_inf]);
    ir_output_as(&b, IR_OUTPUT_found_inf, NULL, found);
    if (update && scale) update_scale(g, update, found, d);
    return diag_status(d);
}

ampc_status pass_unscale(ir_module *m, compile *c)
{
    static const struct {
        ir_graph_role role;
        bool updates;
    } graphs[] = {
        {IR_GRAPH_grad, false}, {IR_GRAPH_train_step, true}, {IR_GRAPH_unscale, false}, {IR_GRAPH_apply, true}};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        ir_graph *g = ir_graph_by_role(m, graphs[i].role);
        if (g) TRY(unscale_graph(g, graphs[i].updates ? &c->scaling : NULL, c->diag));
        if (g && graphs[i].role == IR_GRAPH_unscale) pass_store_unscaled(g, c->diag);
    }
    return diag_status(c->diag);
}
