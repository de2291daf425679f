/* emit_pool.c - MaxPool, AveragePool. */
#include "frontend/emit/emit.h"

void emit_max_pool(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "MaxPool");
    emit_operands(&op);
    emit_list(&op, "kernel_shape", IR_ATTR(max_pool, kernel));
    emit_list(&op, "strides", IR_ATTR(max_pool, strides));
    emit_list(&op, "pads", IR_ATTR(max_pool, pads));
    emit_list(&op, "dilations", IR_ATTR(max_pool, dilations));
    if (n->attr[IR_ATTR(max_pool, ceil)].i) emit_int(&op, "ceil_mode", 1);
    if (n->attr[IR_ATTR(max_pool, column_major)].i) emit_int(&op, "storage_order", 1);
    emit_result(&op, 0, n->out[0]->type.dtype);
    if (ir_value_used(n->out[IR_OUT(max_pool, indices)])) emit_result(&op, IR_OUT(max_pool, indices), IR_i64);
    emit_end(&op);
}

void emit_average_pool(emitter *e, const ir_node *n)
{
    enum { WITH_DILATIONS = 19 };
    const ir_attr *dilations = &n->attr[IR_ATTR(avg_pool, dilations)];
    bool dilated = false;
    for (int i = 0; i < dilations->list.count; i++) dilated |= dilations->list.items[i] != 1;
    emit_op op = emit_begin(e, n, "AveragePool");
    emit_operands(&op);
    emit_list(&op, "kernel_shape", IR_ATTR(avg_pool, kernel));
    emit_list(&op, "strides", IR_ATTR(avg_pool, strides));
    emit_list(&op, "pads", IR_ATTR(avg_pool, pads));
    if (dilated) {
        emit_need(e, WITH_DILATIONS);
        emit_list(&op, "dilations", IR_ATTR(avg_pool, dilations));
    }
    if (n->attr[IR_ATTR(avg_pool, ceil)].i) emit_int(&op, "ceil_mode", 1);
    if (n->attr[IR_ATTR(avg_pool, count_pad)].i) emit_int(&op, "count_include_pad", 1);
    emit_results(&op);
    emit_end(&op);
}
