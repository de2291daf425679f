/* infer_reduce.c - reductions and losses. */
#include "ir/infer/infer.h"

#include <inttypes.h>

ampc_status infer_reduce(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    const ir_attr *axes = infer_attr(x, "axes");
    bool reduced[IR_MAX_RANK] = {false};
    for (int i = 0; i < axes->list.count; i++) {
        int axis;
        TRY(infer_axis_number(x, axes->list.items[i], from->rank, &axis));
        if (reduced[axis]) return infer_reject(x, "axis %" PRId64 " is listed twice", axes->list.items[i]);
        reduced[axis] = true;
    }
    ir_type to = {0};
    for (int i = 0; i < from->rank; i++) {
        if (!reduced[i]) to.dims[to.rank++] = from->dims[i];
        else if (infer_attr(x, "keepdims")->i) to.dims[to.rank++] = 1;
    }
    return infer_result(x, 0, to);
}

ampc_status infer_global_norm(const inference *x) { return infer_result(x, 0, (ir_type){0}); }

/* Checks that for x [N,C,...] the label is [N,...] and a weight is [C]. The loss is a scalar unless reduction is
 * none. */
static ampc_status loss_shapes(const inference *x, ir_type *items, ir_type *loss)
{
    const ir_type *in = infer_operand(x, "x");
    if (in->rank < 2) return infer_reject(x, "x must have at least 2 dimensions, is %s", infer_show(x, in));
    *items = (ir_type){.rank = in->rank - 1, .dims = {in->dims[0]}};
    for (int i = 2; i < in->rank; i++) items->dims[i - 1] = in->dims[i];
    *loss = infer_attr(x, "reduction")->i != IR_WORD(loss, none) ? (ir_type){0} : *items;
    const ir_attr *count = infer_attr_find(x, "classes");
    if (count && count->i && (ir_dim_is_symbolic(in->dims[1]) || count->i < 0 || count->i > in->dims[1]))
        return infer_reject(x, "%" PRId64 " classes, but x is %s", count->i, infer_show(x, in));
    ir_type classes = infer_untyped(1, &in->dims[1]);
    TRY(infer_expect_operand(x, "label", items));
    return infer_expect_operand(x, "weight", &classes);
}

ampc_status infer_cross_entropy(const inference *x)
{
    ir_type items, loss, in = *infer_operand(x, "x");
    in.dtype = IR_NO_DTYPE;
    TRY(loss_shapes(x, &items, &loss));
    TRY(infer_result(x, IR_OUT(softmax_cross_entropy, loss), loss));
    TRY(infer_result(x, IR_OUT(softmax_cross_entropy, lse), items));
    return infer_result(x, IR_OUT(softmax_cross_entropy, log_prob), in);
}

ampc_status infer_loss_grad(const inference *x)
{
    ir_type items, loss, in = *infer_operand(x, "x");
    in.dtype = IR_NO_DTYPE;
    TRY(loss_shapes(x, &items, &loss));
    TRY(infer_expect_operand(x, "dloss", &loss));
    TRY(infer_expect_operand(x, "lse", &items));
    return infer_result(x, 0, in);
}
