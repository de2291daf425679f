/* lower_conv.c - Conv, ConvTranspose. */
#include "frontend/lower/lower.h"

static int64_t read_group(onnx_node *n)
{
    int64_t group = onnx_int(n, "group", 1);
    if (group < 1 || group > INT32_MAX) onnx_reject(n, "invalid group %lld", (long long)group);
    return group;
}

void onnx_lower_conv(onnx_node *n)
{
    ir_value *x = n->in[0], *w = n->in[1];
    if (w->type.rank != x->type.rank) {
        onnx_reject(n, "the weight has rank %d, but the input has rank %d", w->type.rank, x->type.rank);
        return;
    }
    onnx_window window = onnx_window_of(n, x, w->type.rank > 2 ? w->type.dims + 2 : NULL);
    int64_t group = read_group(n);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_conv, 3, x, w, onnx_in(n, 2));
    ONNX_SET_WINDOW(node, conv, &window);
    ir_set_int(node, IR_ATTR(conv, group), group);
    n->out[0] = ir_done(n->b, node);
}

/* ---- ConvTranspose ---------------------------------------------------------------------------
 * The gradient of a convolution whose input has the shape of the result. Each axis has (in-1)*stride + reach elements,
 * of which the result keeps those from pads[begin] on; if it is longer, the rest is zero. */

typedef struct transposed {
    onnx_window w;
    int64_t extra[ONNX_MAX_RANK]; /* output_padding */
    ir_dim shape[ONNX_MAX_RANK];  /* of the gradient */
    int64_t zeros[ONNX_MAX_RANK]; /* elements after it */
    bool any_zeros;
} transposed;

static int64_t reach_of(const onnx_window *w, int axis) { return (w->kernel[axis] - 1) * w->dilations[axis] + 1; }

/* Divides `total` elements of padding so that SAME_UPPER has the odd one at the end. */
static void divide_pads(onnx_window *w, int axis, int64_t total)
{
    if (total < 0) total = 0;
    w->pads[axis] = w->same_upper ? total / 2 : total - total / 2;
    w->pads[axis + w->n] = total - w->pads[axis];
}

/* The size of the result along an axis of `in` elements; `given`: from output_shape, or -1. */
static ir_dim transposed_size(onnx_node *n, transposed *t, int axis, ir_dim in, int64_t given)
{
    onnx_window *w = &t->w;
    const int64_t stride = w->strides[axis], more = t->extra[axis] + reach_of(w, axis);
    if (given >= 0) {
        in = onnx_size(n, in, "output_shape needs static spatial dimensions: one");
        divide_pads(w, axis, (in - 1) * stride + more - given);
        return given;
    }
    if (w->same_upper || w->same_lower) {
        divide_pads(w, axis, more - stride);
        return ir_dim_mul(n->dims, in, stride);
    }
    const int64_t offset = more - stride - w->pads[axis] - w->pads[axis + w->n];
    return ir_dim_add(n->dims, ir_dim_mul(n->dims, in, stride), offset);
}

static void resolve_axis(onnx_node *n, transposed *t, int axis, ir_dim in, int64_t given)
{
    onnx_window *w = &t->w;
    const ir_dim out = transposed_size(n, t, axis, in, given);
    const ir_dim whole = ir_dim_add(n->dims, ir_dim_mul(n->dims, in, w->strides[axis]),
                                    reach_of(w, axis) - w->strides[axis] - w->pads[axis]);
    const int64_t beyond = onnx_size(n, ir_dim_sub(n->dims, out, whole), "the output padding");
    t->shape[axis + 2] = out;
    w->pads[axis + w->n] = beyond < 0 ? -beyond : 0;
    if (beyond < w->strides[axis]) return;
    t->shape[axis + 2] = whole;
    t->zeros[axis + 2] = beyond;
    t->any_zeros = true;
}

static void resolve(onnx_node *n, transposed *t, int64_t group)
{
    const ir_type *x = &n->in[0]->type, *weight = &n->in[1]->type;
    const onnx_list given = onnx_ints(n, "output_shape");
    onnx_numbers(n, "output_padding", t->w.n, 0, 0, t->extra);
    int skip = given.count == x->rank ? 2 : 0; /* some models have N and C, too */
    if (given.count && given.count != t->w.n + skip)
        onnx_reject(n, "output_shape has %d elements, not %d", given.count, t->w.n);
    t->shape[0] = x->dims[0];
    t->shape[1] = ir_dim_mul(n->dims, weight->dims[1], group);
    for (int i = 0; i < t->w.n && !n->failed; i++) {
        const int64_t size = given.count ? given.items[skip + i] : -1;
        if (given.count && (size < 0 || size > INT32_MAX))
            onnx_reject(n, "output_shape[%d] = %lld is out of range", i, (long long)size);
        else resolve_axis(n, t, i, x->dims[i + 2], size);
    }
}

static ir_value *append_zeros(onnx_node *n, const transposed *t, ir_value *v)
{
    const int64_t before[ONNX_MAX_RANK] = {0};
    ir_node *node = ir_new(n->b, IR_OP_pad, 2, v, NULL);
    ir_set_list(node, IR_ATTR(pad, before), before, t->w.n + 2);
    ir_set_list(node, IR_ATTR(pad, after), t->zeros, t->w.n + 2);
    return ir_done(n->b, node);
}

static ir_value *add_bias(onnx_node *n, ir_value *v, ir_value *bias)
{
    ir_dim dims[ONNX_MAX_RANK];
    if (!v || !bias) return v;
    if (bias->type.rank != 1 || bias->type.dims[0] != v->type.dims[1]) {
        onnx_reject(n, "the bias must have one element for each of the output channels");
        return NULL;
    }
    for (int i = 0; i < v->type.rank - 1; i++) dims[i] = i ? 1 : bias->type.dims[0];
    return ir_binary(n->b, IR_OP_add, v, ir_reshape(n->b, bias, dims, v->type.rank - 1));
}

void onnx_lower_conv_transpose(onnx_node *n)
{
    ir_value *x = n->in[0], *w = n->in[1];
    if (w->type.rank != x->type.rank) {
        onnx_reject(n, "the weight has rank %d, but the input has rank %d", w->type.rank, x->type.rank);
        return;
    }
    transposed t = {.w = onnx_window_read(n, x, w->type.rank > 2 ? w->type.dims + 2 : NULL)};
    int64_t group = read_group(n);
    if (!n->failed) resolve(n, &t, group);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_conv_grad_input, 2, x, w);
    ONNX_SET_WINDOW(node, conv_grad_input, &t.w);
    ir_set_list(node, IR_ATTR(conv_grad_input, shape), t.shape, x->type.rank);
    ir_set_int(node, IR_ATTR(conv_grad_input, group), group);
    ir_value *y = ir_done(n->b, node);
    if (y && t.any_zeros) y = append_zeros(n, &t, y);
    n->out[0] = add_bias(n, y, onnx_in(n, 2));
}
