/* lower_reduce.c - ReduceMean, ReduceSum. */
#include "frontend/lower/lower.h"

/* Reads the axes to reduce in ascending order and returns their number. */
static int read_axes(onnx_node *n, int64_t *axes)
{
    int rank = n->in[0]->type.rank, count = 0;
    onnx_list list = onnx_list_since(n, "axes", 1, n->arg);
    bool none = n->opset >= n->arg && onnx_bool(n, "noop_with_empty_axes", false);
    bool set[IR_MAX_RANK];
    onnx_axes(n, list, rank, set);
    for (int i = 0; i < rank && !n->failed; i++)
        if (list.count ? set[i] : !none) axes[count++] = i;
    return count;
}

static void reduce(onnx_node *n, ir_op op, int axes_attr, int keepdims_attr)
{
    int64_t axes[IR_MAX_RANK];
    int count = read_axes(n, axes);
    bool keepdims = onnx_bool(n, "keepdims", true);
    if (n->failed) return;
    if (!count) {
        n->out[0] = n->in[0];
        return;
    }
    ir_node *node = ir_new(n->b, op, 1, n->in[0]);
    ir_set_list(node, axes_attr, axes, count);
    ir_set_bool(node, keepdims_attr, keepdims);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_reduce_mean(onnx_node *n)
{
    reduce(n, IR_OP_reduce_mean, IR_ATTR(reduce_mean, axes), IR_ATTR(reduce_mean, keepdims));
}

void onnx_lower_reduce_sum(onnx_node *n)
{
    reduce(n, IR_OP_reduce_sum, IR_ATTR(reduce_sum, axes), IR_ATTR(reduce_sum, keepdims));
}
