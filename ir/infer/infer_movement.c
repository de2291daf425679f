/* infer_movement.c - ops that move elements, and two that generate integers (iota, dims). */
#include "ir/infer/infer.h"

#include <inttypes.h>

/* ---- reshape, transpose, expand -------------------------------------------------------------- */

/* Multiplies the dimensions of `a` that `b` does not also have. Cancelling shared factors makes element counts
 * comparable even if their products have no canonical form. */
static ir_dim unmatched_product(ir_dim_table *t, const ir_type *a, const ir_type *b)
{
    bool matched[IR_MAX_RANK] = {false};
    ir_dim product = 1;
    for (int i = 0; i < a->rank; i++) {
        int k = 0;
        while (k < b->rank && (matched[k] || b->dims[k] != a->dims[i])) k++;
        if (k < b->rank) matched[k] = true;
        else product = ir_dim_mul(t, product, a->dims[i]);
    }
    return product;
}

static bool same_count(ir_dim_table *t, const ir_type *a, const ir_type *b)
{
    ir_dim left = unmatched_product(t, a, b), right = unmatched_product(t, b, a);
    if (left != IR_DIM_NONE && right != IR_DIM_NONE && ir_dim_may_equal(t, left, right)) return true;
    return ir_type_count(t, a) == 0 && ir_type_count(t, b) == 0;
}

ampc_status infer_reshape(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    ir_type to;
    TRY(infer_shape(x, &to));
    if (!same_count(x->dims, from, &to)) {
        ir_type named = to;
        named.dtype = from->dtype;
        const ir_dim count = ir_type_count(x->dims, &to);
        return infer_reject(x, "element counts differ: %s of %s and %s of %s",
                            infer_show_dim(x, ir_type_count(x->dims, from)), infer_show(x, from),
                            infer_show_dim(x, count), infer_show(x, &named));
    }
    return infer_result(x, 0, to);
}

ampc_status infer_transpose(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    const int64_t *perm;
    TRY(infer_list(x, "perm", from->rank, &perm));
    bool seen[IR_MAX_RANK] = {false};
    ir_type to = {.rank = from->rank};
    for (int i = 0; i < from->rank; i++) {
        if (perm[i] < 0 || perm[i] >= from->rank || seen[perm[i]])
            return infer_reject(x, "perm is not a permutation of 0..%d: entry %d is %" PRId64, from->rank - 1, i,
                                perm[i]);
        seen[perm[i]] = true;
        to.dims[i] = from->dims[perm[i]];
    }
    return infer_result(x, 0, to);
}

ampc_status infer_expand(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    ir_type to, both;
    TRY(infer_shape(x, &to));
    to.dtype = from->dtype;
    if (!ir_broadcast(x->dims, from, &to, &both) || !ir_type_may_have_shape(x->dims, &both, &to))
        return infer_reject(x, "cannot expand %s to %s", infer_show(x, from), infer_show(x, &to));
    return infer_result(x, 0, to);
}

/* ---- concat, split --------------------------------------------------------------------------- */

ampc_status infer_concat(const inference *x)
{
    if (!x->node->n_in) return infer_reject(x, "has no operands");
    ir_type full = *infer_in(x, 0);
    int axis;
    TRY(infer_axis(x, full.rank, &axis));
    for (int i = 1; i < x->node->n_in; i++) {
        ir_type part = *infer_in(x, i);
        ir_dim size = axis < part.rank ? part.dims[axis] : 0;
        part.dims[axis] = full.dims[axis];
        if (!ir_type_may_have_shape(x->dims, &part, &full))
            return infer_reject(x, "operands differ outside axis %d: %s and %s", axis, infer_show(x, infer_in(x, 0)),
                                infer_show(x, infer_in(x, i)));
        for (int k = 0; k < full.rank; k++)
            if (!ir_dim_is_symbolic(part.dims[k])) full.dims[k] = part.dims[k];
        full.dims[axis] = ir_dim_add(x->dims, full.dims[axis], size);
    }
    return infer_result(x, 0, full);
}

ampc_status infer_split(const inference *x)
{
    ir_type part = *infer_in(x, 0);
    int axis, n = x->node->n_out;
    const ir_dim *sizes;
    TRY(infer_axis(x, part.rank, &axis));
    TRY(infer_list(x, "sizes", n, &sizes));
    ir_dim sum = 0, size = part.dims[axis];
    for (int i = 0; i < n; i++) sum = ir_dim_add(x->dims, sum, sizes[i]);
    if (!ir_dim_may_equal(x->dims, sum, size))
        return infer_reject(x, "sizes add up to %s, axis %d has %s", infer_show_dim(x, sum), axis,
                            infer_show_dim(x, size));
    for (int i = 0; i < n; i++) {
        part.dims[axis] = sizes[i];
        TRY(infer_result(x, i, part));
    }
    return AMPC_OK;
}

/* ---- slice, pad, gather ---------------------------------------------------------------------- */

/* Rejects an index known to be out of range. A symbolic index is checked when its symbols are bound. */
static ampc_status check_index(const inference *x, int axis, ir_dim index, ir_dim size)
{
    ir_dim space = ir_dim_sub(x->dims, size, index);
    bool below = index < 0 && !ir_dim_is_symbolic(index);
    bool above = space <= 0 && !ir_dim_is_symbolic(space);
    if (!below && !above) return AMPC_OK;
    return infer_reject(x, "axis %d: index %s is outside of %s", axis, infer_show_dim(x, index),
                        infer_show_dim(x, size));
}

/* Checks that part[i] = full[start + i*step] is in range on every axis. */
static ampc_status check_slice(const inference *x, const ir_type *full, const ir_type *part)
{
    const int64_t *start, *step;
    TRY(infer_list(x, "start", full->rank, &start));
    TRY(infer_list(x, "step", full->rank, &step));
    for (int i = 0; i < full->rank; i++) {
        if (step[i] == 0) return infer_reject(x, "axis %d: step is 0", i);
        if (ir_dim_lower_bound(x->dims, part->dims[i]) < 1) continue; /* may be empty; checked when symbols are bound */
        ir_dim last = ir_dim_mul(x->dims, ir_dim_add(x->dims, part->dims[i], -1), ir_dim_number(step[i]));
        TRY(check_index(x, i, start[i], full->dims[i]));
        TRY(check_index(x, i, ir_dim_add(x->dims, start[i], last), full->dims[i]));
    }
    return AMPC_OK;
}

ampc_status infer_slice(const inference *x)
{
    const ir_type *full = infer_in(x, 0);
    const ir_dim *size;
    TRY(infer_list(x, "size", full->rank, &size));
    ir_type part = infer_untyped(full->rank, size);
    TRY(check_slice(x, full, &part));
    return infer_result(x, 0, part);
}

ampc_status infer_slice_grad(const inference *x)
{
    ir_type full;
    TRY(infer_shape(x, &full));
    TRY(infer_expect_rank(x, 0, full.rank, full.rank));
    TRY(check_slice(x, &full, infer_in(x, 0)));
    return infer_result(x, 0, full);
}

/* Computes the padded shape. Modes that repeat elements need at least one element. */
static ampc_status pad_shape(const inference *x, const ir_type *from, ir_type *to)
{
    const int64_t *before, *after;
    TRY(infer_list(x, "before", from->rank, &before));
    TRY(infer_list(x, "after", from->rank, &after));
    bool constant = infer_attr(x, "mode")->i == IR_WORD(pad, constant);
    *to = infer_untyped(from->rank, from->dims);
    for (int i = 0; i < from->rank; i++) {
        int64_t crop = before[i] < after[i] ? -before[i] : -after[i];
        if (!ir_dim_is_symbolic(from->dims[i]) && crop > from->dims[i])
            return infer_reject(x, "axis %d: cannot crop %" PRId64 " of %" PRId64, i, crop, from->dims[i]);
        to->dims[i] = ir_dim_add(x->dims, from->dims[i], before[i] + after[i]);
        if (!constant && from->dims[i] == 0 && to->dims[i] != 0)
            return infer_reject(x, "axis %d has no element to repeat", i);
    }
    return AMPC_OK;
}

ampc_status infer_pad(const inference *x)
{
    ir_type to;
    TRY(infer_expect_scalar(x, IR_IN(pad, value)));
    TRY(pad_shape(x, infer_in(x, 0), &to));
    return infer_result(x, 0, to);
}

ampc_status infer_pad_grad(const inference *x)
{
    ir_type from, to;
    TRY(infer_shape(x, &from));
    TRY(pad_shape(x, &from, &to));
    TRY(infer_expect(x, 0, &to));
    return infer_result(x, 0, from);
}

/* table[:axis] + indices + table[axis+1:] */
static ampc_status gather_shape(const inference *x, const ir_type *table, const ir_type *indices, ir_type *to)
{
    int axis, rank = table->rank - 1 + indices->rank;
    TRY(infer_axis(x, table->rank, &axis));
    if (rank > IR_MAX_RANK)
        return infer_reject(x, "the result would have %d dimensions, the limit is %d", rank, IR_MAX_RANK);
    *to = (ir_type){0};
    for (int i = 0; i < axis; i++) to->dims[to->rank++] = table->dims[i];
    for (int i = 0; i < indices->rank; i++) to->dims[to->rank++] = indices->dims[i];
    for (int i = axis + 1; i < table->rank; i++) to->dims[to->rank++] = table->dims[i];
    return AMPC_OK;
}

ampc_status infer_gather(const inference *x)
{
    ir_type to;
    TRY(gather_shape(x, infer_operand(x, "x"), infer_operand(x, "indices"), &to));
    return infer_result(x, 0, to);
}

ampc_status infer_gather_grad(const inference *x)
{
    ir_type table, to;
    TRY(infer_shape(x, &table));
    TRY(gather_shape(x, &table, infer_operand(x, "indices"), &to));
    TRY(infer_expect_operand(x, "dy", &to));
    return infer_result(x, 0, table);
}

/* ---- integer generators ---------------------------------------------------------------------- */

ampc_status infer_iota(const inference *x)
{
    const ir_dim *size;
    ir_dtype t = infer_attr(x, "type")->dtype;
    TRY(infer_list(x, "size", 1, &size));
    if (!ir_dtype_is_int(t)) return infer_reject(x, "type must be an integer type, is %s", ir_dtype_name(t));
    return infer_result(x, 0, ir_type_make(t, 1, size));
}

ampc_status infer_dims(const inference *x)
{
    const ir_dim count = infer_attr(x, "value")->list.count;
    return infer_result(x, 0, infer_untyped(1, &count));
}
