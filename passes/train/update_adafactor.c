/* update_adafactor.c - Adafactor as torch.optim.Adafactor: the second moments of a matrix are the outer product of two
 * vectors, the means over its last axis (slot row) and over the one before it (slot col). For more than two axes there
 * is one matrix for each index of the others.
 *   row += t^decay * (mean of the squares of g - row), col likewise
 *   direction = g / max(sqrt(row * col / max(mean of row, eps1)), eps1)
 *   ratio = max(eps2, RMS(parameter)) / max(1, RMS(direction) / d)
 * The op adafactor does the rest. Vectors and scalars have all moments (slot variance). */
#include "passes/train/update.h"

#include <float.h>
#include <math.h>

static bool is_factored(const operands *x)
{
    const ir_type *t = &x->state[0]->type;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) return false;
    return t->rank > 1;
}

static double smallest(const operands *x)
{
    const double eps = x->opt->setting[ADAFACTOR_EPS1];
    if (!isnan(eps)) return eps;
    return x->state[0]->type.dtype == IR_f64 ? DBL_EPSILON : FLT_EPSILON;
}

static ir_value *reduce(update *u, ir_op op, int axis_slot, ir_value *v, int axis)
{
    ir_node *node = v ? ir_new(&u->b, op, 1, v) : NULL;
    if (node) ir_set_list(node, axis_slot, (int64_t[]){axis}, 1);
    return ir_done(&u->b, node);
}

/* The mean of the squares of the gradient over an axis. */
static ir_value *mean_of_squares(update *u, const operands *x, int axis)
{
    ir_value *sum = reduce(u, IR_OP_reduce_sum_square, IR_ATTR(reduce_sum_square, axes), x->gradient, axis);
    const double count = (double)x->state[0]->type.dims[axis];
    return sum ? ir_binary(&u->b, IR_OP_mul, sum, ir_scalar_like(&u->b, sum, 1 / count)) : NULL;
}

/* Replaces the mean by the new value of the slot, a moving average of the means. */
static bool average_slot(update *u, operands *x, const char *slot, ir_value **mean)
{
    if (!*mean) return false;
    ir_storage *s = pass_slot(u->graph->module, x->state[0], slot, &(*mean)->type);
    ir_node *node = ir_new(&u->b, IR_OP_second_moment, 4, ir_graph_storage(u->graph, s), *mean, u->step, u->skip);
    if (node) ir_set_float(node, IR_ATTR(second_moment, decay), x->opt->setting[ADAFACTOR_BETA2_DECAY]);
    *mean = ir_done(&u->b, node);
    pass_store_new(&u->b, s, *mean);
    return *mean != NULL;
}

static ir_value *at_least(update *u, ir_value *v, double least)
{
    return v ? ir_binary(&u->b, IR_OP_max, v, ir_scalar_like(&u->b, v, least)) : NULL;
}

/* The estimated second moments; row and col are the new slots, or only row, which then has all of them. */
static ir_value *second_moments(update *u, const operands *x, ir_value *row, ir_value *col)
{
    if (!col) return row;
    const int axis = x->state[0]->type.rank - 2;
    ir_value *mean = reduce(u, IR_OP_reduce_mean, IR_ATTR(reduce_mean, axes), row, axis);
    return ir_binary(&u->b, IR_OP_mul, ir_binary(&u->b, IR_OP_div, row, at_least(u, mean, smallest(x))), col);
}

/* The means of the squares by which the slots of a parameter change. */
typedef struct moments {
    ir_value *row, *col;
} moments;

static void make_means(update *u, const operands *x, moments *m)
{
    const int rank = x->state[0]->type.rank;
    const bool factored = is_factored(x);
    m->row = factored ? mean_of_squares(u, x, rank - 1) : ir_binary(&u->b, IR_OP_mul, x->gradient, x->gradient);
    m->col = factored ? mean_of_squares(u, x, rank - 2) : NULL;
}

static bool make_slots(update *u, operands *all, int n, moments *m)
{
    for (int i = 0; i < n; i++)
        if (!average_slot(u, &all[i], m[i].col ? "row" : "variance", &m[i].row)) return false;
    for (int i = 0; i < n; i++)
        if (m[i].col && !average_slot(u, &all[i], "col", &m[i].col)) return false;
    return true;
}

static void make_ratios(update *u, operands *all, int n)
{
    for (operands *x = all; x < all + n; x++) {
        ir_node *node = ir_new(&u->b, IR_OP_norm_parts, 2, ir_graph_storage(u->graph, x->state[0]), x->gradient);
        if (node) ir_set_bool(node, IR_ATTR(norm_parts, mean), true);
        x->parts = ir_done(&u->b, node);
    }
    for (operands *x = all; x < all + n; x++) {
        ir_node *node = x->parts ? ir_new(&u->b, IR_OP_clipped_ratio, 1, x->parts) : NULL;
        if (!node) continue;
        ir_set_float(node, IR_ATTR(clipped_ratio, least), x->opt->setting[ADAFACTOR_EPS2]);
        ir_set_float(node, IR_ATTR(clipped_ratio, clip), x->opt->setting[ADAFACTOR_D]);
        x->ratio = ir_done(&u->b, node);
    }
}

bool update_adafactor(update *u, operands *all, int n)
{
    moments *m = arena_array(u->graph->module->arena, (size_t)n, sizeof *m);
    for (int i = 0; i < n; i++) make_means(u, &all[i], &m[i]);
    if (!make_slots(u, all, n, m)) return false;
    for (int i = 0; i < n; i++) {
        ir_value *variance = second_moments(u, &all[i], m[i].row, m[i].col);
        ir_value *root = variance ? ir_unary(&u->b, IR_OP_sqrt, variance) : NULL;
        all[i].gradient = ir_binary(&u->b, IR_OP_div, all[i].gradient, at_least(u, root, smallest(&all[i])));
    }
    make_ratios(u, all, n);
    return diag_status(u->b.diag) == AMPC_OK;
}
