/* emit_select.c - ArgMax, ArgMin, TopK, CumSum. */
#include "frontend/emit/emit.h"

void emit_arg_max(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, n->attr[IR_ATTR(arg_max, largest)].i ? "ArgMax" : "ArgMin");
    emit_operand(&op, 0);
    emit_finish(&op);
}

void emit_top_k(emitter *e, const ir_node *n)
{
    const ir_attr *count = &n->attr[IR_ATTR(top_k, count)];
    emit_op op = emit_begin(e, n, "TopK");
    emit_operand(&op, 0);
    emit_in(&op, emit_dims(e, n, count->list.items, 1));
    emit_finish(&op);
}

void emit_cum_sum(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "CumSum");
    emit_operand(&op, 0);
    emit_in(&op, emit_i64(e, n->attr[IR_ATTR(cum_sum, axis)].i));
    emit_finish(&op);
}
