/* infer_opaque.c - results of an opaque operator have the types declared for them, except that those marked in the
 * layout have the element type of the marked operands. */
#include "ir/infer/infer.h"

/* The type of all marked operands, or NO_DTYPE if there are none. */
static ampc_status float_type(const inference *x, ir_dtype *out)
{
    *out = IR_NO_DTYPE;
    for (int i = 0; i < x->node->n_in; i++) {
        if (!ir_opaque_operand_is_float(x->node, i)) continue;
        ir_dtype t = infer_in(x, i)->dtype;
        if (*out != IR_NO_DTYPE && *out != t)
            return infer_reject(x, "float operands differ: %s and %s", ir_dtype_name(*out), ir_dtype_name(t));
        *out = t;
    }
    return AMPC_OK;
}

ampc_status infer_opaque(const inference *x)
{
    ir_dtype float_dtype;
    if (ir_layout_operands(x->node) != ir_declared_operands(x->node) || ir_layout_results(x->node) != x->node->n_out)
        return infer_reject(x, "its layout does not match its operands and results");
    TRY(float_type(x, &float_dtype));
    for (int i = 0; i < x->node->n_out; i++) {
        ir_type type = x->node->out[i]->type;
        if (type.dtype == IR_NO_DTYPE) return infer_reject(x, "the type of result %d is not declared", i);
        if (float_dtype != IR_NO_DTYPE && ir_opaque_result_is_float(x->node, i)) type.dtype = float_dtype;
        TRY(infer_result(x, i, type));
    }
    return AMPC_OK;
}

void ir_opaque_set_result_dtype(ir_node *n, ir_dtype to)
{
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype == IR_f32) n->out[i]->type.dtype = to;
}

/* ---- control flow ---------------------------------------------------------------------------------------- */

/* A condition or trip count: one element. */
static ampc_status check_single(const inference *x, int i, const char *what, bool truth)
{
    const ir_type *t = i < 0 ? NULL : infer_in(x, i);
    if (!t) return AMPC_OK;
    const bool fits = truth ? t->dtype == IR_bool : ir_dtype_is_int(t->dtype);
    for (int k = 0; fits && k < t->rank; k++)
        if (!ir_dim_is_symbolic(t->dims[k]) && t->dims[k] != 1)
            return infer_reject(x, "%s must have one element, is %s", what, infer_show(x, t));
    return fits ? AMPC_OK
                : infer_reject(x, "%s must be %s, is %s", what, truth ? "bool" : "an integer", infer_show(x, t));
}

ampc_status infer_if(const inference *x)
{
    if (x->node->layout.n_in != 1 || ir_opaque_operand_at(x->node, 0) != 0)
        return infer_reject(x, "has %d operands, expected the condition", ir_declared_operands(x->node));
    TRY(check_single(x, 0, "the condition", true));
    return infer_opaque(x);
}

static ampc_status check_slice(const inference *x, int i, int operand)
{
    const ir_attr *axes = infer_attr(x, "slice_axes");
    const ir_type *t = infer_in(x, operand);
    int axis;
    return infer_axis_number(x, i < axes->list.count ? axes->list.items[i] : 0, t->rank, &axis);
}

ampc_status infer_loop(const inference *x)
{
    const ir_attr *scanned = infer_attr(x, "scanned");
    const int positions = x->node->layout.n_in;
    if (scanned->i < 0 || scanned->i > positions)
        return infer_reject(x, "scanned is out of range: %d", (int)scanned->i);
    const ir_loop_form f = ir_loop_form_of(x->node);
    if (f.states < 0 || (!f.slices && !f.fixed) || f.first + f.states + f.slices != ir_declared_operands(x->node))
        return infer_reject(x, "an operand is missing");
    TRY(check_single(x, f.trip_count, "the trip count", false));
    TRY(check_single(x, f.condition, "the condition", true));
    for (int i = 0; i < f.slices; i++) TRY(check_slice(x, i, f.first + f.states + i));
    return infer_opaque(x);
}
