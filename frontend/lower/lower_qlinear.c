/* lower_qlinear.c - onnxruntime's operators on quantised tensors (other_ops.def): the operands as floats, the operator,
 * and the result quantised again. Products are exact, as those of ONNX's operators (lower_quantize.c). */
#include "frontend/lower/lower.h"

/* (x - zero) * scale, of operand i and the two after it. */
static ir_value *real(onnx_node *n, int i)
{
    ir_value *scale = onnx_scalar_of(n, onnx_held_scale(n, i + 1)), *zero = onnx_scalar_of(n, onnx_in(n, i + 2));
    if (n->failed || !scale) return NULL;
    scale = ir_cast(n->b, scale, IR_f32);
    return ir_binary(n->b, IR_OP_mul, onnx_centred(n, n->in[i], zero), scale);
}

static ir_value *over(onnx_node *n, ir_value *x, ir_value *scale) { return ir_binary(n->b, IR_OP_div, x, scale); }

/* What onnxruntime's Softmax has instead: x times the whole part of 1 / scale. */
static ir_value *times_inverse(onnx_node *n, ir_value *x, ir_value *scale)
{
    ir_value *inverse = over(n, ir_scalar_like(n->b, scale, 1), scale);
    return ir_binary(n->b, IR_OP_mul, x, ir_unary(n->b, IR_OP_floor, inverse));
}

typedef ir_value *divide(onnx_node *n, ir_value *x, ir_value *scale);

/* x / scale + zero as integers of type `to`, with operand i and the one after it. */
static ir_value *whole_by(onnx_node *n, divide *by, ir_value *x, int i, ir_dtype to)
{
    ir_value *scale = onnx_scalar_of(n, onnx_held_scale(n, i)), *zero = onnx_scalar_of(n, onnx_in(n, i + 1));
    if (n->failed || !x || !scale) return NULL;
    return onnx_quantized(n, by(n, x, ir_cast(n->b, scale, IR_f32)), zero, zero ? zero->type.dtype : to);
}

static ir_value *whole(onnx_node *n, ir_value *x, int i, ir_dtype to) { return whole_by(n, over, x, i, to); }

void onnx_lower_qlinear_binary(onnx_node *n)
{
    ir_value *a = real(n, 0), *b = real(n, 3);
    n->out[0] = a && b ? whole(n, ir_binary(n->b, (ir_op)n->arg, a, b), 6, n->in[0]->type.dtype) : NULL;
}

/* ---- operators with one tensor ----------------------------------------------------------------- */

/* What the handler of ONNX's operator makes of x; channels are its second axis, or the last with `channels_last`. */
static void through(onnx_node *n, void (*lower)(onnx_node *n), divide *by)
{
    ir_value *own = n->in[0], *x = real(n, 0);
    const bool last = onnx_bool(n, "channels_last", false);
    const int rank = own->type.rank, n_in = n->n_in;
    int64_t to[IR_MAX_RANK], back[IR_MAX_RANK];
    if (last && rank < 3) onnx_reject(n, "the operand has %d dimensions", rank);
    if (!x || n->failed) return;
    for (int i = 0; i < rank; i++) to[i] = i < 2 ? (i ? rank - 1 : 0) : i - 1;
    for (int i = 0; i < rank; i++) back[to[i]] = i;
    n->in[0] = last ? ir_transpose(n->b, x, to) : x;
    n->n_in = 1;
    if (n->in[0]) lower(n);
    n->in[0] = own;
    n->n_in = n_in;
    ir_value *y = n->out[0];
    if (y && last) y = ir_transpose(n->b, y, back);
    n->out[0] = whole_by(n, by, y, 3, own->type.dtype);
}

void onnx_lower_qlinear_unary(onnx_node *n) { through(n, onnx_lower_unary, over); }

/* onnxruntime divides by the size of the whole window if both are set, ONNX does not. */
void onnx_lower_qlinear_average_pool(onnx_node *n)
{
    if (onnx_bool(n, "ceil_mode", false) && onnx_bool(n, "count_include_pad", false))
        onnx_refuse(n, "ceil_mode with count_include_pad is not supported");
    if (!n->failed) through(n, onnx_lower_average_pool, over);
}

void onnx_lower_qlinear_global_pool(onnx_node *n) { through(n, onnx_lower_global_pool, over); }

/* The opset of the Softmax that was quantised is an attribute. Without an axis, it is the last one. */
void onnx_lower_qlinear_softmax(onnx_node *n)
{
    enum { ONE_AXIS_SINCE = 13 };
    const bool one_axis = onnx_int(n, "opset", 0) >= ONE_AXIS_SINCE || !onnx_has(n, "axis");
    through(n, one_axis ? onnx_lower_softmax : onnx_lower_softmax_flat, times_inverse);
}

/* The scale and zero point of the result, then tensors with theirs. */
void onnx_lower_qlinear_concat(onnx_node *n)
{
    const int parts = (n->n_in - 2) / 3;
    ir_value **v = arena_array(n->importer->scratch, (size_t)parts + 1, sizeof *v);
    if (parts < 1 || n->n_in != 2 + 3 * parts) onnx_reject(n, "has %d inputs, not 2 and 3 per tensor", n->n_in);
    const int axis = n->failed ? 0 : onnx_axis(n, onnx_int(n, "axis", 0), n->in[2]->type.rank);
    for (int i = 0; i < parts && !n->failed; i++) v[i] = real(n, 2 + 3 * i);
    if (n->failed) return;
    ir_node *node = ir_new_array(n->b, IR_OP_concat, parts, v, 0);
    ir_set_int(node, IR_ATTR(concat, axis), axis);
    n->out[0] = whole(n, ir_done(n->b, node), 0, n->in[2]->type.dtype);
}

/* ---- products ---------------------------------------------------------------------------------- */

static ir_value *scaled(onnx_node *n, ir_value *sum, ir_value *a, ir_value *b, double factor)
{
    if (!sum || !a || !b) return NULL;
    b = ir_cast(n->b, b, IR_f32);
    ir_value *scale = ir_binary(n->b, IR_OP_mul, ir_cast(n->b, a, IR_f32), b);
    if (scale && factor != 1) scale = ir_binary(n->b, IR_OP_mul, scale, ir_scalar_like(n->b, scale, factor));
    return ir_binary(n->b, IR_OP_mul, ir_cast(n->b, sum, IR_f32), scale);
}

static ir_value *turned(onnx_node *n, ir_value *v, bool transposed)
{
    if (v->type.rank != 2) onnx_reject(n, "an operand has %d dimensions, not 2", v->type.rank);
    return n->failed || !transposed ? v : ir_transpose(n->b, v, (const int64_t[]){1, 0});
}

/* A, B, C of i32, and the scale and zero point of the result, which is float without them. */
void onnx_lower_qgemm(onnx_node *n)
{
    enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C, Y_SCALE };
    const double alpha = onnx_float(n, "alpha", 1);
    const bool trans_a = onnx_bool(n, "transA", false), trans_b = onnx_bool(n, "transB", false);
    ir_value *a = turned(n, n->in[A], trans_a), *b = turned(n, n->in[B], trans_b), *c = onnx_in(n, C);
    if (n->failed || !a || !b) return;
    ir_value *sum = onnx_multiply_bytes(n, a, onnx_scalar_of(n, n->in[A_ZERO]), b, n->in[B_ZERO]);
    if (sum && c) sum = ir_binary(n->b, IR_OP_add, sum, c);
    ir_value *scales = onnx_per_row(n, onnx_held_scale(n, B_SCALE), &b->type, true);
    ir_value *y = scaled(n, sum, onnx_scalar_of(n, onnx_held_scale(n, A_SCALE)), scales, alpha);
    n->out[0] = y && onnx_in(n, Y_SCALE) ? whole(n, y, Y_SCALE, n->in[A]->type.dtype) : y;
}

static void finish_product(onnx_node *n, ir_value *sum, ir_value *a_scale, int b_scale, int bias)
{
    ir_value *y = scaled(n, sum, a_scale, onnx_per_row(n, onnx_held_scale(n, b_scale), &n->in[1]->type, true), 1);
    n->out[0] = y && onnx_in(n, bias) ? ir_binary(n->b, IR_OP_add, y, n->in[bias]) : y;
}

void onnx_lower_matmul_integer_to_float(onnx_node *n)
{
    enum { A, B, A_SCALE, B_SCALE, A_ZERO, B_ZERO, BIAS };
    ir_value *sum = onnx_multiply_bytes(n, n->in[A], onnx_in(n, A_ZERO), n->in[B], onnx_in(n, B_ZERO));
    finish_product(n, sum, onnx_per_row(n, onnx_held_scale(n, A_SCALE), &n->in[A]->type, false), B_SCALE, BIAS);
}

void onnx_lower_dynamic_quantize_matmul(onnx_node *n)
{
    enum { A, B, B_SCALE, B_ZERO, BIAS };
    const onnx_bytes_of_range a = onnx_dynamic_quantized(n, n->in[A]);
    ir_value *sum = a.bytes ? onnx_multiply_bytes(n, a.bytes, a.zero, n->in[B], onnx_in(n, B_ZERO)) : NULL;
    finish_product(n, sum, a.scale, B_SCALE, BIAS);
}
