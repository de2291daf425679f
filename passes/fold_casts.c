/* fold_casts.c - casts that need not run.
 *
 * - cast(x) to the type x has: x.
 * - cast(cast(x)) where the inner cast loses nothing: cast(x). A narrowing cast is never dropped.
 * - cast(op(...)) where op can write the other type (attribute `out`) and nothing else reads its result: op{out=...}. A
 *   weight gradient leaves its GEMM in f32 this way. Only widening, so that one rounding is saved and none added; narrowing
 *   of an f32 result that comes from an op with an f32 accumulator is the same single rounding, and folded too. */
#include "passes/pass.h"

#include <string.h>

static bool is_widening(ir_dtype from, ir_dtype to)
{
    if (from == to) return true;
    if (!ir_dtype_is_float(from) || !ir_dtype_is_float(to)) return false;
    return to == IR_f64 || (to == IR_f32 && ir_dtype_is_low(from));
}

static int out_attr(const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    for (int i = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == IR_SLOT_DTYPE && strcmp(info->attr[i].name, "out") == 0) return i;
    return -1;
}

static bool fold_into_producer(ir_node *cast, diag *d)
{
    ir_value *x = ir_in(cast, 0), *y = ir_out(cast, 0);
    if (x->kind != IR_VALUE_RESULT || x->def_index != 0 || x->first_use->next) return false;
    ir_node *op = x->def;
    int attr = out_attr(op);
    bool floats = ir_dtype_is_float(x->type.dtype) && ir_dtype_is_float(y->type.dtype);
    if (attr < 0 || !floats || op->phase != cast->phase || y->type.dtype == IR_f64 || x->type.dtype == IR_f64) return false;
    /* A second float result in the same group would change along. */
    for (int i = 1; i < op->n_out; i++)
        if (ir_value_used(op->out[i]) && ir_op_out_slot(op->op, i, op->n_out)->group == IR_GROUP_F) return false;
    ir_dtype before = op->attr[attr].dtype;
    ir_set_dtype(op, attr, y->type.dtype);
    if (ir_infer(op, d) != AMPC_OK || x->type.dtype != y->type.dtype) {
        ir_set_dtype(op, attr, before);
        ir_infer(op, d);
        return false;
    }
    ir_value_replace(y, x);
    ir_node_remove(cast);
    return true;
}

static bool fold(ir_node *cast, diag *d)
{
    ir_value *x = ir_in(cast, 0), *y = ir_out(cast, 0);
    if (x->type.dtype == y->type.dtype) {
        ir_value_replace(y, x);
        ir_node_remove(cast);
        return true;
    }
    ir_node *inner = x->kind == IR_VALUE_RESULT ? x->def : NULL;
    if (inner && inner->op == IR_OP_cast && is_widening(ir_in(inner, 0)->type.dtype, x->type.dtype)) {
        ir_node_set_input(cast, 0, ir_in(inner, 0));
        return fold(cast, d);
    }
    return fold_into_producer(cast, d);
}

static int fold_graph(ir_graph *g, diag *d)
{
    int removed = 0;
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op != IR_OP_cast || !ir_value_used(ir_out(n, 0))) continue;
        bool inserted = !n->loc.op && n->phase == IR_FORWARD;
        if (fold(n, d)) removed += inserted;
    }
    return removed;
}

ampc_status pass_fold_casts(ir_module *m, const pass_options *o, diag *d)
{
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        int removed = fold_graph(g, d);
        bool primary = strcmp(g->name, "train_step") == 0 || (i == 0 && !ir_graph_find(m, "train_step"));
        if (primary && o->stats) o->stats->casts_removed += removed;
    }
    return diag_status(d);
}
