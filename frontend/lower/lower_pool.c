/* lower_pool.c - MaxPool, AveragePool, GlobalAveragePool. */
#include "frontend/lower/lower.h"

void onnx_lower_max_pool(onnx_node *n)
{
    onnx_window w = onnx_window_of(n, n->in[0], NULL);
    bool ceil_mode = onnx_bool(n, "ceil_mode", false), column_major = onnx_bool(n, "storage_order", false);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_max_pool, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(max_pool, kernel), w.kernel, w.n);
    ONNX_SET_WINDOW(node, max_pool, &w);
    ir_set_bool(node, IR_ATTR(max_pool, ceil), ceil_mode);
    ir_set_bool(node, IR_ATTR(max_pool, column_major), column_major);
    n->out[0] = ir_done(n->b, node);
    if (n->out[0] && onnx_result_is_used(n, 1)) n->out[1] = ir_cast(n->b, node->out[IR_OUT(max_pool, indices)], IR_i64);
}

void onnx_lower_average_pool(onnx_node *n)
{
    onnx_window w = onnx_window_of(n, n->in[0], NULL);
    bool ceil_mode = onnx_bool(n, "ceil_mode", false), count_pad = onnx_bool(n, "count_include_pad", false);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_avg_pool, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(avg_pool, kernel), w.kernel, w.n);
    ONNX_SET_WINDOW(node, avg_pool, &w);
    ir_set_bool(node, IR_ATTR(avg_pool, ceil), ceil_mode);
    ir_set_bool(node, IR_ATTR(avg_pool, count_pad), count_pad);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_global_average_pool(onnx_node *n)
{
    int rank = n->in[0]->type.rank;
    if (rank < 3) {
        onnx_reject(n, "the input has rank %d, but needs N, C and spatial dimensions", rank);
        return;
    }
    int64_t axes[IR_MAX_RANK];
    for (int i = 2; i < rank; i++) axes[i - 2] = i;
    ir_node *node = ir_new(n->b, IR_OP_reduce_mean, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(reduce_mean, axes), axes, rank - 2);
    n->out[0] = ir_done(n->b, node);
}
