/* lower_slice.c - Slice: ONNX's clamped ranges -> exact start, size and step of every axis.
 *
 * Numbers clamp as in NumPy. A dimension or bound with a symbol in it clamps only where the
 * outcome is the same for every size: a bound is in range when it is 0, the dimension itself, or
 * differs from the dimension by a number (then the dimension is taken to be large enough; the
 * runtime refuses a negative size). */
#include "frontend/lower.h"

typedef struct range {
    ir_dim start, size;
    int64_t step;
} range;

enum {
    SLICE_FAR = INT32_MAX
}; /* a bound this far out means "to the end" for a symbolic dimension */

/* A bound counted from the start, in [lowest, highest] where numbers can tell. */
static ir_dim clamp(onnx_node *n, ir_dim bound, ir_dim dim, ir_dim lowest, ir_dim highest)
{
    if (!ir_dim_is_symbolic(bound)) {
        if (bound >= SLICE_FAR) return highest;
        if (bound <= -SLICE_FAR) return lowest;
        if (bound < 0) bound = ir_dim_add(n->dims, bound, dim);
    }
    ir_dim above = ir_dim_sub(n->dims, bound, highest), below = ir_dim_sub(n->dims, bound, lowest);
    if (above == IR_DIM_NONE || below == IR_DIM_NONE) return IR_DIM_NONE;
    if (!ir_dim_is_symbolic(above) && above >= 0) return highest;
    if (!ir_dim_is_symbolic(below) && below <= 0) return lowest;
    if (!ir_dim_is_symbolic(above) || !ir_dim_is_symbolic(bound)) return bound;
    return IR_DIM_NONE;
}

static bool symbolic_in(ir_dim d) { return ir_dim_is_symbolic(d) || d == IR_DIM_NONE; }

static range resolve(onnx_node *n, ir_dim dim, ir_dim start, ir_dim end, int64_t step)
{
    ir_dim last = ir_dim_sub(n->dims, dim, 1);
    bool up = step > 0;
    ir_dim from = clamp(n, start, dim, 0, up ? dim : last);
    ir_dim to = clamp(n, end, dim, up ? 0 : -1, up ? dim : last);
    ir_dim span = up ? ir_dim_sub(n->dims, to, from) : ir_dim_sub(n->dims, from, to);
    /* A positive number as the end of a symbolic axis cuts or does not cut, as the size may be. */
    bool open = symbolic_in(dim) && up && !symbolic_in(to) && to > 0;
    if (span == IR_DIM_NONE || open) {
        onnx_refuse(
            n, "the range depends on %s: bind the dimension",
            ir_dim_print(n->dims, open || !symbolic_in(end) ? dim : end, n->importer->scratch));
        return (range){0, 0, 1};
    }
    int64_t stride = up ? step : -step;
    if (!symbolic_in(span)) {
        int64_t size = span > 0 ? (span - 1) / stride + 1 : 0;
        return (range){size ? from : 0, size, step};
    }
    ir_dim size = ir_dim_floordiv(n->dims, ir_dim_add(n->dims, span, stride - 1), stride);
    return (range){from, size, step};
}

static void slice(onnx_node *n, onnx_list starts, onnx_list ends, onnx_list axes, onnx_list steps)
{
    const ir_type *x = &n->in[0]->type;
    int rank = x->rank, count = starts.count;
    if (ends.count != count || (axes.present && axes.count != count) ||
        (steps.present && steps.count != count))
        onnx_reject(n, "starts, ends, axes and steps differ in length");
    else if (!axes.present && count > rank)
        onnx_reject(n, "%d ranges for rank %d", count, rank);
    bool set[IR_MAX_RANK];
    if (!n->failed) onnx_axes(n, axes, rank, set);
    bool whole = true;
    int64_t start[IR_MAX_RANK] = {0}, size[IR_MAX_RANK], step[IR_MAX_RANK];
    for (int i = 0; i < rank; i++) size[i] = x->dims[i], step[i] = 1;
    for (int i = 0; i < count && !n->failed; i++) {
        int axis = axes.present ? onnx_axis(n, axes.items[i], rank) : i;
        int64_t stride = steps.present ? onnx_size(n, steps.items[i], "a step") : 1;
        if (stride == 0) onnx_reject(n, "a step is 0");
        if (stride > SLICE_FAR) stride = SLICE_FAR;
        if (stride < -SLICE_FAR) stride = -SLICE_FAR;
        if (n->failed) return;
        range r = resolve(n, x->dims[axis], starts.items[i], ends.items[i], stride);
        start[axis] = r.start, size[axis] = r.size, step[axis] = r.step;
        whole &= r.size == x->dims[axis] && r.step == 1;
    }
    if (whole) n->out[0] = n->in[0];
    if (whole || n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_slice, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(slice, start), start, rank);
    ir_set_list(node, IR_ATTR(slice, size), size, rank);
    ir_set_list(node, IR_ATTR(slice, step), step, rank);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_slice_attribute(onnx_node *n)
{
    onnx_list starts = onnx_ints(n, "starts"), ends = onnx_ints(n, "ends"),
              axes = onnx_ints(n, "axes");
    slice(n, starts, ends, axes, (onnx_list){0});
}

void onnx_lower_slice(onnx_node *n)
{
    onnx_list starts = onnx_known_list(n, 1), ends = onnx_known_list(n, 2);
    onnx_list axes = onnx_known_list(n, 3), steps = onnx_known_list(n, 4);
    if (!n->failed) slice(n, starts, ends, axes, steps);
}
