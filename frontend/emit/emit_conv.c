/* emit_conv.c - Conv, MaxPool. */
#include "frontend/emit/emit.h"

void emit_conv(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "Conv");
    const ir_type *w = &ir_in(n, IR_IN(conv, w))->type;
    emit_operands(&op);
    if (!ir_dim_is_symbolic(w->dims[2])) emit_ints(&op, "kernel_shape", w->dims + 2, w->rank - 2);
    emit_finish(&op);
}

void emit_max_pool(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "MaxPool");
    emit_operands(&op);
    emit_attributes(&op);
    emit_result(&op, 0, n->out[0]->type.dtype);
    if (ir_value_used(n->out[IR_OUT(max_pool, indices)])) emit_result(&op, IR_OUT(max_pool, indices), IR_i64);
    emit_end(&op);
}
