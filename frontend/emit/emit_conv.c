/* emit_conv.c - Conv. */
#include "frontend/emit/emit.h"

void emit_conv(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "Conv");
    const ir_type *w = &ir_in(n, IR_IN(conv, w))->type;
    emit_operands(&op);
    if (!ir_dim_is_symbolic(w->dims[2])) emit_ints(&op, "kernel_shape", w->dims + 2, w->rank - 2);
    emit_list(&op, "strides", IR_ATTR(conv, strides));
    emit_list(&op, "pads", IR_ATTR(conv, pads));
    emit_list(&op, "dilations", IR_ATTR(conv, dilations));
    emit_int(&op, "group", n->attr[IR_ATTR(conv, group)].i);
    emit_result(&op, 0, ir_in(n, 0)->type.dtype);
    emit_end(&op);
}
