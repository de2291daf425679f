/* clip.c - limits the gradients that the optimizer reads, after unscaling.
 *
 * With --clip-value=V, every element is limited to -V .. V. With --clip-norm=N, all gradients are then multiplied by
 * min(1, N / (norm + 1e-6)), where the norm is that of all gradients together, in f32; the formula is that of PyTorch's
 * clip_grad_norm_. The output grad_norm is the norm before both.
 *
 *   before  output "grad/w" = %u.w as gradient @w      after  %grad_norm = global_norm %u.w, ..
 *                                                             output "grad_norm" = %grad_norm as grad_norm
 *                                                             %clip = min 1, N / (%grad_norm + 1e-6)
 *                                                             %c.w = mul %u.w, %clip
 *                                                             output "grad/w" = %c.w as gradient @w */
#include "passes/pass.h"

typedef VEC(ir_value *) value_list;

ir_value *pass_gradient_norm(ir_builder *b, ir_value **gradients, int n)
{
    ir_value **all = arena_array(b->graph->module->arena, (size_t)n, sizeof *all);
    for (int i = 0; i < n; i++) all[i] = ir_cast(b, gradients[i], IR_f32);
    return ir_done(b, ir_new_array(b, IR_OP_global_norm, n, all, 0));
}

static void clip_values(ir_builder *b, value_list *gradients, double most)
{
    for (size_t i = 0; i < gradients->count; i++) {
        ir_value **v = &gradients->items[i];
        ir_value *high = ir_scalar_like(b, *v, most);
        *v = ir_done(b, ir_new(b, IR_OP_clip, 3, *v, ir_scalar_like(b, *v, -most), high));
        if (!*v) return;
    }
}

static void clip_norm(ir_builder *b, value_list *gradients, ir_value *norm, double most)
{
    ir_value *divisor = ir_binary(b, IR_OP_add, norm, ir_scalar(b, IR_f32, 1e-6));
    ir_value *ratio = ir_binary(b, IR_OP_div, ir_scalar(b, IR_f32, most), divisor);
    ir_value *factor = ir_binary(b, IR_OP_min, ratio, ir_scalar(b, IR_f32, 1));
    if (factor) ir_value_rename(factor, "clip");
    for (size_t i = 0; i < gradients->count && factor; i++) {
        ir_value **v = &gradients->items[i];
        *v = ir_binary(b, IR_OP_mul, *v, ir_cast(b, factor, (*v)->type.dtype));
    }
}

/* Makes the gradient outputs of the graph, in this order, refer to these values. */
static void output_clipped(ir_builder *b, const value_list *outputs_of, ir_node **outputs)
{
    for (size_t i = 0; i < outputs_of->count; i++) {
        ir_value *v = outputs_of->items[i];
        if (!v) return;
        ir_value_rename(v, arena_printf(b->graph->module->arena, "c.%s", outputs[i]->of->name));
        ir_output_again(b, outputs[i], v);
    }
}

static ampc_status clip_graph(ir_graph *g, const compile_options *o, diag *d)
{
    arena *a = g->module->arena;
    ir_builder b = pass_builder(g, IR_UPDATE, d);
    value_list gradients = {0};
    VEC(ir_node *) outputs = {0};
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_gradient) continue;
        vec_push(a, &gradients, ir_in(n, 0));
        vec_push(a, &outputs, n);
    }
    if (!gradients.count) return AMPC_OK;
    ir_value *norm = pass_gradient_norm(&b, gradients.items, (int)gradients.count);
    if (norm) ir_output_as(&b, IR_OUTPUT_grad_norm, NULL, norm);
    if (o->clip_value > 0) clip_values(&b, &gradients, o->clip_value);
    if (norm && o->clip_value > 0 && o->clip_norm > 0)
        norm = pass_gradient_norm(&b, gradients.items, (int)gradients.count);
    if (o->clip_norm > 0) clip_norm(&b, &gradients, norm, o->clip_norm);
    output_clipped(&b, &gradients, outputs.items);
    return diag_status(d);
}

ampc_status pass_clip(ir_module *m, compile *c)
{
    static const ir_graph_role roles[] = {IR_GRAPH_train_step, IR_GRAPH_apply};
    const compile_options *o = c->options;
    if (!(o->clip_norm > 0 || o->clip_value > 0)) return AMPC_OK;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        ir_graph *g = ir_graph_by_role(m, roles[i]);
        if (g) TRY(clip_graph(g, o, c->diag));
    }
    return AMPC_OK;
}
