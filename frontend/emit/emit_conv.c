/* emit_conv.c - Conv, ConvTranspose, MaxPool, AveragePool. */
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

/* The sum of numbers that are not negative is their norm of order 1. */
static void emit_sum_pool(emitter *e, const ir_node *n)
{
    enum { WITH_CEIL_MODE = 18 };
    const ir_attr *a = n->attr;
    const int axes = a[IR_ATTR(avg_pool, kernel)].list.count;
    const bool ceil = a[IR_ATTR(avg_pool, ceil)].i;
    bool dilated = false;
    for (int i = 0; i < axes; i++) dilated |= a[IR_ATTR(avg_pool, dilations)].list.items[i] != 1;
    if (ceil || dilated) emit_need(e, WITH_CEIL_MODE);
    emit_op op = emit_begin(e, n, "LpPool");
    emit_operands(&op);
    emit_int(&op, "p", 1);
    emit_ints(&op, "kernel_shape", a[IR_ATTR(avg_pool, kernel)].list.items, axes);
    emit_ints(&op, "strides", a[IR_ATTR(avg_pool, strides)].list.items, axes);
    emit_ints(&op, "pads", a[IR_ATTR(avg_pool, pads)].list.items, 2 * axes);
    if (dilated) emit_ints(&op, "dilations", a[IR_ATTR(avg_pool, dilations)].list.items, axes);
    if (ceil) emit_int(&op, "ceil_mode", 1);
    emit_results(&op);
    emit_end(&op);
}

void emit_avg_pool(emitter *e, const ir_node *n)
{
    if (n->attr[IR_ATTR(avg_pool, sum)].i) emit_sum_pool(e, n);
    else emit_simple(e, n);
}

/* A convolution's gradient is a transposed convolution; output_padding is what its window positions do not cover. */
void emit_conv_transpose(emitter *e, const ir_node *n)
{
    ir_dim_table *t = e->module->dims;
    const ir_attr *a = n->attr;
    const ir_type *x = &ir_in(n, IR_IN(conv_grad_input, dy))->type, *w = &ir_in(n, IR_IN(conv_grad_input, w))->type;
    const int axes = x->rank - 2;
    const int64_t *pads = a[IR_ATTR(conv_grad_input, pads)].list.items;
    int64_t extra[IR_MAX_RANK];
    for (int i = 0; i < axes; i++) {
        const int64_t stride = a[IR_ATTR(conv_grad_input, strides)].list.items[i];
        const int64_t dilation = a[IR_ATTR(conv_grad_input, dilations)].list.items[i];
        const ir_dim reach = ir_dim_add(t, ir_dim_mul(t, ir_dim_sub(t, w->dims[2 + i], 1), dilation), 1);
        const ir_dim padded = ir_dim_add(t, a[IR_ATTR(conv_grad_input, shape)].list.items[2 + i],
                                         pads[i] + pads[axes + i]);
        const ir_dim covered = ir_dim_add(t, ir_dim_mul(t, ir_dim_sub(t, x->dims[2 + i], 1), stride), reach);
        extra[i] = ir_dim_sub(t, padded, covered);
        if (extra[i] < 0) { /* symbolic */
            emit_refuse(e, n, "the output padding of axis %d depends on a dimension that is not bound", i);
            return;
        }
    }
    emit_op op = emit_begin(e, n, "ConvTranspose");
    emit_operands(&op);
    emit_ints(&op, "output_padding", extra, axes);
    emit_finish(&op);
}
