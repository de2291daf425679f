/* infer_conv.c - matmul and ops with a sliding window: convolution and pooling with their gradients.
 *
 * A gradient is checked by the rule of its forward op, applied to the shape of the forward operand. */
#include "ir/infer/infer.h"

#include <inttypes.h>

/* ---- matmul ---------------------------------------------------------------------------------- */

ampc_status infer_matmul(const inference *x)
{
    const ir_node *n = x->node;
    for (int i = 0; i < 2; i++) TRY(infer_expect_rank(x, i, 2, IR_MAX_RANK));
    ir_type a = *infer_in(x, IR_IN(matmul, a)), b = *infer_in(x, IR_IN(matmul, b)), y;
    int ta = (int)n->attr[IR_ATTR(matmul, trans_a)].i, tb = (int)n->attr[IR_ATTR(matmul, trans_b)].i;
    ir_dim rows = a.dims[a.rank - 2 + ta], inner_a = a.dims[a.rank - 1 - ta];
    ir_dim inner_b = b.dims[b.rank - 2 + tb], columns = b.dims[b.rank - 1 - tb];
    if (!ir_dim_may_equal(x->dims, inner_a, inner_b))
        return infer_reject(x, "inner dimensions differ: %s and %s", infer_show_dim(x, inner_a),
                            infer_show_dim(x, inner_b));
    ir_type bias = infer_untyped(1, &columns);
    TRY(infer_expect(x, IR_IN(matmul, bias), &bias));
    a.rank -= 2;
    b.rank -= 2;
    if (!ir_broadcast(x->dims, &a, &b, &y))
        return infer_reject(x, "leading dimensions do not broadcast: %s and %s", infer_show(x, infer_in(x, 0)),
                            infer_show(x, infer_in(x, 1)));
    y.dtype = IR_NO_DTYPE;
    y.dims[y.rank++] = rows;
    y.dims[y.rank++] = columns;
    return infer_result(x, 0, y);
}

/* ---- windows --------------------------------------------------------------------------------- */

enum { MAX_SPATIAL = 3 };

typedef struct window { /* along one axis */
    int64_t kernel, stride, before, after, dilation;
    bool ceil;
} window;

static ampc_status window_read(const inference *x, int axes, window *w)
{
    const int64_t *strides, *pads, *dilations;
    TRY(infer_list(x, "strides", axes, &strides));
    TRY(infer_list(x, "pads", 2 * axes, &pads));
    TRY(infer_list(x, "dilations", axes, &dilations));
    const ir_attr *ceil = infer_attr_find(x, "ceil");
    for (int i = 0; i < axes; i++)
        w[i] = (window){.stride = strides[i],
                        .before = pads[i],
                        .after = pads[axes + i],
                        .dilation = dilations[i],
                        .ceil = ceil && ceil->i};
    return AMPC_OK;
}

/* The number of window positions on `size` elements. Ceil mode adds one if elements are left over, unless that window
 * would begin in the end padding, which is smaller than the window. */
static ampc_status window_count(const inference *x, int axis, const window *w, ir_dim size, ir_dim *count)
{
    ir_dim_table *t = x->dims;
    int64_t extent = w->dilation * (w->kernel - 1) + 1, rest = w->ceil ? w->stride - 1 : 0;
    ir_dim space = ir_dim_add(t, size, w->before + w->after - extent);
    if (space < 0 && space != IR_DIM_NONE && !ir_dim_is_symbolic(space))
        return infer_reject(x, "axis %d: a window of %" PRId64 " is larger than %" PRId64 " padded elements", axis,
                            extent, space + extent);
    *count = ir_dim_add(t, ir_dim_floordiv(t, ir_dim_add(t, space, rest), w->stride), 1);
    if (w->ceil) *count = ir_dim_min(t, *count, ir_dim_floordiv(t, ir_dim_add(t, size, w->before + rest), w->stride));
    return AMPC_OK;
}

/* ---- convolution ----------------------------------------------------------------------------- */

static ampc_status conv_check_channels(const inference *x, const ir_type *in, const ir_type *w)
{
    int64_t group = infer_attr(x, "group")->i;
    const ir_dim channels = ir_dim_mul(x->dims, w->dims[1], group);
    if (channels == IR_DIM_NONE || !ir_dim_may_equal(x->dims, channels, in->dims[1]))
        return infer_reject(x, "channels differ: %s in the input, %s * group %" PRId64 " in the weight",
                            infer_show_dim(x, in->dims[1]), infer_show_dim(x, w->dims[1]), group);
    if (ir_dim_div(x->dims, w->dims[0], group) == IR_DIM_NONE)
        return infer_reject(x, "group %" PRId64 " does not divide %s output channels", group,
                            infer_show_dim(x, w->dims[0]));
    return AMPC_OK;
}

/* The result shape of the convolution of `in` with `w`. */
static ampc_status conv_shape(const inference *x, const ir_type *in, const ir_type *w, ir_type *y)
{
    int axes = in->rank - 2;
    if (axes < 1 || axes > MAX_SPATIAL)
        return infer_reject(x, "the input has %d spatial dimensions, 1 to %d are supported", axes, MAX_SPATIAL);
    if (w->rank != in->rank)
        return infer_reject(x, "ranks differ: %d of the input and %d of the weight", in->rank, w->rank);
    window windows[MAX_SPATIAL];
    TRY(window_read(x, axes, windows));
    TRY(conv_check_channels(x, in, w));
    *y = (ir_type){.rank = in->rank, .dims = {in->dims[0], w->dims[0]}};
    for (int i = 0; i < axes; i++) {
        windows[i].kernel = w->dims[2 + i];
        if (windows[i].kernel < 1 || windows[i].kernel > INT32_MAX)
            return infer_reject(x, "the kernel size of axis %d is out of range: %s", 2 + i,
                                infer_show_dim(x, windows[i].kernel));
        TRY(window_count(x, 2 + i, &windows[i], in->dims[2 + i], &y->dims[2 + i]));
    }
    return AMPC_OK;
}

ampc_status infer_conv(const inference *x)
{
    const ir_type *w = infer_in(x, IR_IN(conv, w));
    ir_type y;
    TRY(conv_shape(x, infer_in(x, IR_IN(conv, x)), w, &y));
    ir_type bias = infer_untyped(1, w->dims);
    TRY(infer_expect(x, IR_IN(conv, bias), &bias));
    return infer_result(x, 0, y);
}

ampc_status infer_conv_grad_input(const inference *x)
{
    ir_type in, y;
    TRY(infer_shape(x, &in));
    TRY(conv_shape(x, &in, infer_in(x, IR_IN(conv_grad_input, w)), &y));
    TRY(infer_expect(x, IR_IN(conv_grad_input, dy), &y));
    return infer_result(x, 0, in);
}

ampc_status infer_conv_grad_weight(const inference *x)
{
    ir_type w, y;
    TRY(infer_shape(x, &w));
    TRY(conv_shape(x, infer_in(x, IR_IN(conv_grad_weight, x)), &w, &y));
    TRY(infer_expect(x, IR_IN(conv_grad_weight, dy), &y));
    TRY(infer_result(x, IR_OUT(conv_grad_weight, dw), w));
    return infer_result(x, IR_OUT(conv_grad_weight, dbias), infer_untyped(1, w.dims));
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* The padding must be smaller than the window, so that every window has at least one element. */
static ampc_status pool_shape(const inference *x, const ir_type *in, ir_type *y)
{
    int axes = in->rank - 2;
    if (axes < 1 || axes > MAX_SPATIAL)
        return infer_reject(x, "the input has %d spatial dimensions, 1 to %d are supported", axes, MAX_SPATIAL);
    window windows[MAX_SPATIAL];
    const int64_t *kernel;
    TRY(window_read(x, axes, windows));
    TRY(infer_list(x, "kernel", axes, &kernel));
    *y = infer_untyped(in->rank, in->dims);
    for (int i = 0; i < axes; i++) {
        window *w = &windows[i];
        w->kernel = kernel[i];
        int64_t extent = w->dilation * (w->kernel - 1) + 1, pad = w->before > w->after ? w->before : w->after;
        if (pad >= extent)
            return infer_reject(x, "axis %d: padding of %" PRId64 " is not smaller than the window of %" PRId64, 2 + i,
                                pad, extent);
        TRY(window_count(x, 2 + i, w, in->dims[2 + i], &y->dims[2 + i]));
    }
    return AMPC_OK;
}

ampc_status infer_pool(const inference *x)
{
    ir_type y;
    if (infer_in(x, 0)->dtype == IR_u64) return infer_reject(x, "u64 is not supported"); /* compared as i64 */
    TRY(pool_shape(x, infer_in(x, 0), &y));
    TRY(infer_result(x, 0, y));
    return infer_result(x, IR_OUT(max_pool, indices), y);
}

/* The window attributes are not needed here: the indices, which are checked at run time, determine where gradients are
 * added. */
ampc_status infer_max_pool_grad(const inference *x)
{
    const ir_type *dy = infer_in(x, IR_IN(max_pool_grad, dy));
    ir_type in;
    TRY(infer_shape(x, &in));
    TRY(infer_expect(x, IR_IN(max_pool_grad, indices), dy));
    bool images = in.rank == dy->rank && in.rank > 2 && in.dims[0] == dy->dims[0] && in.dims[1] == dy->dims[1];
    if (!images) return infer_reject(x, "dy %s is not the pooled shape of %s", infer_show(x, dy), infer_show(x, &in));
    return infer_result(x, 0, in);
}

ampc_status infer_avg_pool_grad(const inference *x)
{
    ir_type in, y;
    TRY(infer_shape(x, &in));
    TRY(pool_shape(x, &in, &y));
    TRY(infer_expect(x, IR_IN(avg_pool_grad, dy), &y));
    return infer_result(x, 0, in);
}
