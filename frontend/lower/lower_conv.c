/* lower_conv.c - Conv. */
#include "frontend/lower/lower.h"

void onnx_lower_conv(onnx_node *n)
{
    ir_value *x = n->in[0], *w = n->in[1];
    if (w->type.rank != x->type.rank) {
        onnx_reject(n, "the weight has rank %d, but the input has rank %d", w->type.rank, x->type.rank);
        return;
    }
    onnx_window window = onnx_window_of(n, x, w->type.rank > 2 ? w->type.dims + 2 : NULL);
    int64_t group = onnx_int(n, "group", 1);
    if (group < 1 || group > INT32_MAX) onnx_reject(n, "invalid group %lld", (long long)group);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_conv, 3, x, w, onnx_in(n, 2));
    ONNX_SET_WINDOW(node, conv, &window);
    ir_set_int(node, IR_ATTR(conv, group), group);
    n->out[0] = ir_done(n->b, node);
}
