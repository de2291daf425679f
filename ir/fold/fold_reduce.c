/* fold_reduce.c - the reductions of reductions.def on known elements. Floats are combined in f32 (f64 for f64);
 * integers wrap. */
#include "ir/fold/fold.h"
#include "ir/ops/reductions.h"

#define WITH_REDUCTIONS
#define K_FORMULA static inline
#include "ir/ops/libm.h"
#define WITH_DOUBLE
#include "ir/ops/formulas_each.h"

/* ---- the rows -------------------------------------------------------------------------------- */

static double combine_float(ir_combine combine, ir_dtype carrier, double s, double a)
{
    switch (combine) {
        /* clang-format off */
#define COMBINE(name, ...) \
    case IR_COMBINE_##name: return join_##name##_double(s, fold_round(carrier, map_##name##_double(a)));
#include "ir/ops/reductions.def"
    /* clang-format on */
    default: return NAN;
    }
}

/* Only rows without a map of their own accept symbolic elements. */
static ir_dim map_integer(ir_combine combine, ir_dtype t, ir_dim a)
{
    if (ir_dim_is_symbolic(a)) return combine == ir_combine_of_parts(combine) ? a : IR_DIM_NONE;
    switch (combine) {
        /* clang-format off */
#define COMBINE(name, ...) \
    case IR_COMBINE_##name: \
        return t == IR_u64 ? fold_number(t, (int64_t)map_##name##_uint64_t((uint64_t)a)) \
                           : ir_dim_number(map_##name##_int64_t(a));
#include "ir/ops/reductions.def"
    /* clang-format on */
    default: return IR_DIM_NONE;
    }
}

static const ir_formula joins[IR_COMBINE_COUNT] = {
#define COMBINE(name, join, ...) [IR_COMBINE_##name] = IR_FORMULA_##join,
#include "ir/ops/reductions.def"
};

static double finish_float(ir_finish finish, double s, double n)
{
    switch (finish) {
        /* clang-format off */
#define FINISH(name, ...) \
    case IR_FINISH_##name: return finish_##name##_double(s, n);
#include "ir/ops/reductions.def"
    /* clang-format on */
    default: return NAN;
    }
}

/* Integers have no other way to finish than a mean. */
static ir_dim finish_integer(const fold_state *f, ir_finish finish, ir_dim s, int64_t n)
{
    return finish == IR_FINISH_mean ? fold_integer(f, IR_FORMULA_div, s, n) : s;
}

/* ---- the loops ------------------------------------------------------------------------------- */

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

static bool join_all(const fold_state *f, ir_combine combine, const ir_attr *axes)
{
    const cells *out = &f->out[0];
    const ir_const_value *x = f->in[0];
    fold_view v = view_reduced(f, axes);
    ir_dtype carrier = x->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    int64_t start = ir_combine_start_integer(combine, x->type.dtype);
    if (out->ints && !x->count && ir_dim_number(start) != start) return false;
    for (int64_t i = 0; i < out->count; i++) {
        if (out->floats) out->floats[i] = ir_combine_start_float(combine);
        else out->ints[i] = ir_dim_number(start);
    }
    for (int64_t i = 0; i < x->count; i++) {
        int64_t at = fold_view_at(&v, &x->type, i);
        if (out->floats) {
            out->floats[at] = fold_round(carrier, combine_float(combine, carrier, out->floats[at], x->floats[i]));
        } else {
            ir_dim a = map_integer(combine, x->type.dtype, x->ints[i]);
            out->ints[at] = a == IR_DIM_NONE ? a : fold_integer(f, joins[combine], out->ints[at], a);
            if (out->ints[at] == IR_DIM_NONE) return false;
        }
    }
    return true;
}

/* Computes each element from the combination of n elements and rounds it to the dtype of the result. */
static bool finish_all(const fold_state *f, ir_finish finish, int64_t n)
{
    const cells *out = &f->out[0];
    ir_dtype carrier = f->in[0]->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    for (int64_t i = 0; i < out->count; i++) {
        if (out->floats) {
            double value = fold_round(carrier, finish_float(finish, out->floats[i], (double)n));
            out->floats[i] = fold_round(out->type.dtype, value);
        } else {
            out->ints[i] = fold_wrap(out->type.dtype, finish_integer(f, finish, out->ints[i], n));
            if (out->ints[i] == IR_DIM_NONE) return false;
        }
    }
    return true;
}

bool fold_reduction(const fold_state *f)
{
    const ir_attr *axes = &f->node->attr[IR_ATTR(reduce_sum, axes)];
    const ir_reduction r = ir_reduction_of(f->node->op);
    const ir_type *from = &f->in[0]->type;
    int64_t n = 1;
    for (int i = 0; i < axes->list.count; i++) {
        int64_t axis = axes->list.items[i];
        n *= from->dims[axis < 0 ? axis + from->rank : axis];
    }
    return join_all(f, r.combine, axes) && finish_all(f, r.finish, n);
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* With running statistics, which are returned unchanged. */
bool fold_batch_norm(const fold_state *f)
{
    const ir_attr *attr = f->node->attr;
    const ir_const_value *x = f->in[0], *mean = f->in[IR_IN(batch_norm, mean)], *var = f->in[IR_IN(batch_norm, var)];
    const double *scale = f->in[IR_IN(batch_norm, scale)]->floats, *bias = f->in[IR_IN(batch_norm, bias)]->floats;
    const int64_t channels = mean->count,
                  inner = channels && x->type.dims[0] ? x->count / x->type.dims[0] / channels : 0;
    if (attr[IR_ATTR(batch_norm, training)].i) return false;
    for (int64_t i = 0; i < channels; i++) {
        f->out[1].floats[i] = f->out[3].floats[i] = mean->floats[i];
        f->out[2].floats[i] = var->floats[i];
        f->out[4].floats[i] = fold_round(IR_f32, 1 / sqrt(var->floats[i] + attr[IR_ATTR(batch_norm, eps)].f));
    }
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t at = i / inner % channels;
        const double normal = (x->floats[i] - mean->floats[at]) * f->out[4].floats[at];
        f->out[0].floats[i] = fold_round(f->out[0].type.dtype, normal * scale[at] + bias[at]);
    }
    return true;
}
