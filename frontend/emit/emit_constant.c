/* emit_constant.c - values computed from sizes alone: Range, and shapes as data. */
#include "frontend/emit/emit.h"

/* Range does not support narrow integers. */
void emit_iota(emitter *e, const ir_node *n)
{
    ir_dtype type = n->out[0]->type.dtype == IR_i32 ? IR_i32 : IR_i64;
    ir_type scalar = ir_type_scalar(type);
    const char *limit = emit_dim_scalar(e, n, n->attr[IR_ATTR(iota, size)].list.items[0]);
    if (!limit) return;
    if (type != IR_i64) limit = emit_cast_of(e, n, limit, type);
    const int64_t zero = 0, one = 1; /* little-endian: their first 4 bytes are the i32 */
    const char *from = emit_constant(e, &scalar, &zero), *step = emit_constant(e, &scalar, &one);
    emit_op op = emit_begin(e, n, "Range");
    emit_in(&op, from);
    emit_in(&op, limit);
    emit_in(&op, step);
    emit_result(&op, 0, type);
    emit_end(&op);
}

/* ONNX draws numbers of its own: the state is not part of the model. */
static emit_op begin_random(emitter *e, const ir_node *n)
{
    const ir_attr *shape = &n->attr[IR_ATTR(random, shape)];
    const bool normal = n->attr[IR_ATTR(random, normal)].i;
    if (ir_type_is_static(&n->out[0]->type)) {
        emit_op op = emit_begin(e, n, normal ? "RandomNormal" : "RandomUniform");
        emit_ints(&op, "shape", shape->list.items, shape->list.count);
        return op;
    }
    const char *dims = emit_dims(e, n, shape->list.items, shape->list.count);
    const char *like = dims ? emit_call(e, n, "ConstantOfShape", dims, NULL) : NULL;
    emit_op op = emit_begin(e, n, normal ? "RandomNormalLike" : "RandomUniformLike");
    emit_in(&op, like);
    return op;
}

void emit_random(emitter *e, const ir_node *n)
{
    const double offset = n->attr[IR_ATTR(random, offset)].f, scale = n->attr[IR_ATTR(random, scale)].f;
    const bool normal = n->attr[IR_ATTR(random, normal)].i;
    emit_inexact(e);
    emit_op op = begin_random(e, n);
    emit_float(&op, normal ? "mean" : "low", offset);
    emit_float(&op, normal ? "scale" : "high", normal ? scale : offset + scale);
    emit_int(&op, "dtype", onnx_type_of(n->out[0]->type.dtype));
    emit_finish(&op);
}

void emit_dims_value(emitter *e, const ir_node *n)
{
    const ir_attr *value = &n->attr[IR_ATTR(dims, value)];
    const char *name = emit_dims(e, n, value->list.items, value->list.count);
    if (name) emit_define(e, n, 0, name, IR_i64);
}
