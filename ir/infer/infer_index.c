/* infer_index.c - ops that address elements by coordinates: gather_elements, gather_nd and their scatters. */
#include "ir/infer/infer.h"

#include <inttypes.h>

/* ---- by element ------------------------------------------------------------------------------ */

/* Indices have the rank of the data and, except along the axis, no larger dimensions. */
static ampc_status check_elements(const inference *x)
{
    const ir_type *data = infer_operand(x, "x"), *indices = infer_operand(x, "indices");
    int axis;
    TRY(infer_axis(x, data->rank, &axis));
    if (indices->rank != data->rank)
        return infer_reject(x, "indices must have %d dimensions, is %s", data->rank, infer_show(x, indices));
    for (int i = 0; i < data->rank; i++) {
        const ir_dim space = ir_dim_sub(x->dims, data->dims[i], indices->dims[i]);
        if (i == axis || ir_dim_is_symbolic(space) || space >= 0) continue;
        return infer_reject(x, "axis %d: indices have %s elements, x has %s", i, infer_show_dim(x, indices->dims[i]),
                            infer_show_dim(x, data->dims[i]));
    }
    return AMPC_OK;
}

ampc_status infer_gather_elements(const inference *x)
{
    const ir_type *indices = infer_operand(x, "indices");
    TRY(check_elements(x));
    return infer_result(x, 0, infer_untyped(indices->rank, indices->dims));
}

/* ---- by coordinates -------------------------------------------------------------------------- */

/* The shape of the elements that the indices address: batch, tuples, then what remains of the data. */
static ampc_status tuples_shape(const inference *x, ir_type *out)
{
    const ir_type *data = infer_operand(x, "x"), *indices = infer_operand(x, "indices");
    const int64_t batch = infer_attr(x, "batch")->i;
    TRY(infer_expect_rank(x, 1, 1, IR_MAX_RANK));
    if (batch < 0 || batch >= indices->rank || batch >= data->rank)
        return infer_reject(x, "batch is %" PRId64 ", must be below the rank of x and indices", batch);
    for (int i = 0; i < batch; i++)
        if (data->dims[i] != indices->dims[i])
            return infer_reject(x, "batch axis %d: x has %s, indices have %s", i, infer_show_dim(x, data->dims[i]),
                                infer_show_dim(x, indices->dims[i]));
    const ir_dim depth = indices->dims[indices->rank - 1];
    if (ir_dim_is_symbolic(depth) || depth < 1 || depth > data->rank - batch)
        return infer_reject(x, "the last dimension of indices must be 1 to %d, is %s", data->rank - (int)batch,
                            infer_show_dim(x, depth));
    const int first = (int)(batch + depth), rest = data->rank - first, rank = indices->rank - 1 + rest;
    if (rank > IR_MAX_RANK)
        return infer_reject(x, "the result would have %d dimensions, the limit is %d", rank, IR_MAX_RANK);
    *out = infer_untyped(indices->rank - 1, indices->dims);
    for (int i = 0; i < rest; i++) out->dims[out->rank++] = data->dims[first + i];
    return AMPC_OK;
}

ampc_status infer_gather_nd(const inference *x)
{
    ir_type to;
    TRY(tuples_shape(x, &to));
    return infer_result(x, 0, to);
}

/* ---- scatters -------------------------------------------------------------------------------- */

static ampc_status check_reduction(const inference *x)
{
    const int64_t reduction = infer_attr(x, "reduction")->i;
    if (reduction == IR_WORD(scatter, none) || infer_operand(x, "x")->dtype != IR_bool) return AMPC_OK;
    return infer_reject(x, "reduction '%s' is not defined for bool", ir_words_scatter[reduction]);
}

ampc_status infer_scatter_elements(const inference *x)
{
    TRY(check_reduction(x));
    TRY(check_elements(x));
    TRY(infer_expect_operand(x, "updates", infer_operand(x, "indices")));
    return infer_result(x, 0, *infer_operand(x, "x"));
}

ampc_status infer_scatter_nd(const inference *x)
{
    ir_type updates;
    TRY(check_reduction(x));
    TRY(tuples_shape(x, &updates));
    TRY(infer_expect_operand(x, "updates", &updates));
    return infer_result(x, 0, *infer_operand(x, "x"));
}

/* ---- bits ------------------------------------------------------------------------------------ */

ampc_status infer_bit_cast(const inference *x)
{
    ir_type to = *infer_in(x, 0);
    const ir_dtype from = to.dtype;
    to.dtype = infer_attr(x, "to")->dtype;
    if (to.dtype == IR_NO_DTYPE || ir_dtype_size(to.dtype) != ir_dtype_size(from))
        return infer_reject(x, "%s cannot be reinterpreted as %s", ir_dtype_name(from), ir_dtype_name(to.dtype));
    return infer_result(x, 0, to);
}
