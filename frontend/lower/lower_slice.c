/* lower_slice.c - Slice: ONNX's clamped ranges -> exact start, size and step of every axis.
 *
 * Numbers and symbols use the same formulas, those of the ONNX operator. A bound that depends on a symbol becomes a
 * maximum in the dimension (ir/dim.h), so the slice of an axis that turns out to be short has the size that ONNX
 * specifies, or is empty. */
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
    const ir_dim negative = ir_dim_sub(t, ir_dim_max(t, below, 0), ir_dim_max(t, further, 0));
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

static void slice(onnx_node *n, onnx_list starts, onnx_list ends, onnx_list axes, onnx_list steps)
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
        if (n->failed) return;
        if (stride > FAR) stride = FAR;
        if (stride < -FAR) stride = -FAR;
        const range r = resolve(n->dims, x->dims[axis], starts.items[i], ends.items[i], stride);
        if (r.start == IR_DIM_NONE || r.size == IR_DIM_NONE)
            onnx_refuse(n, "the range on axis %d of %s is too complex: %s", axis,
                        ir_type_print(n->importer->module, x, n->importer->scratch),
                        onnx_bind_hint(n, x->dims[axis], "its size"));
        start[axis] = r.start, size[axis] = r.size, step[axis] = r.step;
        unchanged &= r.size == x->dims[axis] && r.step == 1;
    }
    if (unchanged) n->out[0] = n->in[0];
    if (unchanged || n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_slice, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(slice, start), start, rank);
    ir_set_list(node, IR_ATTR(slice, size), size, rank);
    ir_set_list(node, IR_ATTR(slice, step), step, rank);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_slice_attribute(onnx_node *n)
{
    onnx_list starts = onnx_ints(n, "starts"), ends = onnx_ints(n, "ends"), axes = onnx_ints(n, "axes");
    slice(n, starts, ends, axes, (onnx_list){0});
}

void onnx_lower_slice(onnx_node *n)
{
    onnx_list starts = onnx_const_list(n, 1), ends = onnx_const_list(n, 2);
    onnx_list axes = onnx_const_list(n, 3), steps = onnx_const_list(n, 4);
    if (!n->failed) slice(n, starts, ends, axes, steps);
}
