/* infer_select.c - ops along one axis that order or accumulate elements, and determinants. */
#include "ir/infer/infer.h"

#include <inttypes.h>

ampc_status infer_arg_max(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    int axis;
    TRY(infer_axis(x, from->rank, &axis));
    ir_type to = {0};
    bool empty = false;
    for (int i = 0; i < from->rank; i++) {
        if (i != axis) empty |= from->dims[i] == 0;
        if (i != axis) to.dims[to.rank++] = from->dims[i];
        else if (infer_attr(x, "keepdims")->i) to.dims[to.rank++] = 1;
    }
    if (from->dims[axis] == 0 && !empty)
        return infer_reject(x, "axis %d has size 0, so it has no largest element", axis);
    return infer_result(x, 0, to);
}

ampc_status infer_top_k(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    const int64_t *count;
    int axis;
    TRY(infer_axis(x, from->rank, &axis));
    TRY(infer_list(x, "count", 1, &count));
    ir_dim size = from->dims[axis];
    if (!ir_dim_is_symbolic(size) && !ir_dim_is_symbolic(count[0]) && count[0] > size)
        return infer_reject(x, "count is %" PRId64 ", but axis %d has size %" PRId64, count[0], axis, size);
    ir_type to = infer_untyped(from->rank, from->dims);
    to.dims[axis] = count[0];
    TRY(infer_result(x, 0, to));
    return infer_result(x, 1, to);
}

/* Checks that x has square matrices; *batch: the dimensions before them. */
static ampc_status expect_matrices(const inference *x, ir_type *batch)
{
    const ir_type *from = infer_operand(x, "x");
    int rank = from->rank;
    if (rank < 2 || from->dims[rank - 1] != from->dims[rank - 2])
        return infer_reject(x, "x must be square matrices, is %s", infer_show(x, from));
    *batch = infer_untyped(rank - 2, from->dims);
    return AMPC_OK;
}

ampc_status infer_det(const inference *x)
{
    ir_type batch;
    TRY(expect_matrices(x, &batch));
    return infer_result(x, 0, batch);
}

ampc_status infer_det_grad(const inference *x)
{
    ir_type batch;
    const ir_type *from = infer_operand(x, "x");
    TRY(expect_matrices(x, &batch));
    TRY(infer_expect_operand(x, "dy", &batch));
    return infer_result(x, 0, infer_untyped(from->rank, from->dims));
}
