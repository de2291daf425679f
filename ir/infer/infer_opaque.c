/* infer_opaque.c - results of an opaque operator have the types written with it, except that those marked in the
 * layout have the element type of the marked operands. */
#include "ir/infer/infer.h"

#include <string.h>

/* ---- types ----------------------------------------------------------------------------------------------- */

/* Parses "f32[N,3]" at *at and moves *at past it. */
static bool read_type(ir_dim_table *dims, const char **at, ir_type *out)
{
    const char *p = *at;
    char name[8];
    size_t n = 0;
    while (*p && *p != '[' && n + 1 < sizeof name) name[n++] = *p++;
    name[n] = '\0';
    *out = (ir_type){.dtype = ir_dtype_parse(name)};
    if (out->dtype == IR_NO_DTYPE || *p++ != '[') return false;
    while (*p != ']') {
        if (out->rank == IR_MAX_RANK || (out->rank && *p++ != ',')) return false;
        ir_dim d = ir_dim_parse(dims, p, &p);
        if (d == IR_DIM_NONE || (!ir_dim_is_symbolic(d) && d < 0)) return false;
        out->dims[out->rank++] = d;
    }
    *at = p + 1;
    return true;
}

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
    TRY(float_type(x, &float_dtype));
    const char *at = infer_attr(x, "types")->s, *all = at;
    for (int i = 0; i < x->node->n_out; i++) {
        ir_type type;
        if ((i && *at++ != ',') || !read_type(x->dims, &at, &type))
            return infer_reject(x, "types \"%s\" does not have %d entries", all, x->node->n_out);
        if (float_dtype != IR_NO_DTYPE && ir_opaque_result_is_float(x->node, i)) type.dtype = float_dtype;
        TRY(infer_result(x, i, type));
    }
    return *at ? infer_reject(x, "types \"%s\" does not have %d entries", all, x->node->n_out) : AMPC_OK;
}

void ir_opaque_set_result_dtype(ir_node *n, ir_dtype to)
{
    arena *a = n->graph->module->arena;
    const char *types = "";
    for (int i = 0; i < n->n_out; i++) {
        ir_type type = n->out[i]->type;
        if (type.dtype == IR_f32) type.dtype = to;
        types = arena_printf(a, "%s%s%s", types, i ? "," : "", ir_type_print(n->graph->module, &type, a));
    }
    ir_set_str(n, IR_ATTR(opaque, types), types);
}

/* ---- control flow ---------------------------------------------------------------------------------------- */

static ampc_status check_layout(const inference *x)
{
    const ir_node *n = x->node;
    int in = 0, out = 0;
    for (int i = 0; i < ir_opaque_operand_positions(n); i++) in += ir_opaque_operand_at(n, i) >= 0;
    for (int i = 0; i < ir_opaque_result_positions(n); i++) out += ir_opaque_result_at(n, i) >= 0;
    if (in <= n->n_in && out == n->n_out) return AMPC_OK;
    return infer_reject(x, "layout \"%s\" does not match its operands and results", infer_attr(x, "layout")->s);
}

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
    TRY(check_layout(x));
    if (ir_opaque_operand_positions(x->node) != 1 || ir_opaque_operand_at(x->node, 0) != 0)
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
    TRY(check_layout(x));
    const ir_attr *scanned = infer_attr(x, "scanned");
    const int positions = ir_opaque_operand_positions(x->node);
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
