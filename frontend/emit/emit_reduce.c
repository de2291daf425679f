/* emit_reduce.c - ReduceSum, ReduceMean, GlobalAveragePool. */
#include "frontend/emit/emit.h"

#include <string.h>

enum { SUM_AXES_OPERAND = 13, MEAN_AXES_OPERAND = 18 };

/* `operand_since`: the first opset in which the axes are an operand. */
static void reduce(emitter *e, const ir_node *n, const ir_attr *axes, int operand_since)
{
    if (!axes->list.count) { /* without axes, ONNX would reduce all of them */
        emit_define(e, n, 0, emit_value(e, ir_in(n, 0)), ir_in(n, 0)->type.dtype);
        return;
    }
    emit_op op = emit_begin(e, n, e->rows[n->op].onnx->name);
    emit_operand(&op, 0);
    if (e->opset >= operand_since) emit_in(&op, emit_i64s(e, axes->list.items, axes->list.count));
    else emit_ints(&op, "axes", axes->list.items, axes->list.count);
    emit_finish(&op);
}

void emit_reduce_sum(emitter *e, const ir_node *n)
{
    reduce(e, n, &n->attr[IR_ATTR(reduce_sum, axes)], SUM_AXES_OPERAND);
}

void emit_reduce_mean(emitter *e, const ir_node *n)
{
    if (n->loc.op && strcmp(n->loc.op, "GlobalAveragePool") == 0) {
        emit_op op = emit_begin(e, n, "GlobalAveragePool");
        emit_operand(&op, 0);
        emit_results(&op);
        emit_end(&op);
        return;
    }
    reduce(e, n, &n->attr[IR_ATTR(reduce_mean, axes)], MEAN_AXES_OPERAND);
}
