/* fold_reduce.c - sums and means of known elements. Floats accumulate in f32 (f64 for f64); integers wrap. */
#include "ir/fold.h"

/* A view of the result along the axes of the operand, with stride 0 for reduced axes. */
static fold_view view_reduced(const fold_state *f, const ir_attr *axes)
{
    const ir_type *from = &f->in[0]->type;
    ir_type reduced = *from;
    for (int i = 0; i < axes->list.count; i++) {
        int64_t axis = axes->list.items[i];
        reduced.dims[axis < 0 ? axis + from->rank : axis] = 1;
    }
    return fold_view_broadcast(&reduced, from);
}

static bool sum(const fold_state *f, const ir_attr *axes)
{
    const cells *out = &f->out[0];
    const ir_const_value *x = f->in[0];
    fold_view v = view_reduced(f, axes);
    ir_dtype carrier = x->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    for (int64_t i = 0; i < x->count; i++) {
        int64_t at = fold_view_at(&v, &x->type, i);
        if (out->floats) {
            out->floats[at] = fold_round(carrier, out->floats[at] + x->floats[i]);
        } else {
            out->ints[at] = fold_integer(f, IR_FORMULA_add, out->ints[at], x->ints[i]);
            if (out->ints[at] == IR_DIM_NONE) return false;
        }
    }
    return true;
}

/* Divides by `n` (1 for a sum) and rounds each element to the dtype of the result. */
static bool finish(const fold_state *f, int64_t n)
{
    const cells *out = &f->out[0];
    ir_dtype carrier = f->in[0]->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    for (int64_t i = 0; i < out->count; i++) {
        if (out->floats) {
            double mean = n == 1 ? out->floats[i] : fold_round(carrier, out->floats[i] / (double)n);
            out->floats[i] = fold_round(out->type.dtype, mean);
        } else {
            out->ints[i] = fold_wrap(out->type.dtype, fold_integer(f, IR_FORMULA_div, out->ints[i], n));
            if (out->ints[i] == IR_DIM_NONE) return false;
        }
    }
    return true;
}

bool fold_reduce_sum(const fold_state *f) { return sum(f, &f->node->attr[IR_ATTR(reduce_sum, axes)]) && finish(f, 1); }

bool fold_reduce_mean(const fold_state *f)
{
    const ir_attr *axes = &f->node->attr[IR_ATTR(reduce_mean, axes)];
    const ir_type *from = &f->in[0]->type;
    int64_t n = 1;
    for (int i = 0; i < axes->list.count; i++) {
        int64_t axis = axes->list.items[i];
        n *= from->dims[axis < 0 ? axis + from->rank : axis];
    }
    return sum(f, axes) && finish(f, n);
}
