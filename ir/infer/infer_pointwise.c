/* infer_pointwise.c - elementwise ops: all operands have one shape, or NumPy broadcasting. */
#include "ir/infer/infer.h"
#include "ir/ops/formulas.h"

static bool is_scalar(const inference *x, int i) { return ir_op_in_slot(x->node->op, i, x->node->n_in)->scalar; }

/* All operands but the scalars have the same shape, which is also that of the results. */
ampc_status infer_same(const inference *x)
{
    int first = 0, axis;
    while (is_scalar(x, first)) first++;
    ir_type shape = *infer_in(x, first);
    shape.dtype = IR_NO_DTYPE;
    for (int i = 0; i < x->node->n_in; i++)
        TRY(is_scalar(x, i) ? infer_expect_scalar(x, i) : infer_expect(x, i, &shape));
    if (infer_attr_find(x, "axis")) TRY(infer_axis(x, shape.rank, &axis));
    for (int i = 0; i < x->node->n_out; i++) TRY(infer_result(x, i, shape));
    return AMPC_OK;
}

/* The function has what the node needs: a curvature, bounds. */
ampc_status infer_slope(const inference *x)
{
    const int word = (int)infer_attr(x, "of")->i;
    const ir_function *f = &ir_functions[word];
    if (!ir_formula_of(x->node->op, x->node->attr))
        return infer_reject(x, "%s has no %s", ir_words_function[word], ir_op_get(x->node->op)->name);
    for (int i = 2; i < x->node->n_in; i++)
        if (infer_in(x, i) && ir_formula_get(f->value)->numbers != IR_NUMBERS_BOUNDS)
            return infer_reject(x, "%s has no bounds", ir_words_function[word]);
    return infer_same(x);
}

ampc_status infer_trilu(const inference *x)
{
    TRY(infer_expect_rank(x, IR_IN(trilu, x), 2, IR_MAX_RANK));
    return infer_same(x);
}

/* A symbolic size that meets a number is that number or 1. Of two that differ, one is 1 or they are equal. */
static bool broadcast_dim(ir_dim_table *t, ir_dim a, ir_dim b, ir_dim *out)
{
    *out = a == 1 ? b : a;
    if (a == b || a == 1 || b == 1) return true;
    const bool symbolic_a = ir_dim_is_symbolic(a), symbolic_b = ir_dim_is_symbolic(b);
    if (symbolic_a && symbolic_b) *out = ir_dim_max(t, a, b);
    else if (symbolic_a) *out = b;
    return *out != IR_DIM_NONE && (ir_dim_may_equal(t, a, b) || ir_dim_may_equal(t, a, 1) || ir_dim_may_equal(t, b, 1));
}

bool ir_broadcast(ir_dim_table *t, const ir_type *a, const ir_type *b, ir_type *out)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;
    ir_type result = {.dtype = a->dtype, .rank = rank};
    for (int i = 1; i <= rank; i++) {
        ir_dim x = i <= a->rank ? a->dims[a->rank - i] : 1, y = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (!broadcast_dim(t, x, y, &result.dims[rank - i])) return false;
    }
    *out = result;
    return true;
}

ampc_status infer_broadcast(const inference *x)
{
    ir_type shape = *infer_in(x, 0);
    for (int i = 1; i < x->node->n_in; i++) {
        ir_type before = shape;
        if (!ir_broadcast(x->dims, &before, infer_in(x, i), &shape))
            return infer_reject(x, "shapes do not broadcast: %s and %s", infer_show(x, &before),
                                infer_show(x, infer_in(x, i)));
    }
    shape.dtype = IR_NO_DTYPE;
    return infer_result(x, 0, shape);
}

ampc_status infer_cast(const inference *x)
{
    ir_type type = *infer_in(x, 0);
    type.dtype = infer_attr(x, "to")->dtype;
    return infer_result(x, 0, type);
}
