/* emit_norm.c - BatchNormalization, LayerNormalization, RMSNormalization. */
#include "frontend/emit/emit.h"

enum { RMS_NORM_SINCE = 23 };

void emit_batch_norm(emitter *e, const ir_node *n)
{
    bool read = false;
    for (int i = 1; i < n->n_out; i++) read |= ir_value_used(n->out[i]);
    const bool trains = n->attr[IR_ATTR(batch_norm, training)].i;
    if (read)
        emit_refuse(e, n, "BatchNormalization%s cannot be exported: other nodes read its statistics",
                    trains ? " in training mode" : "");
    else if (trains) emit_refuse_training(e, n, "BatchNormalization in training mode cannot be exported");
    else emit_simple(e, n);
}

/* The operator requires a scale: ones in the shape of the axes from `axis` on. */
static const char *emit_ones(emitter *e, const ir_node *n, int axis)
{
    const ir_type *x = &ir_in(n, 0)->type;
    const ir_type scalar = ir_type_scalar(x->dtype);
    unsigned char one[8];
    ir_store_f64(x->dtype, one, 1);
    const char *shape = emit_dims(e, n, x->dims + axis, x->rank - axis);
    return shape ? emit_call(e, n, "Expand", emit_constant(e, &scalar, one), shape) : NULL;
}

/* The schema requires scale and bias in the type of the input; statistics are f32 in both ONNX (stash_type) and the
 * IR. */
void emit_layer_norm(emitter *e, const ir_node *n)
{
    const ir_type *x = &ir_in(n, 0)->type;
    const ir_value *scale = ir_in(n, IR_IN(layer_norm, scale)), *bias = ir_in(n, IR_IN(layer_norm, bias));
    const bool center = n->attr[IR_ATTR(layer_norm, center)].i;
    int64_t axis = n->attr[IR_ATTR(layer_norm, axis)].i;
    bool others = bias != NULL;
    for (int i = 1; i < n->n_out; i++) others |= ir_value_used(n->out[i]);
    if (!center && others) emit_refuse(e, n, "RMSNormalization has no bias and no results for statistics");
    if (!center) emit_need(e, RMS_NORM_SINCE);
    emit_op op = emit_begin(e, n, center ? "LayerNormalization" : "RMSNormalization");
    emit_operand(&op, 0);
    if (scale) emit_in(&op, emit_value_as(e, scale, x->dtype));
    else emit_in(&op, emit_ones(e, n, (int)(axis < 0 ? axis + x->rank : axis)));
    if (bias) emit_in(&op, emit_value_as(e, bias, x->dtype));
    emit_finish(&op);
}
