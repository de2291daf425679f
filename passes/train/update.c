/* update.c - the ops that update one parameter. */
#include "passes/train/update.h"

#include <string.h>

/* The learning rate of a parameter, in its type. */
static ir_value *rate_of(update *u, const operands *x, ir_dtype type)
{
    const double factor = x->group.lr_factor * x->opt->lr_factor * u->lr_factor;
    ir_value *lr = u->lr;
    if (factor != 1) lr = ir_binary(&u->b, IR_OP_mul, lr, ir_scalar(&u->b, IR_f32, factor));
    return type == IR_f64 ? ir_cast(&u->b, lr, type) : lr;
}

/* The weight decay belongs to the first of the optimizer's ops that has one; all other settings to its main op. */
static void set_attributes(ir_node *n, const operands *x)
{
    const ir_op_info *info = ir_op_get(n->op);
    const int own = ir_op_find_attr(x->opt->op, "weight_decay");
    for (int i = 0; i < info->n_attr; i++) {
        const bool decay = strcmp(info->attr[i].name, "weight_decay") == 0;
        if (decay && (own < 0 || n->op == x->opt->op)) ir_set_float(n, i, x->group.weight_decay);
        else if (n->op != x->opt->op) continue;
        else if (info->attr[i].kind == IR_SLOT_DOUBLE) ir_set_float(n, i, x->opt->attr[i]);
        else ir_set_int(n, i, (int64_t)x->opt->attr[i]);
    }
}

static ir_value *operand(update *u, const operands *x, ir_op op, int i)
{
    if (i < ir_op_get(op)->n_out) return ir_graph_storage(u->graph, x->state[i]);
    if (i == ir_op_get(op)->n_out) return x->gradient;
    if (i == ir_op_find_in(op, "ratio")) return x->ratio;
    if (i == ir_op_find_in(op, ir_state_words[IR_STATE_step])) return u->step;
    if (i == ir_op_find_in(op, ir_state_words[IR_STATE_lr])) return rate_of(u, x, x->state[0]->type.dtype);
    return u->skip;
}

/* Operands and results of an optimizer begin with the parameter and its slots; the gradient follows. */
ir_node *update_op(update *u, ir_op op, const operands *x)
{
    const ir_op_info *info = ir_op_get(op);
    ir_value *in[OPTIMIZER_STATES + 5];
    for (int i = 0; i < info->n_in; i++) in[i] = operand(u, x, op, i);
    ir_node *node = ir_new_array(&u->b, op, info->n_in, in, 0);
    if (node) set_attributes(node, x);
    return ir_done_all(&u->b, node) ? node : NULL;
}

bool update_ratios(update *u, operands *all, int n)
{
    for (operands *x = all; x < all + n; x++)
        x->parts = ir_done(&u->b,
                           ir_new(&u->b, IR_OP_norm_parts, 2, ir_graph_storage(u->graph, x->state[0]), x->gradient));
    for (operands *x = all; x < all + n; x++) {
        ir_node *node = x->parts ? ir_new(&u->b, IR_OP_trust_ratio, 1, x->parts) : NULL;
        if (!node) return false;
        ir_set_float(node, IR_ATTR(trust_ratio, coefficient), x->opt->trust[IR_ATTR(trust_ratio, coefficient)]);
        ir_set_float(node, IR_ATTR(trust_ratio, eps), x->opt->trust[IR_ATTR(trust_ratio, eps)]);
        if (x->opt->finish == IR_OP_COUNT)
            ir_set_float(node, IR_ATTR(trust_ratio, weight_decay), x->group.weight_decay);
        x->ratio = ir_done(&u->b, node);
    }
    return true;
}
