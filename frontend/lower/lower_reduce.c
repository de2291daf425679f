/* lower_reduce.c - the Reduce operators, GlobalAveragePool, GlobalMaxPool. */
#include "frontend/lower/lower.h"

#include <math.h>

typedef struct reduction {
    int64_t axes[IR_MAX_RANK]; /* ascending */
    int count;
    bool keepdims;
} reduction;

/* Rows with two operands are those of the opsets in which the axes are an operand. */
static reduction read_reduction(onnx_node *n)
{
    const bool operand = n->row->max_in > 1;
    reduction r = {.keepdims = onnx_bool(n, "keepdims", true)};
    int rank = n->in[0]->type.rank;
    onnx_list list = operand ? onnx_const_list(n, 1) : onnx_ints(n, "axes");
    bool none = operand && onnx_bool(n, "noop_with_empty_axes", false);
    bool set[IR_MAX_RANK];
    onnx_axes(n, list, rank, set);
    for (int i = 0; i < rank && !n->failed; i++)
        if (list.count ? set[i] : !none) r.axes[r.count++] = i;
    return r;
}

static ir_value *reduce(onnx_node *n, ir_op op, ir_value *x, const reduction *r)
{
    if (!x) return NULL;
    ir_node *node = ir_new(n->b, op, 1, x);
    ir_set_list(node, IR_ATTR(reduce_sum, axes), r->axes, r->count);
    ir_set_bool(node, IR_ATTR(reduce_sum, keepdims), r->keepdims);
    return ir_done(n->b, node);
}

/* What remains of a reduction over no axis. */
static ir_value *reduce_nothing(onnx_node *n, ir_op op, ir_value *x)
{
    switch (op) {
    case IR_OP_reduce_l1:
    case IR_OP_reduce_l2: return ir_unary(n->b, IR_OP_abs, x);
    case IR_OP_reduce_sum_square: return ir_binary(n->b, IR_OP_mul, x, x);
    case IR_OP_reduce_log_sum: return ir_unary(n->b, IR_OP_log, x);
    default: return x;
    }
}

void onnx_lower_reduce(onnx_node *n)
{
    const reduction r = read_reduction(n);
    if (n->failed) return;
    n->out[0] = r.count ? reduce(n, (ir_op)n->arg, n->in[0], &r) : reduce_nothing(n, (ir_op)n->arg, n->in[0]);
}

/* ReduceL2 and ReduceLogSum, of which integers have a float part. Sums of integers are exact, and fractions are
 * truncated. */
void onnx_lower_reduce_root(onnx_node *n)
{
    const bool root = n->arg == IR_OP_reduce_l2;
    const ir_dtype t = n->in[0]->type.dtype;
    if (ir_dtype_is_float(t)) {
        onnx_lower_reduce(n);
        return;
    }
    const reduction r = read_reduction(n);
    if (n->failed) return;
    ir_value *sum = reduce(n, root ? IR_OP_reduce_sum_square : IR_OP_reduce_sum, n->in[0], &r);
    ir_value *y = ir_unary(n->b, root ? IR_OP_sqrt : IR_OP_log, ir_cast(n->b, sum, IR_f32));
    n->out[0] = ir_cast(n->b, y, t);
}

/* ---- ReduceLogSumExp -------------------------------------------------------------------------
 * The largest element is subtracted first, rounded up to an integer: the derivative of the rounding is 0, so the
 * backward does not follow the maximum. */

static ir_value *rounded_maximum(onnx_node *n, ir_value *max)
{
    const double limit = max ? ir_dtype_largest(max->type.dtype) : 0;
    if (!max) return NULL;
    ir_value *low = ir_scalar_like(n->b, max, -limit), *high = ir_scalar_like(n->b, max, limit);
    return ir_unary(n->b, IR_OP_ceil, ir_done(n->b, ir_new(n->b, IR_OP_clip, 3, max, low, high)));
}

/* With all elements -infinity, the result is -infinity and its gradient is 0. */
static ir_value *log_of_sum(onnx_node *n, ir_value *sum, ir_value *max, ir_value *shift)
{
    if (!sum || !shift) return NULL;
    ir_value *lowest = ir_scalar_like(n->b, sum, -INFINITY);
    ir_value *positive = ir_binary(n->b, IR_OP_max, sum, ir_scalar_like(n->b, sum, 0.25));
    ir_value *y = ir_binary(n->b, IR_OP_add, ir_unary(n->b, IR_OP_log, positive), shift);
    return ir_done(n->b, ir_new(n->b, IR_OP_where, 3, ir_binary(n->b, IR_OP_equal, max, lowest), lowest, y));
}

/* Removes the reduced axes, whose sizes are 1. */
static ir_value *drop_axes(onnx_node *n, ir_value *y, const reduction *r)
{
    ir_type to = {0};
    for (int i = 0, k = 0; y && i < y->type.rank; i++) {
        if (k < r->count && r->axes[k] == i) k++;
        else to.dims[to.rank++] = y->type.dims[i];
    }
    return ir_reshape_like(n->b, y, &to);
}

void onnx_lower_reduce_log_sum_exp(onnx_node *n)
{
    reduction r = read_reduction(n);
    const ir_dtype t = n->in[0]->type.dtype;
    const bool keepdims = r.keepdims;
    if (n->failed) return;
    if (!r.count) {
        n->out[0] = n->in[0];
        return;
    }
    r.keepdims = true;
    ir_value *x = ir_cast(n->b, n->in[0], ir_dtype_is_float(t) ? t : IR_f32);
    ir_value *max = reduce(n, IR_OP_reduce_max, x, &r), *shift = rounded_maximum(n, max);
    ir_value *terms = ir_unary(n->b, IR_OP_exp, ir_binary(n->b, IR_OP_sub, x, shift));
    ir_value *y = log_of_sum(n, reduce(n, IR_OP_reduce_sum, terms, &r), max, shift);
    n->out[0] = ir_cast(n->b, keepdims ? y : drop_axes(n, y, &r), t);
}

/* ---- global pools ---------------------------------------------------------------------------- */

void onnx_lower_global_pool(onnx_node *n)
{
    reduction r = {.keepdims = true};
    r.count = onnx_spatial_axes(n, r.axes);
    if (!n->failed) n->out[0] = reduce(n, (ir_op)n->arg, n->in[0], &r);
}
