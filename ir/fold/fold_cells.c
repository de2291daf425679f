/* fold_cells.c - elements of known values: addressing along the axes of another tensor, rounding to a dtype. */
#include "ir/fold/fold.h"

fold_view fold_view_dense(const ir_type *type)
{
    fold_view v = {0};
    int64_t stride = 1;
    for (int i = type->rank; i-- > 0; stride *= type->dims[i]) v.stride[i] = stride;
    return v;
}

fold_view fold_view_broadcast(const ir_type *from, const ir_type *to)
{
    fold_view dense = fold_view_dense(from), v = {0};
    int shift = to->rank - from->rank;
    for (int i = 0; i < from->rank; i++)
        if (from->dims[i] != 1) v.stride[shift + i] = dense.stride[i];
    return v;
}

int64_t fold_view_at(const fold_view *v, const ir_type *shape, int64_t index)
{
    int64_t at = v->offset;
    for (int i = shape->rank; i-- > 0; index /= shape->dims[i]) at += index % shape->dims[i] * v->stride[i];
    return at;
}

void fold_copy(const cells *to, int64_t i, const ir_const_value *from, int64_t k)
{
    if (to->floats) to->floats[i] = from->floats[k];
    else to->ints[i] = from->ints[k];
}

double fold_round(ir_dtype t, double v)
{
    unsigned char bytes[8];
    if (t == IR_f64) return v;
    if (t == IR_f32) return (double)(float)v;
    ir_store_f64(t, bytes, (double)(float)v);
    return ir_load_f64(t, bytes);
}

ir_dim fold_wrap(ir_dtype t, ir_dim v)
{
    unsigned char bytes[8];
    if (v == IR_DIM_NONE) return v;
    if (ir_dim_is_symbolic(v)) return t == IR_i64 || t == IR_i32 ? v : IR_DIM_NONE;
    ir_store_i64(t, bytes, v);
    return fold_number(t, ir_load_i64(t, bytes));
}
