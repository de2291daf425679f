/* batch_norm_count.c - pass running_var: running variances follow the unbiased variance of the batch, as in PyTorch.
 *
 * The op uses the population variance b of n elements per channel (ONNX). n / (n - 1) is 1 + 1 / (n - 1), so what it
 * adds to the running variance, (1 - momentum) b, is added once more, divided by n - 1:
 *
 *     .., %v, .. = batch_norm %x, .., @var {momentum, training}
 *     %part      = sub %v, (mul @var, momentum)
 *     %more      = div_count %part {count=[N,H,W], less=1}
 *     %var.new   = add %v, %more
 *
 * in f32, or f64 if the variance is. A single element has no unbiased variance; its b is 0, and so is %more. */
#include "passes/train/batch_norm_count.h"
#include "passes/pass.h"

#define BINARY(op, x, y) ir_binary(b, IR_OP_##op, x, y)

ir_value *batch_norm_share(ir_builder *b, ir_value *v, const ir_type *x, int64_t less)
{
    ir_dim count[IR_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != 1) count[n++] = x->dims[i];
    ir_node *part = v ? ir_new(b, IR_OP_div_count, 1, v) : NULL;
    if (!part) return NULL;
    ir_set_list(part, IR_ATTR(div_count, count), count, n);
    ir_set_int(part, IR_ATTR(div_count, less), less);
    return ir_done(b, part);
}

bool batch_norm_divides_by_less(const ir_node *n)
{
    return n->op == IR_OP_div_count && n->attr[IR_ATTR(div_count, less)].i;
}

static void make_unbiased(ir_node *n, diag *d)
{
    ir_builder after = ir_builder_after(n, d), *b = &after;
    ir_value *v = ir_out(n, IR_OUT(batch_norm, var_out)), *old = ir_in(n, IR_IN(batch_norm, var));
    const ir_dtype type = v->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    ir_value *biased = ir_cast(b, v, type), *kept = ir_cast(b, old, type);
    kept = BINARY(mul, kept, ir_scalar_like(b, kept, n->attr[IR_ATTR(batch_norm, momentum)].f));
    ir_value *part = BINARY(sub, biased, kept);
    ir_value *sum = BINARY(add, biased, batch_norm_share(b, part, &ir_in(n, IR_IN(batch_norm, x))->type, 1));
    ir_value *fresh = ir_cast(b, sum, v->type.dtype);
    if (!fresh) return;
    for (ir_use *u = v->first_use, *next; u; u = next) {
        next = u->next;
        const bool own = u->user == ir_def(biased) || u->user == ir_def(part) || u->user == ir_def(sum);
        if (!own) ir_node_set_input(u->user, u->index, fresh);
    }
}

ampc_status pass_running_var(ir_module *m, compile *c)
{
    ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train);
    if (!g || c->options->running_var == PASS_VARIANCE_BIASED) return AMPC_OK;
    for (ir_node *n = g->first; n; n = n->next)
        if (n->op == IR_OP_batch_norm && n->attr[IR_ATTR(batch_norm, training)].i &&
            ir_value_used(ir_out(n, IR_OUT(batch_norm, var_out))))
            make_unbiased(n, c->diag);
    return diag_status(c->diag);
}
