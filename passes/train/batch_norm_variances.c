/* batch_norm_variances.c - running variances of BatchNormalization from sample variances, as PyTorch computes them.
 *
 *     _, %m, %v, .. = batch_norm %x, .., @m, @v {momentum, training}
 *     store @v, %v
 *
 * stores, with n elements per channel, %v + (%v - @v * momentum) / (n - 1) instead of %v. The divisor is computed from
 * 1/n as max(1 - 1/n, 1/n), so that a variance of one element is 0 and not undefined. */
#include "passes/train/batch_norm_mode.h"

#define BINARY(op, x, y) ir_binary(b, IR_OP_##op, x, y)

static bool is_training(const ir_node *n)
{
    return n->op == IR_OP_batch_norm && n->attr[IR_ATTR(batch_norm, training)].i;
}

/* 1 / (n - 1) */
static ir_value *over_others(ir_builder *b, const ir_value *like, const ir_type *x)
{
    ir_value *one = ir_scalar_like(b, like, 1), *share = batch_norm_over_count(b, one, x);
    return BINARY(div, share, BINARY(max, BINARY(sub, one, share), share));
}

static void correct(ir_node *n, diag *d)
{
    ir_value *v = ir_out(n, IR_OUT(batch_norm, var_out));
    if (!ir_value_used(v)) return;
    ir_builder after = ir_builder_after(n, d), *b = &after;
    ir_value *old = ir_cast(b, ir_in(n, IR_IN(batch_norm, var)), v->type.dtype);
    ir_value *kept = BINARY(mul, old, ir_scalar_like(b, v, n->attr[IR_ATTR(batch_norm, momentum)].f));
    ir_value *fresh = BINARY(sub, v, kept);
    ir_value *sum = BINARY(add, v, BINARY(mul, fresh, over_others(b, v, &ir_in(n, IR_IN(batch_norm, x))->type)));
    if (!sum) return;
    ir_value_replace(v, sum);
    ir_node_set_input(fresh->def, 0, v);
    ir_node_set_input(sum->def, 0, v);
}

ampc_status pass_variances(ir_module *m, compile *c)
{
    ir_graph *train = ir_graph_by_role(m, IR_GRAPH_train);
    if (!c->options->sample_variances || !train) return AMPC_OK;
    for (ir_graph *each = train; each; each = ir_next_graph_in(train, each))
        for (ir_node *n = each->first; n; n = n->next) {
            if (!is_training(n)) continue;
            if (c->options->sync_bn)
                return diag_error(c->diag, AMPC_UNSUPPORTED, ir_diag_loc(n),
                                  "sample variances of the samples of all ranks are not supported");
            correct(n, c->diag);
        }
    return diag_status(c->diag);
}
