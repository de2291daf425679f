/* lower_slice.c - Slice: ONNX's clamped ranges -> exact start, size and step of every axis.
 *
 * Numbers and symbols use the same formulas, those of the ONNX operator. A bound that depends on a symbol becomes a
 * maximum in the dimension (ir/ops/dim.h), so the slice of an axis that turns out to be short has the size that ONNX
 * specifies, or is empty. A range whose start is computed at run time and whose size is known is gathered. */
#include "frontend/lower/lower.h"

typedef struct range {
    ir_dim start, size;
    int64_t step;
} range;

#define FAR (INT64_C(1) << 46) /* larger than any axis */

/* Converts a bound that may count from the end (negative) to one that counts from the start. With symbols,
 * max(0,-bound)-max(0,-bound-1) is 1 if the bound is negative and 0 otherwise; it is omitted if the bound can only be
 * negative when the axis is empty. */
static ir_dim counted(ir_dim_table *t, ir_dim bound, ir_dim dim)
{
    if (bound >= FAR) return dim;
    if (!ir_dim_is_symbolic(bound) && bound <= -FAR) return -1;
    if (!ir_dim_is_symbolic(bound)) return bound < 0 ? ir_dim_add(t, bound, dim) : bound;
    if (ir_dim_lower_bound(t, ir_dim_add(t, bound, ir_dim_max(t, 0, ir_dim_sub(t, 1, dim)))) >= 0) return bound;
    const ir_dim below = ir_dim_sub(t, 0, bound), further = ir_dim_sub(t, below, 1);
    const ir_dim above = ir_dim_max(t, further, 0), negative = ir_dim_sub(t, ir_dim_max(t, below, 0), above);
    return ir_dim_add(t, bound, ir_dim_mul(t, negative, dim));
}

/* Step > 0: [max(start,0), min(end,dim)); step < 0: from min(start,dim-1) down to, but excluding, max(end,-1). The
 * other clamps of ONNX only change empty ranges. */
static range resolve(ir_dim_table *t, ir_dim dim, ir_dim start, ir_dim end, int64_t step)
{
    const bool up = step > 0;
    const int64_t stride = up ? step : -step;
    ir_dim from = ir_dim_max(t, counted(t, start, dim), 0), to = counted(t, end, dim);
    if (!up) from = ir_dim_min(t, from, ir_dim_sub(t, dim, 1));
    to = up ? ir_dim_min(t, to, dim) : ir_dim_max(t, to, -1);
    const ir_dim span = up ? ir_dim_sub(t, to, from) : ir_dim_sub(t, from, to);
    const ir_dim count = ir_dim_floordiv(t, ir_dim_add(t, span, stride - 1), stride), size = ir_dim_max(t, count, 0);
    return (range){size == 0 ? 0 : from, size, step};
}

static ir_value *slice(onnx_node *n, onnx_list starts, onnx_list ends, onnx_list axes, onnx_list steps)
{
    const ir_type *x = &n->in[0]->type;
    int rank = x->rank, count = starts.count;
    if (ends.count != count || (axes.present && axes.count != count) || (steps.present && steps.count != count))
        onnx_reject(n, "starts, ends, axes and steps differ in length");
    else if (!axes.present && count > rank) onnx_reject(n, "%d ranges for rank %d", count, rank);
    bool set[IR_MAX_RANK];
    if (!n->failed) onnx_axes(n, axes, rank, set);
    bool unchanged = true;
    int64_t start[IR_MAX_RANK] = {0}, size[IR_MAX_RANK], step[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) size[i] = x->dims[i], step[i] = 1;
    for (int i = 0; i < count && !n->failed; i++) {
        const int axis = axes.present ? onnx_axis(n, axes.items[i], rank) : i;
        int64_t stride = steps.present ? onnx_size(n, steps.items[i], "a step") : 1;
        if (stride == 0) onnx_reject(n, "a step is 0");
        if (n->failed) return NULL;
        if (stride > FAR) stride = FAR;
        if (stride < -FAR) stride = -FAR;
        const range r = resolve(n->dims, x->dims[axis], starts.items[i], ends.items[i], stride);
        if (r.start == IR_DIM_NONE || r.size == IR_DIM_NONE)
            onnx_refuse_dim(n, x->dims[axis], "the range on axis %d of %s is too complex", axis,
                            ir_type_print(n->importer->module, x, n->importer->scratch));
        start[axis] = r.start, size[axis] = r.size, step[axis] = r.step;
        unchanged &= r.size == x->dims[axis] && r.step == 1;
    }
    if (unchanged || n->failed) return n->in[0];
    ir_node *node = ir_new(n->b, IR_OP_slice, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(slice, start), start, rank);
    ir_set_list(node, IR_ATTR(slice, size), size, rank);
    ir_set_list(node, IR_ATTR(slice, step), step, rank);
    return ir_done(n->b, node);
}

/* ---- parts of values ----------------------------------------------------------------------------- */

ir_value *onnx_slice_axis(onnx_node *n, ir_value *v, int axis, ir_dim from, ir_dim count)
{
    if (!v || v->type.dims[axis] == count) return v;
    ir_dim start[IR_MAX_RANK] = {0}, size[IR_MAX_RANK];
    int64_t step[IR_MAX_RANK];
    for (int i = 0; i < v->type.rank; i++) size[i] = v->type.dims[i], step[i] = 1;
    start[axis] = from;
    size[axis] = count;
    ir_node *node = ir_new(n->b, IR_OP_slice, 1, v);
    ir_set_list(node, IR_ATTR(slice, start), start, v->type.rank);
    ir_set_list(node, IR_ATTR(slice, size), size, v->type.rank);
    ir_set_list(node, IR_ATTR(slice, step), step, v->type.rank);
    return ir_done(n->b, node);
}

ir_value *onnx_element(onnx_node *n, ir_value *list, int64_t i)
{
    return ir_reshape(n->b, onnx_slice_axis(n, list, 0, i, 1), NULL, 0);
}

/* ---- starts computed at run time --------------------------------------------------------------- */

/* Bound i of operand `from`. */
static ir_value *bound(onnx_node *n, int from, int64_t i)
{
    return ir_cast(n->b, onnx_element(n, n->in[from], i), IR_i64);
}

/* `size` rows of x along the axis from entry i of the starts on. ONNX would shorten a range that leaves the axis; here,
 * its indices are out of range, which is an error at run time. So is a range from a negative start, which counts from
 * the end, to an end that counts from the start. */
static ir_value *gathered(onnx_node *n, ir_value *x, int axis, int64_t i, ir_dim size, int64_t step)
{
    ir_value *start = bound(n, 1, i), *zero = ir_scalar(n->b, IR_i64, 0);
    ir_value *beyond = ir_reshape(n->b, onnx_dims_value(n, &x->type.dims[axis], 1), NULL, 0);
    ir_value *turns = ir_binary(n->b, IR_OP_greater_or_equal, bound(n, 2, i), zero);
    turns = ir_binary(n->b, IR_OP_and, ir_binary(n->b, IR_OP_less, start, zero), turns);
    start = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, turns, beyond, start));
    ir_value *row = onnx_iota(n, IR_i64, ir_dim_floordiv(n->dims, ir_dim_add(n->dims, size, step - 1), step));
    if (step != 1) row = ir_binary(n->b, IR_OP_mul, row, ir_scalar(n->b, IR_i64, (double)step));
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, x, ir_binary(n->b, IR_OP_add, row, start));
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    return ir_done(n->b, node);
}

typedef struct ranges {
    ir_dim start[IR_MAX_RANK], end[IR_MAX_RANK], axis[IR_MAX_RANK], step[IR_MAX_RANK];
    int count;
} ranges;

/* Range i of the operands; a known one is added to `known`, another one of a known size is gathered from x. */
static ir_value *slice_range(onnx_node *n, ir_value *x, int64_t i, int axis, ir_dim stride, ranges *known)
{
    const onnx_term start = onnx_term_of(n, n->importer->consts, n->in[1], i);
    const onnx_term end = onnx_term_of(n, n->importer->consts, n->in[2], i);
    const ir_dim size = ir_dim_max(n->dims, ir_dim_sub(n->dims, end.plus, start.plus), 0);
    if (!start.from && !end.from && size != IR_DIM_NONE) {
        const int at = known->count++;
        known->start[at] = start.plus, known->end[at] = end.plus, known->axis[at] = axis, known->step[at] = stride;
        return x;
    }
    const int64_t step = onnx_size(n, stride, "a step");
    if (start.from != end.from || start.at != end.at || size == IR_DIM_NONE)
        onnx_refuse(n, "the size of its result on axis %d depends on values that are computed at run time", axis);
    else if (step < 1 || step >= FAR) onnx_refuse(n, "step %lld with a start computed at run time", (long long)step);
    return n->failed ? NULL : gathered(n, x, axis, i, size, step);
}

/* The ranges one by one: those from a start computed at run time to that plus a number have a known size. */
static void slice_from_values(onnx_node *n)
{
    const onnx_list axes = onnx_const_list(n, 3), steps = onnx_const_list(n, 4);
    const ir_type *starts = &n->in[1]->type, *ends = &n->in[2]->type;
    const int64_t count = starts->rank == 1 ? starts->dims[0] : -1;
    ir_value *x = n->in[0];
    const int rank = x->type.rank;
    bool set[IR_MAX_RANK];
    ranges known = {.count = 0};
    if (count < 0 || count > rank || ends->rank != 1 || ends->dims[0] != count)
        onnx_reject(n, "starts and ends are not lists of one known length");
    else if ((axes.present && axes.count != count) || (steps.present && steps.count != count))
        onnx_reject(n, "starts, ends, axes and steps differ in length");
    else onnx_axes(n, axes, rank, set);
    for (int i = 0; i < count && x && !n->failed; i++)
        x = slice_range(n, x, i, axes.present ? onnx_axis(n, axes.items[i], rank) : i,
                        steps.present ? steps.items[i] : 1, &known);
    if (!x || n->failed) return;
    const onnx_list lists[] = {{known.start, known.count, true},
                               {known.end, known.count, true},
                               {known.axis, known.count, true},
                               {known.step, known.count, true}};
    n->in[0] = x;
    n->out[0] = slice(n, lists[0], lists[1], lists[2], lists[3]);
}

void onnx_lower_slice_attribute(onnx_node *n)
{
    onnx_list starts = onnx_ints(n, "starts"), ends = onnx_ints(n, "ends"), axes = onnx_ints(n, "axes");
    n->out[0] = slice(n, starts, ends, axes, (onnx_list){0});
}

static bool is_computed(const onnx_node *n, int i)
{
    return onnx_in(n, i) && !ir_const_get(n->importer->consts, n->in[i]);
}

void onnx_lower_slice(onnx_node *n)
{
    const bool computed = is_computed(n, 1) && is_computed(n, 2);
    if (computed && n->importer->options->emit_opset) {
        onnx_keep_opaque(n);
        return;
    }
    if (computed) {
        slice_from_values(n);
        return;
    }
    onnx_list starts = onnx_const_list(n, 1), ends = onnx_const_list(n, 2);
    onnx_list axes = onnx_const_list(n, 3), steps = onnx_const_list(n, 4);
    if (!n->failed) n->out[0] = slice(n, starts, ends, axes, steps);
}
