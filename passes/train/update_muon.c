/* update_muon.c - Muon as torch.optim.Muon: the momentum of a matrix is orthogonalized by steps of the Newton-Schulz
 * iteration, which are matmuls. PyTorch computes them in bf16; here they are in the type of the parameter. A
 * convolution kernel is a matrix with a row for each output channel. */
#include "passes/train/update.h"

#include <math.h>

/* ---- which parameters --------------------------------------------------------------------------- */

/* Whether the values of a parameter are looked up by index: it is a table of embeddings. */
static bool is_table(ir_value *v)
{
    for (const ir_use *use = v->first_use; use; use = use->next) {
        const ir_node *n = use->user;
        if (n->op == IR_OP_gather && use->index == IR_IN(gather, x)) return true;
        if (ir_op_has(n->op, IR_CONVERTS) && is_table(n->out[0])) return true;
    }
    return false;
}

static bool is_empty(const ir_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) return true;
    return false;
}

bool update_takes_muon(update *u, ir_storage *param, const optimizer_group *group)
{
    if (group->muon == 1 && param->type.rank < 2)
        diag_error(u->b.diag, AMPC_USAGE, DIAG_OPTION(groups), "muon=1 for '%s', which is not a matrix: its rank is %d",
                   param->name, param->type.rank);
    if (group->muon >= 0) return group->muon && !is_empty(&param->type);
    return param->type.rank == 2 && !is_empty(&param->type) && !is_table(ir_graph_storage(u->network, param));
}

/* Whether the parameter has a row for each input of a layer, as in MatMul, instead of each output. */
static bool has_input_rows(const ir_value *v)
{
    for (const ir_use *use = v->first_use; use; use = use->next) {
        const ir_node *n = use->user;
        if (n->phase != IR_FORWARD) continue;
        if (n->op == IR_OP_matmul && use->index == IR_IN(matmul, b)) return !n->attr[IR_ATTR(matmul, trans_b)].i;
        if (ir_op_has(n->op, IR_CONVERTS) && has_input_rows(n->out[0])) return true;
    }
    return false;
}

/* ---- the update --------------------------------------------------------------------------------- */

/* X / |X|, so that no singular value is above 1. */
static ir_value *normalize(update *u, ir_value *x, double eps)
{
    ir_node *node = ir_new(&u->b, IR_OP_reduce_l2, 1, x);
    if (node) ir_set_list(node, IR_ATTR(reduce_l2, axes), (int64_t[]){0, 1}, 2);
    ir_value *norm = ir_done(&u->b, node);
    if (!norm) return NULL;
    return ir_binary(&u->b, IR_OP_div, x, ir_binary(&u->b, IR_OP_max, norm, ir_scalar_like(&u->b, norm, eps)));
}

static ir_value *scaled(update *u, ir_value *v, double by)
{
    return v ? ir_binary(&u->b, IR_OP_mul, v, ir_scalar_like(&u->b, v, by)) : NULL;
}

/* a X + (b G + c G G) X, with the Gram matrix G = X X^T; for a tall matrix likewise from the right, with G = X^T X. */
static ir_value *iterate(update *u, ir_value *x, const double *coefficients)
{
    const bool tall = x->type.dims[0] > x->type.dims[1];
    ir_value *gram = ir_matmul(&u->b, x, x, NULL, tall, !tall);
    ir_value *square = gram ? ir_matmul(&u->b, gram, gram, NULL, false, false) : NULL;
    square = scaled(u, square, coefficients[2]);
    ir_value *factor = ir_binary(&u->b, IR_OP_add, scaled(u, gram, coefficients[1]), square);
    if (!factor) return NULL;
    ir_value *product = ir_matmul(&u->b, tall ? x : factor, tall ? factor : x, NULL, false, false);
    return ir_binary(&u->b, IR_OP_add, scaled(u, x, coefficients[0]), product);
}

static ir_value *orthogonalize(update *u, ir_value *direction, const double *setting)
{
    const ir_type shape = direction->type;
    int64_t columns = 1;
    for (int i = 1; i < shape.rank; i++) columns *= shape.dims[i];
    ir_value *x = ir_reshape(&u->b, direction, (ir_dim[]){shape.dims[0], columns}, 2);
    if (x) x = normalize(u, x, setting[MUON_EPS]);
    for (int i = 0; x && i < (int)setting[MUON_NS_STEPS]; i++) x = iterate(u, x, &setting[MUON_NS_A]);
    return x ? ir_reshape_like(&u->b, x, &shape) : NULL;
}

/* By what the learning rate of a layer is multiplied. */
static double adjustment(double outputs, double inputs, int how)
{
    if (how == MUON_ORIGINAL) return sqrt(fmax(1, outputs / inputs));
    return how == MUON_MATCH_RMS_ADAMW ? 0.2 * sqrt(fmax(outputs, inputs)) : sqrt(outputs / inputs);
}

static ir_value *adjustment_of(update *u, ir_storage *param, int how)
{
    double rows = (double)param->type.dims[0], columns = 1;
    for (int i = 1; i < param->type.rank; i++) columns *= (double)param->type.dims[i];
    const bool swapped = has_input_rows(ir_graph_storage(u->network, param));
    const double number = swapped ? adjustment(columns, rows, how) : adjustment(rows, columns, how);
    const float rounded = (float)number;
    const ir_type type = ir_type_make(param->type.dtype, 1, (int64_t[]){1});
    const char *name = arena_printf(u->graph->module->arena, "%s.adjustment", param->name);
    return ir_constant(&u->b, name, &type, type.dtype == IR_f64 ? (const void *)&number : &rounded);
}

bool update_muon(update *u, operands *all, int n)
{
    for (operands *x = all; x < all + n; x++) {
        x->gradient = orthogonalize(u, x->gradient, x->opt->setting);
        x->ratio = adjustment_of(u, x->state[0], (int)x->opt->setting[MUON_ADJUST]);
        if (!x->gradient || !x->ratio) return false;
    }
    return true;
}
