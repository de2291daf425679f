/* lower_pool.c - MaxPool, AveragePool, LpPool, GlobalLpPool. */
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

/* ---- powers: the p-th root of a sum of p-th powers --------------------------------------------- */

/* The exponent, which was a float in the first version. */
static double read_exponent(onnx_node *n)
{
    double p = n->arg ? onnx_float(n, "p", 2) : (double)onnx_int(n, "p", 2);
    if (!(p > 0 && p <= INT32_MAX)) onnx_reject(n, "p = %g is out of range", p);
    return p;
}

/* In f32 or f64: powers exceed the range of low types. */
static ir_value *raise(onnx_node *n, double p)
{
    ir_value *x = ir_cast(n->b, n->in[0], n->in[0]->type.dtype == IR_f64 ? IR_f64 : IR_f32);
    if (p == 2) return ir_binary(n->b, IR_OP_mul, x, x);
    ir_value *size = ir_unary(n->b, IR_OP_abs, x);
    return p == 1 || !size ? size : ir_binary(n->b, IR_OP_pow, size, ir_scalar_like(n->b, size, p));
}

static ir_value *root(onnx_node *n, ir_value *x, double p)
{
    if (!x) return NULL;
    if (p == 2) x = ir_unary(n->b, IR_OP_sqrt, x);
    else if (p != 1) x = ir_binary(n->b, IR_OP_pow, x, ir_scalar_like(n->b, x, 1 / p));
    return x ? ir_cast(n->b, x, n->in[0]->type.dtype) : NULL;
}

void onnx_lower_lp_pool(onnx_node *n)
{
    onnx_window w = onnx_window_of(n, n->in[0], NULL);
    bool ceil_mode = n->opset >= 18 && onnx_bool(n, "ceil_mode", false);
    double p = read_exponent(n);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_avg_pool, 1, raise(n, p));
    ir_set_list(node, IR_ATTR(avg_pool, kernel), w.kernel, w.n);
    ONNX_SET_WINDOW(node, avg_pool, &w);
    ir_set_bool(node, IR_ATTR(avg_pool, ceil), ceil_mode);
    ir_set_bool(node, IR_ATTR(avg_pool, sum), true);
    n->out[0] = root(n, ir_done(n->b, node), p);
}

void onnx_lower_global_lp_pool(onnx_node *n)
{
    int64_t axes[IR_MAX_RANK];
    int count = onnx_spatial_axes(n, axes);
    double p = read_exponent(n);
    if (n->failed) return;
    n->out[0] = root(n, ir_reduce_sum(n->b, raise(n, p), axes, count, true), p);
}
