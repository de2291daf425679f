/* window.c - the sliding window of Conv and the pools: kernel, strides, dilations, padding.
 *
 * Resolves auto_pad. SAME has ceil(in / stride) positions, so the padding of an axis is
 *   (out - 1) * stride + (kernel - 1) * dilation + 1 - in
 * with the odd element at the end (SAME_UPPER) or start (SAME_LOWER). */
#include "frontend/lower/lower.h"

#include <string.h>

void onnx_numbers(onnx_node *n, const char *name, int count, int64_t min, int64_t otherwise, int64_t *out)
{
    onnx_list list = onnx_ints(n, name);
    for (int i = 0; i < count; i++) out[i] = otherwise;
    if (!list.present) return;
    if (list.count != count) {
        onnx_reject(n, "%s has %d elements, not %d", name, list.count, count);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (list.items[i] < min || list.items[i] > INT32_MAX)
            onnx_reject(n, "%s[%d] = %lld is out of range", name, i, (long long)list.items[i]);
        else out[i] = list.items[i];
    }
}

static void read_kernel(onnx_node *n, onnx_window *w, const ir_dim *kernel)
{
    if (!kernel && !onnx_has(n, "kernel_shape")) onnx_reject(n, "attribute 'kernel_shape' is missing");
    bool specified = onnx_has(n, "kernel_shape");
    onnx_numbers(n, "kernel_shape", w->n, 1, 1, w->kernel);
    for (int i = 0; i < w->n && kernel && !n->failed; i++) {
        int64_t size = onnx_size(n, kernel[i], "a kernel dimension");
        if (specified && size != w->kernel[i])
            onnx_reject(n, "kernel_shape[%d] is %lld, but the weight has %lld", i, (long long)w->kernel[i],
                        (long long)size);
        w->kernel[i] = size;
    }
}

static void pad_same(onnx_node *n, onnx_window *w, int axis, ir_dim size, bool upper)
{
    int64_t reach = (w->kernel[axis] - 1) * w->dilations[axis] + 1, total = reach - 1;
    if (w->strides[axis] > 1) {
        int64_t in = onnx_size(n, size, "auto_pad needs static spatial dimensions: one");
        int64_t out = in / w->strides[axis] + (in % w->strides[axis] != 0);
        total = (out - 1) * w->strides[axis] + reach - in;
    }
    if (total < 0) total = 0;
    w->pads[axis] = upper ? total / 2 : total - total / 2;
    w->pads[axis + w->n] = total - w->pads[axis];
}

onnx_window onnx_window_read(onnx_node *n, const ir_value *x, const ir_dim *kernel)
{
    onnx_window w = {.n = x->type.rank - 2};
    if (w.n < 1 || x->type.rank > ONNX_MAX_RANK) {
        onnx_reject(n, "the input has rank %d, but needs N, C and spatial dimensions", x->type.rank);
        w.n = 0;
        return w;
    }
    read_kernel(n, &w, kernel);
    onnx_numbers(n, "strides", w.n, 1, 1, w.strides);
    onnx_numbers(n, "dilations", w.n, 1, 1, w.dilations);
    onnx_numbers(n, "pads", 2 * w.n, 0, 0, w.pads);
    enum { NOTSET, SAME_UPPER, SAME_LOWER, VALID };
    static const char *const modes[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};
    const int mode = onnx_word(n, "auto_pad", modes, NOTSET);
    w.same_upper = mode == SAME_UPPER;
    w.same_lower = mode == SAME_LOWER;
    if (mode != NOTSET) memset(w.pads, 0, sizeof w.pads);
    return w;
}

onnx_window onnx_window_of(onnx_node *n, const ir_value *x, const ir_dim *kernel)
{
    onnx_window w = onnx_window_read(n, x, kernel);
    for (int i = 0; i < w.n && (w.same_upper || w.same_lower) && !n->failed; i++)
        pad_same(n, &w, i, x->type.dims[i + 2], w.same_upper);
    return w;
}

int onnx_spatial_axes(onnx_node *n, int64_t *axes)
{
    int rank = n->in[0]->type.rank;
    if (rank < 3) onnx_reject(n, "the input has rank %d, but needs N, C and spatial dimensions", rank);
    for (int i = 2; i < rank; i++) axes[i - 2] = i;
    return rank < 3 ? 0 : rank - 2;
}
