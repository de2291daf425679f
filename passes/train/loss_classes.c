/* loss_classes.c - the class axis of scores, and their arrangement with that axis 1, where the loss ops expect it. */
#include "passes/train/loss.h"

#include <string.h>

/* ---- finding the axis ------------------------------------------------------------------------ */

/* Whether n is a convolution, of which the op table says that images are operands and a filter is `w`. */
static bool is_convolution(const ir_node *n) { return ir_op_has(n->op, IR_SPATIAL) && ir_in_named(n, "w"); }

static int through_transpose(const ir_node *n, int axis)
{
    const ir_attr *perm = &n->attr[IR_ATTR(transpose, perm)];
    for (int i = 0; i < perm->list.count; i++)
        if (perm->list.items[i] == axis) return i;
    return -1;
}

/* The axis with the same size and as many elements before it; -1 if there is none. */
static int through_view(const ir_node *n, int axis)
{
    ir_dim_table *t = n->graph->module->dims;
    const ir_type *from = &ir_in(n, 0)->type, *to = &ir_out(n, 0)->type;
    ir_dim before = ir_dim_product(t, from->dims, axis);
    if (before == IR_DIM_NONE) return -1;
    for (int i = to->rank - 1; i >= 0; i--)
        if (to->dims[i] == from->dims[axis] && ir_dim_product(t, to->dims, i) == before) return i;
    return -1;
}

/* Whether elements keep their position, up to broadcasting, resampling, padding, slicing and
 * concatenation. */
static bool keeps_positions(const ir_node *n)
{
    if (ir_op_has(n->op, IR_ELEMENTWISE | IR_SPATIAL | IR_PER_AXIS | IR_BY_AXIS)) return true;
    return n->n_in && ir_in(n, 0) && ir_type_same_shape(&ir_in(n, 0)->type, &ir_out(n, 0)->type);
}

/* The axis on which all operands agree whose axis is known; axes count from the end, as in broadcasting. */
static int of_operands(const ir_node *n, const int *axes)
{
    int found = -1, rank = ir_out(n, 0)->type.rank;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || v->kind != IR_VALUE_RESULT || axes[v->id] < 0) continue;
        int axis = axes[v->id] + rank - v->type.rank;
        if (axis < 0 || axis >= rank || (found >= 0 && found != axis)) return -1;
        found = axis;
    }
    return found;
}

static int axis_of_result(const ir_node *n, const int *axes)
{
    const ir_type *y = &ir_out(n, 0)->type;
    if (n->op == IR_OP_matmul) return y->rank - 1;
    if (is_convolution(n)) return 1;
    const ir_value *x = ir_in(n, 0);
    if (!x || x->kind != IR_VALUE_RESULT) return keeps_positions(n) ? of_operands(n, axes) : -1;
    if (n->op == IR_OP_transpose) return axes[x->id] < 0 ? -1 : through_transpose(n, axes[x->id]);
    if (ir_op_has(n->op, IR_VIEW)) return axes[x->id] < 0 ? -1 : through_view(n, axes[x->id]);
    return keeps_positions(n) ? of_operands(n, axes) : -1;
}

int loss_class_axis(ir_graph *g, const ir_value *v)
{
    if (v->kind != IR_VALUE_RESULT) return -1;
    ir_graph_renumber(g);
    arena *scratch = pass_scratch_new(g->module);
    int *axes = arena_array(scratch, g->value_ids + 1, sizeof *axes);
    for (const ir_node *n = g->first; n; n = n->next) {
        for (int i = 0; i < n->n_out; i++) axes[n->out[i]->id] = -1;
        if (n->n_out) axes[n->out[0]->id] = axis_of_result(n, axes);
    }
    int axis = axes[v->id];
    arena_free(scratch);
    return axis;
}

/* ---- arranging the scores -------------------------------------------------------------------- */

/* x with that axis last. */
static ir_value *move_last(ir_builder *b, ir_value *x, int axis)
{
    int64_t perm[IR_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (i != axis) perm[n++] = i;
    perm[n] = axis;
    return ir_transpose(b, x, perm);
}

ir_value *loss_arrange(ir_builder *b, ir_value *x, const ir_type *scores, int axis, bool items)
{
    if (axis == 1 || !x) return x;
    ir_dim dims[2] = {1, scores->dims[axis]};
    for (int i = 0; i < scores->rank; i++)
        if (i != axis) dims[0] = ir_dim_mul(b->graph->module->dims, dims[0], scores->dims[i]);
    if (dims[0] == IR_DIM_NONE) {
        diag_error(b->diag, AMPC_UNSUPPORTED, DIAG_NOWHERE, "loss: too many scores in %s",
                   ir_type_print(b->graph->module, scores, b->graph->module->arena));
        return NULL;
    }
    return items ? ir_reshape(b, x, dims, 1) : ir_reshape(b, move_last(b, x, axis), dims, 2);
}
