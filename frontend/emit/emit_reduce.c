/* emit_reduce.c - the Reduce operators, GlobalAveragePool, GlobalMaxPool. */
#include "frontend/emit/emit.h"
#include "ir/ops/reductions.h"

#include <string.h>

enum { AXES_OPERAND = 18, SUM_AXES_OPERAND = 13 };

static bool is_global_pool(const ir_node *n)
{
    return n->loc.op && (!strcmp(n->loc.op, "GlobalAveragePool") || !strcmp(n->loc.op, "GlobalMaxPool"));
}

/* Whether the op copies its operand if it reduces no axis. */
static bool copies(ir_op op)
{
    const ir_reduction r = ir_reduction_of(op);
    return r.combine == ir_combine_of_parts(r.combine) && r.finish <= IR_FINISH_mean;
}

static void emit_axes(emit_op *op, const ir_attr *axes)
{
    emitter *e = op->e;
    const int operand_since = op->n->op == IR_OP_reduce_sum ? SUM_AXES_OPERAND : AXES_OPERAND;
    if (!axes->list.count) { /* without this attribute, ONNX would reduce all axes */
        emit_need(e, AXES_OPERAND);
        emit_int(op, "noop_with_empty_axes", 1);
    }
    if (e->opset >= operand_since) emit_in(op, emit_i64s(e, axes->list.items, axes->list.count));
    else emit_ints(op, "axes", axes->list.items, axes->list.count);
}

void emit_reduce(emitter *e, const ir_node *n)
{
    const ir_attr *axes = &n->attr[IR_ATTR(reduce_sum, axes)];
    if (!axes->list.count && copies(n->op)) {
        emit_define(e, n, 0, emit_value(e, ir_in(n, 0)), ir_in(n, 0)->type.dtype);
        return;
    }
    emit_op op = emit_begin(e, n, is_global_pool(n) ? n->loc.op : e->rows[n->op].onnx->name);
    emit_operand(&op, 0);
    if (is_global_pool(n)) {
        emit_results(&op);
        emit_end(&op);
        return;
    }
    emit_axes(&op, axes);
    emit_finish(&op);
}
