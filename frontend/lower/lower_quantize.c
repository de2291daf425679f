/* lower_quantize.c - QuantizeLinear, DequantizeLinear and the operators on quantised integers, in float arithmetic.
 *
 *     QuantizeLinear     cast(clip(round(x / scale) + zero, lowest, highest))      half to even
 *     DequantizeLinear   (q - zero) * scale
 *
 * A DequantizeLinear of a QuantizeLinear reads the numbers before they become integers, and the rounding passes its
 * gradient, so quantisation-aware training gets the straight-through gradient: that of x where x is not clipped. Scales
 * from initializers are not trained. Products of integers are exact: sums of at most EXACT_TERMS products of 9-bit
 * integers in f32, which are added as i32. */
#include "frontend/lower/lower.h"

#include <string.h>

enum {
    EXACT_TERMS = 256,    /* 256 * 255^2 < 2^24 */
    PRECISION_SINCE = 23, /* from here on the quotient is rounded to the type of the scale by default */
};

ir_value *onnx_held_scale(onnx_node *n, int i)
{
    ir_value *v = onnx_in(n, i);
    if (v && v->kind == IR_VALUE_STORAGE && ir_dtype_is_float(v->type.dtype)) v->storage->facts |= IR_TENSOR(scale);
    return v;
}

/* ---- shapes of scales and zero points --------------------------------------------------------- */

/* Repeats each element of axis `axis` `block` times and cuts the axis to `size`. */
static ir_value *repeat(onnx_node *n, ir_value *v, int axis, int64_t block, const ir_type *x)
{
    ir_type split = v->type, whole = v->type;
    split.rank++;
    for (int i = split.rank - 1; i > axis; i--) split.dims[i] = v->type.dims[i - 1];
    split.dims[axis + 1] = 1;
    ir_value *blocks = ir_reshape_like(n->b, v, &split);
    split.dims[axis + 1] = block;
    whole.dims[axis] = v->type.dims[axis] * block;
    return ir_cut(n->b, ir_reshape_like(n->b, ir_expand(n->b, blocks, split.dims, split.rank), &whole), x->dims);
}

static ir_value *blocked(onnx_node *n, ir_value *v, int axis, const ir_type *x)
{
    int64_t size = onnx_size(n, x->dims[axis], "the quantised axis"), block = onnx_int(n, "block_size", 0);
    int64_t count = onnx_size(n, v->type.dims[axis], "the axis of the scales");
    if (block < 1 || block > INT32_MAX) onnx_reject(n, "block_size is %lld, but scales are blocked", (long long)block);
    else if (count != size / block + (size % block != 0))
        onnx_reject(n, "%lld blocks of %lld elements do not cover %lld", (long long)count, (long long)block,
                    (long long)size);
    for (int i = 0; i < x->rank; i++)
        if (i != axis && v->type.dims[i] != x->dims[i]) onnx_reject(n, "dimension %d of scale and input differ", i);
    return n->failed ? NULL : repeat(n, v, axis, block, x);
}

/* A scale or zero point in a shape that broadcasts to x: of one element, of one element per index of the axis, or
 * blocked. */
static ir_value *fitted(onnx_node *n, ir_value *v, const ir_type *x, int64_t wanted)
{
    if (!v || !v->type.rank) return v;
    if (v->type.rank == 1 && v->type.dims[0] == 1 && !(x->rank == 1 && onnx_int(n, "block_size", 0)))
        return ir_reshape(n->b, v, NULL, 0);
    int axis = onnx_axis(n, wanted, x->rank);
    if (n->failed) return NULL;
    if (v->type.rank == x->rank && onnx_int(n, "block_size", 0)) return blocked(n, v, axis, x);
    ir_type shape = *x;
    for (int i = 0; i < x->rank; i++) shape.dims[i] = i == axis ? v->type.dims[0] : 1;
    if (v->type.rank != 1 || v->type.dims[0] != x->dims[axis])
        onnx_reject(n, "the scale has %d dimensions and does not fit axis %d", v->type.rank, axis);
    return n->failed ? NULL : ir_reshape_like(n->b, v, &shape);
}

/* ---- arithmetic ------------------------------------------------------------------------------- */

/* Integers of at most 16 bits. `narrow`: how many are used, if not all. */
static bool range_of(ir_dtype t, int narrow, double *low, double *high)
{
    const int bits = narrow ? narrow : (int)ir_dtype_size(t) * 8;
    const bool is_signed = t == IR_i8 || t == IR_i16;
    if (!is_signed && t != IR_u8 && t != IR_u16) return false;
    *low = is_signed ? -(double)(1 << (bits - 1)) : 0;
    *high = *low + (double)((1 << bits) - 1);
    return true;
}

static ir_value *quantized(onnx_node *n, ir_value *ratio, ir_value *zero, ir_dtype to, int narrow)
{
    double low = 0, high = 0;
    if (!range_of(to, narrow, &low, &high)) onnx_refuse(n, "quantisation to %s is not supported", ir_dtype_name(to));
    if (n->failed || !ratio) return NULL;
    ir_value *x = ir_cast(n->b, ratio, ratio->type.dtype == IR_f64 ? IR_f64 : IR_f32);
    ir_node *round = ir_new(n->b, IR_OP_round, 1, x);
    ir_set_bool(round, IR_ATTR(round, straight), true);
    ir_value *v = ir_done(n->b, round);
    if (v && zero) v = ir_binary(n->b, IR_OP_add, v, ir_cast(n->b, zero, v->type.dtype));
    if (!v) return NULL;
    ir_value *lo = ir_scalar_like(n->b, v, low), *hi = ir_scalar_like(n->b, v, high);
    return ir_cast(n->b, ir_done(n->b, ir_new(n->b, IR_OP_clip, 3, v, lo, hi)), to);
}

ir_value *onnx_quantized(onnx_node *n, ir_value *ratio, ir_value *zero, ir_dtype to)
{
    return quantized(n, ratio, zero, to, 0);
}

/* A cast even to the type that x has: mixed precision then keeps the type. */
static ir_value *pinned(onnx_node *n, ir_value *x, ir_dtype to)
{
    if (x->type.dtype != to || x->kind == IR_VALUE_STORAGE) return ir_cast(n->b, x, to);
    ir_node *cast = ir_new(n->b, IR_OP_cast, 1, x);
    ir_set_dtype(cast, IR_ATTR(cast, to), to);
    return ir_done(n->b, cast);
}

static ir_dtype type_attribute(onnx_node *n, const char *name, ir_dtype otherwise)
{
    int64_t code = onnx_int(n, name, 0);
    if (!code) return otherwise;
    ir_dtype t = onnx_type_dtype(code);
    if (t == IR_NO_DTYPE) onnx_refuse(n, "%s %s is not supported", name, onnx_type_name(code));
    return t;
}

void onnx_lower_quantize(onnx_node *n)
{
    ir_value *x = n->in[0], *zero = onnx_in(n, 2);
    const int64_t axis = onnx_int(n, "axis", 1);
    onnx_ignore(n, "saturate"); /* concerns 8-bit floats */
    ir_value *scale = fitted(n, onnx_held_scale(n, 1), &x->type, axis);
    if (!scale) return;
    const bool low = ir_dtype_is_low(scale->type.dtype) && n->opset < PRECISION_SINCE;
    ir_dtype inside = type_attribute(n, "precision", low ? IR_f32 : scale->type.dtype);
    const int64_t code = onnx_int(n, "output_dtype", 0);
    const int used = onnx_narrow_bits(n->importer, zero), asked = onnx_type_bits(code),
              narrow = used ? used : asked % 8;
    ir_dtype to = code ? onnx_type_holder(code) : zero ? zero->type.dtype : IR_u8;
    if (to == IR_NO_DTYPE) onnx_refuse(n, "output_dtype %s is not supported", onnx_type_name(code));
    if (zero && (zero->type.dtype != to || (code && used != asked % 8)))
        onnx_reject(n, "output_dtype is not the type of the zero point");
    n->in_parts = narrow; /* whose types would make it saturate to 8 bits */
    if (!ir_dtype_is_float(inside)) onnx_reject(n, "the scale or precision is not a float type");
    if (n->failed) return;
    scale = ir_cast(n->b, scale, inside);
    ir_value *ratio = ir_binary(n->b, IR_OP_div, pinned(n, x, inside), scale);
    n->out[0] = quantized(n, ratio, fitted(n, zero, &x->type, axis), to, narrow);
}

/* The largest (smallest) element and 0. */
static ir_value *extreme(onnx_node *n, ir_value *x, ir_op reduce, ir_op choose)
{
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) axes[i] = i;
    ir_node *node = ir_new(n->b, reduce, 1, x);
    ir_set_list(node, IR_ATTR(reduce_max, axes), axes, x->type.rank);
    ir_set_bool(node, IR_ATTR(reduce_max, keepdims), false);
    ir_value *zero = ir_scalar_like(n->b, x, 0);
    return ir_binary(n->b, choose, ir_done(n->b, node), zero);
}

onnx_bytes_of_range onnx_dynamic_quantized(onnx_node *n, ir_value *x)
{
    if (x->type.dtype != IR_f32) onnx_reject(n, "the operand is %s, not float", ir_dtype_name(x->type.dtype));
    if (n->failed) return (onnx_bytes_of_range){0};
    ir_value *high = extreme(n, x, IR_OP_reduce_max, IR_OP_max), *low = extreme(n, x, IR_OP_reduce_min, IR_OP_min);
    ir_value *range = ir_binary(n->b, IR_OP_sub, high, low), *zero = ir_scalar(n->b, IR_f32, 0);
    ir_value *scale = ir_binary(n->b, IR_OP_div, range, ir_scalar(n->b, IR_f32, 255));
    ir_value *empty = ir_binary(n->b, IR_OP_equal, range, zero);
    scale = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, empty, ir_scalar(n->b, IR_f32, 1), scale));
    ir_value *offset = ir_binary(n->b, IR_OP_div, ir_binary(n->b, IR_OP_sub, zero, low), scale);
    ir_value *zero_point = onnx_quantized(n, offset, NULL, IR_u8);
    return (onnx_bytes_of_range){onnx_quantized(n, ir_binary(n->b, IR_OP_div, x, scale), zero_point, IR_u8), scale,
                                 zero_point};
}

void onnx_lower_dynamic_quantize(onnx_node *n)
{
    const onnx_bytes_of_range q = onnx_dynamic_quantized(n, n->in[0]);
    n->out[0] = q.bytes;
    if (n->n_out > 1) n->out[1] = q.scale;
    if (n->n_out > 2) n->out[2] = q.zero;
}

/* The float value of a quantised integer: before the cast if a QuantizeLinear has made it. */
static ir_value *as_float(onnx_node *n, ir_value *x)
{
    const ir_node *made = x->kind == IR_VALUE_RESULT ? x->def : NULL;
    bool is_cast = made && ir_op_has(made->op, IR_CONVERTS) && made->loc.op;
    if (is_cast && strcmp(made->loc.op, "QuantizeLinear") == 0 && ir_in(made, 0)->type.dtype == IR_f32)
        return ir_in(made, 0);
    return ir_cast(n->b, x, IR_f32);
}

ir_value *onnx_centred(onnx_node *n, ir_value *v, ir_value *zero)
{
    v = ir_cast(n->b, v, IR_f32);
    return zero ? ir_binary(n->b, IR_OP_sub, v, ir_cast(n->b, zero, IR_f32)) : v;
}

void onnx_lower_dequantize(onnx_node *n)
{
    ir_value *x = n->in[0];
    const ir_dtype t = x->type.dtype;
    const int64_t axis = onnx_int(n, "axis", 1);
    double low, high;
    if (t != IR_i32 && !range_of(t, 0, &low, &high)) onnx_refuse(n, "values of type %s", ir_dtype_name(t));
    if (onnx_in(n, 2) && n->in[2]->type.dtype != t) onnx_reject(n, "the zero point has another type than the values");
    ir_value *scale = fitted(n, onnx_held_scale(n, 1), &x->type, axis),
             *zero = fitted(n, onnx_in(n, 2), &x->type, axis);
    if (!scale || n->failed) return;
    ir_dtype to = type_attribute(n, "output_dtype", scale->type.dtype);
    /* 32-bit integers are subtracted as such */
    ir_value *v = t != IR_i32 ? onnx_centred(n, as_float(n, x), zero)
                              : ir_cast(n->b, zero ? ir_binary(n->b, IR_OP_sub, x, zero) : x, IR_f32);
    ir_value *y = ir_binary(n->b, IR_OP_mul, v, ir_cast(n->b, scale, IR_f32));
    n->out[0] = ir_cast(n->b, y, to);
}

/* ---- products of integers --------------------------------------------------------------------- */

/* A product of two f32 values that sums along an axis of each. */
typedef struct product {
    ir_value *a, *b;
    int axis_a, axis_b;
    int64_t terms; /* per index of the axis */
    ir_value *(*multiply)(onnx_node *n, const struct product *p, ir_value *a, ir_value *b);
    const onnx_window *window;
    int64_t group;
} product;

/* The product as i32. Long or unknown sums are computed in parts, or in f64. */
static ir_value *exact(onnx_node *n, const product *p)
{
    ir_value *sum = NULL;
    const ir_dim length = p->b->type.dims[p->axis_b];
    bool whole = !ir_dim_is_symbolic(length) && length * p->terms <= EXACT_TERMS;
    if (ir_dim_is_symbolic(length) || p->terms > EXACT_TERMS || (!whole && p->group > 1)) {
        ir_value *b = ir_cast(n->b, p->b, IR_f64);
        return ir_cast(n->b, p->multiply(n, p, ir_cast(n->b, p->a, IR_f64), b), IR_i32);
    }
    const int64_t most = whole ? length : EXACT_TERMS / p->terms;
    for (int64_t i = 0; i < length || !sum; i += most) {
        int64_t count = length - i < most ? length - i : most;
        ir_value *a = whole ? p->a : onnx_slice_axis(n, p->a, p->axis_a, i, count),
                 *b = onnx_slice_axis(n, p->b, p->axis_b, i, count);
        ir_value *v = ir_cast(n->b, p->multiply(n, p, a, b), IR_i32);
        sum = sum ? ir_binary(n->b, IR_OP_add, sum, v) : v;
        if (!sum) return NULL;
    }
    return sum;
}

static ir_value *multiply_matrices(onnx_node *n, const product *p, ir_value *a, ir_value *b)
{
    (void)p;
    return ir_matmul(n->b, a, b, NULL, false, false);
}

static ir_value *convolve(onnx_node *n, const product *p, ir_value *a, ir_value *b)
{
    ir_node *node = ir_new(n->b, IR_OP_conv, 3, a, b, NULL);
    ONNX_SET_WINDOW(node, conv, p->window);
    ir_set_int(node, IR_ATTR(conv, group), p->group);
    return ir_done(n->b, node);
}

static bool is_byte(onnx_node *n, const ir_value *v)
{
    bool is = v->type.dtype == IR_u8 || v->type.dtype == IR_i8;
    if (!is) onnx_reject(n, "an operand is %s, not int8 or uint8", ir_dtype_name(v->type.dtype));
    return is;
}

ir_value *onnx_per_row(onnx_node *n, ir_value *v, const ir_type *matrix, bool columns)
{
    if (!v || v->type.rank != 1) return v;
    if (v->type.dims[0] == 1) return ir_reshape(n->b, v, NULL, 0);
    ir_dim dims[2] = {columns ? 1 : v->type.dims[0], columns ? v->type.dims[0] : 1};
    if (matrix->rank < 2 || v->type.dims[0] != matrix->dims[matrix->rank - (columns ? 1 : 2)])
        onnx_reject(n, "a scale or zero point does not fit its operand");
    return n->failed ? NULL : ir_reshape(n->b, v, dims, 2);
}

ir_value *onnx_multiply_bytes(onnx_node *n, ir_value *a, ir_value *a_zero, ir_value *b, ir_value *b_zero)
{
    if (!is_byte(n, a) || !is_byte(n, b)) return NULL;
    if (a->type.rank < 2 || b->type.rank < 2) onnx_refuse(n, "operands of fewer than two dimensions");
    ir_value *left = n->failed ? NULL : onnx_centred(n, a, onnx_per_row(n, a_zero, &a->type, false));
    ir_value *right = n->failed ? NULL : onnx_centred(n, b, onnx_per_row(n, b_zero, &b->type, true));
    if (!left || !right) return NULL;
    const product p = {left, right, left->type.rank - 1, right->type.rank - 2, 1, multiply_matrices, NULL, 1};
    return exact(n, &p);
}

void onnx_lower_matmul_integer(onnx_node *n)
{
    n->out[0] = onnx_multiply_bytes(n, n->in[0], onnx_in(n, 2), n->in[1], onnx_in(n, 3));
}

/* One element per output channel of a weight. */
static ir_value *per_channel(onnx_node *n, ir_value *v, int rank, ir_dim channels, int axis)
{
    if (!v || !v->type.rank) return v;
    if (v->type.rank == 1 && v->type.dims[0] == 1) return ir_reshape(n->b, v, NULL, 0);
    ir_type shape = {.dtype = v->type.dtype, .rank = rank};
    for (int i = 0; i < rank; i++) shape.dims[i] = i == axis ? channels : 1;
    if (v->type.rank != 1 || v->type.dims[0] != channels)
        onnx_reject(n, "a scale, zero point or bias does not have one element per output channel");
    return n->failed ? NULL : ir_reshape_like(n->b, v, &shape);
}

/* The convolution of bytes as i32. */
static ir_value *convolve_bytes(onnx_node *n, ir_value *x, ir_value *x_zero, ir_value *w, ir_value *w_zero)
{
    if (!is_byte(n, x) || !is_byte(n, w)) return NULL;
    if (w->type.rank != x->type.rank) onnx_reject(n, "weight and input have different ranks");
    const onnx_window window = onnx_window_of(n, x, w->type.rank > 2 ? w->type.dims + 2 : NULL);
    int64_t group = onnx_int(n, "group", 1), terms = 1;
    if (group < 1 || group > INT32_MAX) onnx_reject(n, "invalid group %lld", (long long)group);
    for (int i = 0; i < window.n && terms <= EXACT_TERMS; i++) terms *= window.kernel[i];
    if (n->failed) return NULL;
    ir_value *data = onnx_centred(n, x, per_channel(n, x_zero, x->type.rank, 1, 0));
    ir_value *weight = onnx_centred(n, w, per_channel(n, w_zero, w->type.rank, w->type.dims[0], 0));
    if (!data || !weight) return NULL;
    const product p = {data, weight, 1, 1, terms, convolve, &window, group};
    return exact(n, &p);
}

void onnx_lower_conv_integer(onnx_node *n)
{
    n->out[0] = convolve_bytes(n, n->in[0], onnx_in(n, 2), n->in[1], onnx_in(n, 3));
}

/* ---- operators with a quantised result --------------------------------------------------------- */

/* Rescales an i32 sum by scale_a * scale_b / scale_y. */
static ir_value *requantized(onnx_node *n, ir_value *sum, ir_value *scale_a, ir_value *scale_b, int scale_y)
{
    ir_value *zero = onnx_in(n, scale_y + 1), *to = onnx_held_scale(n, scale_y);
    if (!sum || !scale_a || !scale_b || !to || !zero) return NULL;
    ir_value *scale = ir_cast(n->b, ir_binary(n->b, IR_OP_mul, scale_a, scale_b), IR_f32);
    scale = ir_binary(n->b, IR_OP_div, scale, ir_cast(n->b, onnx_scalar_of(n, to), IR_f32));
    ir_value *v = ir_binary(n->b, IR_OP_mul, ir_cast(n->b, sum, IR_f32), scale);
    return onnx_quantized(n, v, onnx_scalar_of(n, zero), zero->type.dtype);
}

void onnx_lower_qlinear_matmul(onnx_node *n)
{
    ir_value *a = n->in[0], *b = n->in[3];
    ir_value *sum = onnx_multiply_bytes(n, a, n->in[2], b, n->in[5]);
    if (!sum) return;
    ir_value *scales = onnx_per_row(n, onnx_held_scale(n, 4), &b->type, true);
    n->out[0] = requantized(n, sum, onnx_per_row(n, onnx_held_scale(n, 1), &a->type, false), scales, 6);
}

void onnx_lower_qlinear_conv(onnx_node *n)
{
    ir_value *w = n->in[3], *sum = convolve_bytes(n, n->in[0], n->in[2], w, n->in[5]);
    if (!sum) return;
    const int rank = sum->type.rank;
    if (onnx_in(n, 8)) sum = ir_binary(n->b, IR_OP_add, sum, per_channel(n, n->in[8], rank, w->type.dims[0], 1));
    ir_value *scales = per_channel(n, onnx_held_scale(n, 4), rank, w->type.dims[0], 1);
    n->out[0] = requantized(n, sum, onnx_scalar_of(n, onnx_held_scale(n, 1)), scales, 6);
}
