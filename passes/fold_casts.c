/* fold_casts.c - removes casts that need not run.
 *
 * - A view of x with the shape of x becomes x.
 * - A cast of x to its own type becomes x.
 * - cast(cast(x)) becomes cast(x) if the inner cast is exact. A narrowing cast is never dropped.
 * - An input whose uses all cast it to one low type has that type itself, without --keep-io-types.
 * - cast(op(..)) becomes op{out=..} if the op has the attribute `out` and its result has no other use. A weight
 *   gradient leaves its GEMM in f32 this way. Folding a widening cast saves a rounding; folding a narrowing cast of an
 *   f32 result rounds once either way. Casts between the two low types are not folded.
 * - cast(part(op(..))) becomes part(op{out=..}) if it widens a part of a gradient that nothing else reads.
 *
 *   before  %d.w.h = matmul %d.y, %x.h : f16[4,3]           after  %d.w = matmul %d.y, %x.h {out=f32} : f32[4,3]
 *           %d.w   = cast %d.w.h       : f32[4,3] */
#include "passes/pass.h"

static bool is_widening(ir_dtype from, ir_dtype to)
{
    if (from == to) return true;
    if (!ir_dtype_is_float(from) || !ir_dtype_is_float(to)) return false;
    return to == IR_f64 || (to == IR_f32 && ir_dtype_is_low(from));
}

/* The only user of v, if that is a cast to `to` in the same phase. */
static ir_node *only_cast(const ir_value *v, ir_dtype to)
{
    const ir_use *u = v->first_use;
    bool only = u && !u->next && ir_op_has(u->user->op, IR_CONVERTS) && u->user->phase == v->def->phase;
    return only && ir_out(u->user, 0)->type.dtype == to ? u->user : NULL;
}

/* Whether result i is in the group of result 0, whose types all follow `out`. */
static bool follows_first(const ir_node *n, int i)
{
    return ir_op_out_slot(n->op, i, n->n_out)->group == ir_op_out_slot(n->op, 0, n->n_out)->group;
}

static bool all_cast_alike(const ir_node *n, ir_dtype to)
{
    for (int i = 0; i < n->n_out; i++)
        if (follows_first(n, i) && ir_value_used(n->out[i]) && !only_cast(n->out[i], to)) return false;
    return true;
}

static void absorb_cast(ir_value *x, ir_node *cast)
{
    ir_value *y = ir_out(cast, 0);
    ir_value_replace(y, x);
    ir_node_remove(cast);
    x->name = y->name; /* y is gone: the value named d.w.h becomes d.w */
}

/* If all users of an op's results cast them to one type, lets the op write that type itself. */
static void fold_into(ir_node *op, diag *d)
{
    int attr = ir_op_out_attr(op->op);
    if (attr < 0 || op->n_out == 0) return;
    const ir_value *read = NULL;
    for (int i = op->n_out; i-- > 0;)
        if (follows_first(op, i) && ir_value_used(op->out[i])) read = op->out[i];
    const ir_node *cast = read ? read->first_use->user : NULL;
    if (!cast || !ir_op_has(cast->op, IR_CONVERTS)) return;
    ir_dtype from = read->type.dtype, to = ir_out(cast, 0)->type.dtype;
    if (!(from == IR_f32 && ir_dtype_is_low(to)) && !(ir_dtype_is_low(from) && to == IR_f32)) return;
    if (!all_cast_alike(op, to)) return;
    ir_dtype before = op->attr[attr].dtype;
    ir_set_dtype(op, attr, to);
    if (ir_infer(op, d) != AMPC_OK || read->type.dtype != to) {
        ir_set_dtype(op, attr, before);
        ir_infer(op, d);
        return;
    }
    for (int i = 0; i < op->n_out; i++)
        if (follows_first(op, i) && ir_value_used(op->out[i])) absorb_cast(op->out[i], op->out[i]->first_use->user);
}

static bool is_read_once(const ir_value *v) { return v->first_use && !v->first_use->next; }

/* Moves a cast of a part of an op's result, in the backward, to the result, where fold_into may find it. */
static void widen_whole(ir_node *cast, diag *d)
{
    ir_value *x = ir_in(cast, 0), *y = ir_out(cast, 0);
    ir_node *part = ir_def(x), *op = part && part->n_in == 1 ? ir_def(ir_in(part, 0)) : NULL;
    if (!op || !ir_op_has(part->op, IR_PER_AXIS) || !ir_op_has(part->op, IR_MASKS) || ir_op_out_attr(op->op) < 0)
        return;
    if (cast->phase != IR_BACKWARD || part->phase != IR_BACKWARD || !ir_dtype_is_low(x->type.dtype) ||
        y->type.dtype != IR_f32 || !is_read_once(x) || !is_read_once(ir_in(part, 0)))
        return;
    ir_builder b = ir_builder_before(part, d);
    ir_value *wide = ir_cast(&b, ir_in(part, 0), IR_f32);
    if (!wide) return;
    ir_value_rename(wide, arena_printf(wide->graph->module->arena, "%s.s", ir_in(part, 0)->name));
    ir_node_set_input(part, 0, wide);
    if (ir_infer(part, d) != AMPC_OK) return;
    ir_value_replace(y, x);
    ir_node_remove(cast);
    x->name = y->name;
}

/* Removes the cast if it converts nothing. Returns whether it did. */
static bool fold_chain(ir_node *cast)
{
    ir_value *x = ir_in(cast, 0), *y = ir_out(cast, 0);
    ir_node *inner = ir_def(x);
    if (inner && ir_op_has(inner->op, IR_CONVERTS) && is_widening(ir_in(inner, 0)->type.dtype, x->type.dtype)) {
        ir_node_set_input(cast, 0, ir_in(inner, 0));
        if (!ir_value_used(x)) ir_node_remove(inner);
        return fold_chain(cast);
    }
    if (x->type.dtype != y->type.dtype) return false;
    ir_value_replace(y, x);
    ir_node_remove(cast);
    return true;
}

static bool is_identity_view(const ir_node *n)
{
    return ir_op_has(n->op, IR_VIEW) && ir_type_equal(&ir_in(n, 0)->type, &ir_out(n, 0)->type);
}

/* The low type to which every use of the input converts it; IR_NO_DTYPE: there is none. */
static ir_dtype only_read_as(const ir_value *input)
{
    ir_dtype low = IR_NO_DTYPE;
    for (const ir_use *u = input->first_use; u; u = u->next) {
        const ir_dtype to = ir_op_has(u->user->op, IR_CONVERTS) ? ir_out(u->user, 0)->type.dtype : IR_NO_DTYPE;
        if (!ir_dtype_is_low(to) || (low != IR_NO_DTYPE && to != low)) return IR_NO_DTYPE;
        low = to;
    }
    return low;
}

/* Without --keep-io-types, an input that is only read in a low type has that type. Inputs of subgraphs are captures. */
static void narrow_inputs(ir_graph *g)
{
    for (size_t i = 0; i < g->inputs.count; i++) {
        ir_value *input = g->inputs.items[i];
        const ir_dtype low = input->type.dtype == IR_f32 && input->role != IR_INPUT_label ? only_read_as(input)
                                                                                          : IR_NO_DTYPE;
        if (low == IR_NO_DTYPE) continue;
        input->type.dtype = low;
        for (ir_node *n = g->first, *next; n; n = next) {
            next = n->next;
            if (!ir_op_has(n->op, IR_CONVERTS) || ir_in(n, 0) != input || ir_out(n, 0)->type.dtype != low) continue;
            ir_value_replace(ir_out(n, 0), input);
            ir_node_remove(n);
        }
    }
}

/* `may_convert`: ops may write a type other than that of their operands. */
static void fold_graph(ir_graph *g, bool may_convert, diag *d)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (!is_identity_view(n)) continue;
        ir_value_replace(ir_out(n, 0), ir_in(n, 0));
        ir_node_remove(n);
    }
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (ir_op_has(n->op, IR_CONVERTS)) fold_chain(n);
    }
    for (ir_node *n = g->first, *next; n && may_convert; n = next) {
        next = n->next;
        if (ir_op_has(n->op, IR_CONVERTS)) widen_whole(n, d);
    }
    for (ir_node *n = g->first; n && may_convert; n = n->next) fold_into(n, d);
}

ampc_status pass_fold_casts(ir_module *m, compile *c)
{
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) {
        if (!c->options->keep_io_types && !g->owner) narrow_inputs(g);
        fold_graph(g, !c->options->plain_runtime, c->diag);
    }
    return diag_status(c->diag);
}
