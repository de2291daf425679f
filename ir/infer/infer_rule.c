/* infer_rule.c - helpers of the inference rules: operands, attributes, results, messages. */
#include "ir/infer/infer.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define MAX_BYTES (INT64_C(1) << 46) /* maximum size of a value */

ampc_status infer_reject(const inference *x, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ampc_status status = diag_verror(x->diag, AMPC_REJECTED, ir_diag_loc(x->node), format, args);
    va_end(args);
    return status;
}

const char *infer_show(const inference *x, const ir_type *type)
{
    return ir_type_print(x->module, type, x->module->arena);
}

const char *infer_show_dim(const inference *x, ir_dim d) { return ir_dim_print(x->dims, d, x->module->arena); }

const ir_type *infer_in(const inference *x, int i)
{
    const ir_value *v = ir_in(x->node, i);
    return v ? &v->type : NULL;
}

static int operand_position(const inference *x, const char *slot)
{
    const ir_op_info *info = ir_op_get(x->node->op);
    int i = 0;
    while (i < info->n_in && strcmp(info->in[i].name, slot)) i++;
    return i < info->n_in ? i : -1;
}

const ir_type *infer_operand(const inference *x, const char *slot)
{
    int i = operand_position(x, slot);
    assert(i >= 0); /* the op table has the slot, since the rule is the op's */
    return infer_in(x, i);
}

ampc_status infer_expect(const inference *x, int i, const ir_type *shape)
{
    const ir_type *is = infer_in(x, i);
    if (!is || ir_type_may_have_shape(x->dims, is, shape)) return AMPC_OK;
    ir_type expected = *shape;
    expected.dtype = is->dtype;
    return infer_reject(x, "%s must be %s, is %s", infer_slot(x, i)->name, infer_show(x, &expected), infer_show(x, is));
}

ampc_status infer_expect_operand(const inference *x, const char *slot, const ir_type *shape)
{
    int i = operand_position(x, slot);
    return i < 0 ? AMPC_OK : infer_expect(x, i, shape);
}

ampc_status infer_expect_scalar(const inference *x, int i)
{
    const ir_type *is = infer_in(x, i);
    if (!is || !is->rank) return AMPC_OK;
    return infer_reject(x, "%s must be a scalar, is %s", infer_slot(x, i)->name, infer_show(x, is));
}

ampc_status infer_expect_rank(const inference *x, int i, int low, int high)
{
    const ir_type *is = infer_in(x, i);
    if (!is || (is->rank >= low && is->rank <= high)) return AMPC_OK;
    const char *expected = high >= IR_MAX_RANK ? "at least" : "at most";
    return infer_reject(x, "%s must have %s %d dimensions, is %s", infer_slot(x, i)->name, expected,
                        is->rank < low ? low : high, infer_show(x, is));
}

const ir_attr *infer_attr_find(const inference *x, const char *slot)
{
    const ir_op_info *info = ir_op_get(x->node->op);
    for (int i = 0; i < info->n_attr; i++)
        if (!strcmp(info->attr[i].name, slot)) return &x->node->attr[i];
    return NULL;
}

const ir_attr *infer_attr(const inference *x, const char *slot)
{
    const ir_attr *a = infer_attr_find(x, slot);
    assert(a); /* as above */
    return a;
}

ampc_status infer_list(const inference *x, const char *slot, int count, const int64_t **items)
{
    const ir_attr *a = infer_attr(x, slot);
    if (a->list.count != count) return infer_reject(x, "%s needs %d entries, has %d", slot, count, a->list.count);
    *items = a->list.items;
    return AMPC_OK;
}

ir_type infer_untyped(int rank, const ir_dim *dims) { return ir_type_make(IR_NO_DTYPE, rank, dims); }

ampc_status infer_shape(const inference *x, ir_type *out)
{
    const ir_attr *a = infer_attr(x, "shape");
    if (a->list.count > IR_MAX_RANK)
        return infer_reject(x, "shape has %d dimensions, the limit is %d", a->list.count, IR_MAX_RANK);
    *out = infer_untyped(a->list.count, a->list.items);
    return AMPC_OK;
}

ampc_status infer_axis_number(const inference *x, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank)
        return infer_reject(x, "axis %" PRId64 " is out of range for %d dimensions", axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return AMPC_OK;
}

ampc_status infer_axis(const inference *x, int rank, int *out)
{
    return infer_axis_number(x, infer_attr(x, "axis")->i, rank, out);
}

/* ---- results --------------------------------------------------------------------------------- */

static ir_dtype default_dtype(const inference *x, int i)
{
    const ir_attr *out = infer_attr_find(x, "out");
    ir_group group = ir_op_out_slot(x->node->op, i, x->node->n_out)->group;
    bool chosen = group == ir_op_out_slot(x->node->op, 0, x->node->n_out)->group;
    if (out && chosen && out->dtype != IR_NO_DTYPE) return out->dtype;
    switch (group) {
    case IR_GROUP_B: return IR_bool;
    case IR_GROUP_I: return IR_i64;
    default: return x->group[group];
    }
}

/* Whether the value is not too large. Symbols count as 1, since sizes are checked when they are bound. Zeros also count
 * as 1, so that no product of a subset of the dimensions can overflow. */
static bool fits(const ir_type *type)
{
    int64_t bytes = (int64_t)ir_dtype_size(type->dtype);
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] > 0 && (!checked_mul(bytes, type->dims[i], &bytes) || bytes >= MAX_BYTES)) return false;
    return true;
}

ampc_status infer_result(const inference *x, int i, ir_type type)
{
    ir_value *v = ir_out(x->node, i);
    if (!v) return AMPC_OK;
    if (type.dtype == IR_NO_DTYPE) type.dtype = default_dtype(x, i);
    for (int k = 0; k < type.rank; k++) {
        if (type.dims[k] == IR_DIM_NONE)
            return infer_reject(x, "the size of axis %d of the result is too large or too complex", k);
        if (type.dims[k] < 0 && !ir_dim_is_symbolic(type.dims[k]))
            return infer_reject(x, "the size of axis %d of the result would be %" PRId64, k, type.dims[k]);
    }
    if (!fits(&type)) return infer_reject(x, "the result %s is too large", infer_show(x, &type));
    v->type = type;
    return AMPC_OK;
}
