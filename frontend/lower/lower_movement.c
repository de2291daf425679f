/* lower_movement.c - data movement: Reshape and related operators, Transpose, Concat, Split, Expand, Tile,
 * Trilu, Shape, Size. (Slice and Pad are in files of their own.) */
#include "frontend/lower/lower.h"

/* A dimension as text, for messages. */
#define DIM_TEXT(n, d) ir_dim_print((n)->dims, (d), (n)->importer->scratch)

void onnx_lower_identity(onnx_node *n)
{
    n->out[0] = n->in[0];
    n->out_sequence[0] = n->in_sequence[0];
}

/* ---- Reshape, Flatten, Squeeze, Unsqueeze ---------------------------------------------------- */

/* The quotient if symbolic sizes at the same position, which may have different names, are equal; IR_DIM_NONE: not
 * even then. The shape is checked when the sizes are known. A conversion does not have to assume anything, because an
 * opaque node can have an unknown size. */
static ir_dim divide_assuming_equal(const onnx_node *n, const ir_dim *dims, int rank)
{
    const ir_type *x = &n->in[0]->type;
    ir_dim count = 1, rest = 1;
    for (int i = 0; i < rank || i < x->rank; i++) {
        const ir_dim from = i < x->rank ? x->dims[i] : 1, to = i < rank ? dims[i] : 1;
        if (ir_dim_is_symbolic(from) && ir_dim_is_symbolic(to) && ir_dim_may_equal(n->dims, from, to)) continue;
        count = ir_dim_mul(n->dims, count, from);
        rest = ir_dim_mul(n->dims, rest, to);
    }
    return count == IR_DIM_NONE || rest == IR_DIM_NONE || rest == 0 ? IR_DIM_NONE : ir_dim_div(n->dims, count, rest);
}

/* Computes the dimension that was specified as -1. */
static void solve_unknown(onnx_node *n, ir_dim *dims, int rank, int unknown)
{
    dims[unknown] = 1;
    ir_dim count = ir_type_count(n->dims, &n->in[0]->type), rest = ir_dim_product(n->dims, dims, rank);
    ir_dim size = rest == 0 ? IR_DIM_NONE : ir_dim_div(n->dims, count, rest);
    if (size == IR_DIM_NONE && rest != 0 && !n->importer->options->opaque) size = divide_assuming_equal(n, dims, rank);
    dims[unknown] = size;
    if (size != IR_DIM_NONE) return;
    if (ir_dim_is_symbolic(count) || ir_dim_is_symbolic(rest))
        onnx_refuse_dim(n, ir_dim_is_symbolic(rest) ? rest : count, "cannot divide %s elements by %s",
                        DIM_TEXT(n, count), DIM_TEXT(n, rest));
    else onnx_reject(n, "cannot divide %lld elements by %lld", (long long)count, (long long)rest);
}

void onnx_lower_reshape(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    onnx_list shape = onnx_const_list(n, 1);
    bool allow_zero = onnx_bool(n, "allowzero", false);
    if (shape.count > ONNX_MAX_RANK) onnx_refuse(n, "rank %d is not supported", shape.count);
    ir_dim dims[ONNX_MAX_RANK];
    int unknown = -1;
    bool zero = false;
    for (int i = 0; i < shape.count && !n->failed; i++) {
        ir_dim d = shape.items[i];
        dims[i] = d;
        zero |= d == 0 && allow_zero;
        if (d == 0 && !allow_zero) {
            if (i >= x->rank) onnx_reject(n, "dimension %d is 0, but the input has rank %d", i, x->rank);
            else dims[i] = x->dims[i];
        } else if (d == -1) {
            if (unknown >= 0) onnx_reject(n, "more than one dimension is -1");
            unknown = i;
        } else if (d < 0 && !ir_dim_is_symbolic(d)) {
            onnx_reject(n, "dimension %d is negative (%lld)", i, (long long)d);
        }
    }
    if (unknown >= 0 && zero) onnx_reject(n, "allowzero is set, but the shape has both 0 and -1");
    if (!n->failed) onnx_batch_reshape(n, dims, shape.count, unknown);
    if (unknown >= 0 && !n->failed) solve_unknown(n, dims, shape.count, unknown);
    if (!n->failed) n->out[0] = ir_reshape(n->b, n->in[0], dims, shape.count);
}

void onnx_lower_flatten(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    int64_t axis = onnx_int(n, "axis", 1);
    if (axis < -x->rank || axis > x->rank) onnx_reject(n, "axis %lld is out of range", (long long)axis);
    if (n->failed) return;
    int k = (int)(axis < 0 ? axis + x->rank : axis);
    ir_dim dims[2] = {ir_dim_product(n->dims, x->dims, k)};
    dims[1] = ir_dim_product(n->dims, x->dims + k, x->rank - k);
    n->out[0] = ir_reshape(n->b, n->in[0], dims, 2);
}

/* Whether a size that is not a number can be 1. */
static bool may_be_one(onnx_node *n, ir_dim d)
{
    const ir_dim low = ir_dim_lower_bound(n->dims, d), high = ir_dim_upper_bound(n->dims, d);
    return ir_dim_is_symbolic(d) && (low == IR_DIM_NONE || low <= 1) && (high == IR_DIM_NONE || high >= 1);
}

void onnx_lower_squeeze(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    onnx_list axes = onnx_list_since(n, "axes", 1, 13);
    bool set[IR_MAX_RANK];
    onnx_axes(n, axes, x->rank, set);
    ir_dim dims[IR_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank && !n->failed; i++) {
        bool drop = axes.present ? set[i] : x->dims[i] == 1;
        if (!axes.present && may_be_one(n, x->dims[i]))
            onnx_refuse_dim(n, x->dims[i], "dimension %d is removed if %s is 1", i, DIM_TEXT(n, x->dims[i]));
        if (!drop) dims[rank++] = x->dims[i];
        else if (!ir_dim_may_equal(n->dims, x->dims[i], 1))
            onnx_reject(n, "dimension %d is %s, not 1", i, DIM_TEXT(n, x->dims[i]));
    }
    if (!n->failed) n->out[0] = ir_reshape(n->b, n->in[0], dims, rank);
}

void onnx_lower_unsqueeze(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    onnx_list axes = onnx_list_since(n, "axes", 1, 13);
    int rank = x->rank + axes.count, from = 0;
    if (!axes.present) onnx_reject(n, "the axes are missing");
    if (rank > ONNX_MAX_RANK) onnx_refuse(n, "rank %d is not supported", rank);
    if (n->failed) return;
    bool set[IR_MAX_RANK];
    onnx_axes(n, axes, rank, set);
    ir_dim dims[IR_MAX_RANK];
    for (int i = 0; i < rank && !n->failed; i++) dims[i] = set[i] ? 1 : x->dims[from++];
    if (!n->failed) n->out[0] = ir_reshape(n->b, n->in[0], dims, rank);
}

/* ---- Transpose, Concat, Split ---------------------------------------------------------------- */

void onnx_lower_transpose(onnx_node *n)
{
    int rank = n->in[0]->type.rank;
    onnx_list perm = onnx_ints(n, "perm");
    if (perm.present && perm.count != rank)
        onnx_reject(n, "perm has %d elements, but the input has rank %d", perm.count, rank);
    bool set[IR_MAX_RANK];
    if (!n->failed) onnx_axes(n, perm, rank, set);
    int64_t order[IR_MAX_RANK];
    for (int i = 0; i < rank && !n->failed; i++)
        order[i] = perm.present ? onnx_axis(n, perm.items[i], rank) : rank - 1 - i;
    if (!n->failed) n->out[0] = ir_transpose(n->b, n->in[0], order);
}

void onnx_lower_concat(onnx_node *n)
{
    if (!onnx_has(n, "axis")) onnx_reject(n, "attribute 'axis' is missing");
    int axis = onnx_axis(n, onnx_int(n, "axis", 0), n->in[0]->type.rank);
    if (n->n_in == 1) n->out[0] = n->in[0];
    if (n->n_in == 1 || n->failed) return;
    ir_node *node = ir_new_array(n->b, IR_OP_concat, n->n_in, onnx_batch_operands(n, axis), 0);
    ir_set_int(node, IR_ATTR(concat, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

/* The sizes of the parts: as specified, equal, or `num_outputs` parts, the last of which may be smaller. */
static void split_sizes(onnx_node *n, ir_dim dim, ir_dim *sizes)
{
    onnx_list specified = onnx_list_since(n, "split", 1, 13);
    int64_t parts = n->opset >= 18 ? onnx_int(n, "num_outputs", n->n_out) : n->n_out;
    if (specified.present && specified.count != n->n_out)
        onnx_reject(n, "%d sizes for %d outputs", specified.count, n->n_out);
    if (parts != n->n_out) onnx_reject(n, "num_outputs is %lld, but there are %d", (long long)parts, n->n_out);
    if (n->failed) return;
    ir_dim equal = specified.present ? 0 : ir_dim_div(n->dims, dim, n->n_out);
    bool uneven = equal == IR_DIM_NONE;
    if (uneven && n->opset < 18) onnx_reject(n, "%s cannot be split into %d equal parts", DIM_TEXT(n, dim), n->n_out);
    ir_dim left = dim, chunk = equal;
    if (uneven) chunk = ir_dim_floordiv(n->dims, ir_dim_add(n->dims, dim, n->n_out - 1), n->n_out);
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        const bool last = i + 1 == n->n_out;
        sizes[i] = specified.present ? specified.items[i]
                   : !uneven         ? equal
                   : last            ? left
                                     : ir_dim_min(n->dims, left, chunk);
        left = ir_dim_sub(n->dims, left, sizes[i]);
    }
}

void onnx_lower_split(onnx_node *n)
{
    int axis = onnx_axis(n, onnx_int(n, "axis", 0), n->in[0]->type.rank);
    if (n->failed) return;
    ir_dim *sizes = arena_array(n->importer->scratch, (size_t)n->n_out + 1, sizeof *sizes);
    split_sizes(n, n->in[0]->type.dims[axis], sizes);
    if (n->failed) return;
    ir_node *node = ir_new_array(n->b, IR_OP_split, 1, n->in, n->n_out);
    ir_set_int(node, IR_ATTR(split, axis), axis);
    ir_set_list(node, IR_ATTR(split, sizes), sizes, n->n_out);
    if (!ir_done_all(n->b, node)) return;
    for (int i = 0; i < n->n_out; i++) n->out[i] = node->out[i];
}

/* ---- Expand, Tile, Trilu --------------------------------------------------------------------- */

void onnx_lower_expand(onnx_node *n)
{
    onnx_list shape = onnx_const_shape(n, 1);
    if (n->failed) return;
    const ir_type *x = &n->in[0]->type;
    ir_type target = ir_type_make(x->dtype, shape.count, shape.items), both;
    for (int i = 0, k = x->rank - target.rank; i < target.rank; i++, k++)
        if (k >= 0) target.dims[i] = onnx_batch_size(n->importer, x->dims[k], target.dims[i]);
    if (!ir_broadcast(n->dims, &n->in[0]->type, &target, &both))
        onnx_reject(n, "%s does not broadcast to %s",
                    ir_type_print(n->importer->module, &n->in[0]->type, n->importer->scratch),
                    ir_type_print(n->importer->module, &target, n->importer->scratch));
    if (!n->failed) n->out[0] = ir_expand(n->b, n->in[0], both.dims, both.rank);
}

/* Tiles one axis: [before, 1, rest] -> [before, times, rest]. */
static ir_value *tile_axis(onnx_node *n, ir_value *x, int axis, ir_dim times)
{
    ir_type y = x->type;
    y.dims[axis] = ir_dim_mul(n->dims, y.dims[axis], times);
    ir_dim dims[3] = {ir_dim_product(n->dims, x->type.dims, axis), 1};
    dims[2] = ir_dim_product(n->dims, x->type.dims + axis, x->type.rank - axis);
    x = ir_reshape(n->b, x, dims, 3);
    dims[1] = times;
    return ir_reshape_like(n->b, ir_expand(n->b, x, dims, 3), &y);
}

void onnx_lower_tile(onnx_node *n)
{
    ir_value *x = n->in[0];
    onnx_list repeats = onnx_const_list(n, 1);
    if (!n->failed && repeats.count != x->type.rank)
        onnx_reject(n, "%d repeats for rank %d", repeats.count, x->type.rank);
    for (int i = 0; i < repeats.count && x && !n->failed; i++) {
        if (repeats.items[i] < 0 && !ir_dim_is_symbolic(repeats.items[i]))
            onnx_reject(n, "repeat %d is negative (%lld)", i, (long long)repeats.items[i]);
        else if (repeats.items[i] != 1) x = tile_axis(n, x, i, repeats.items[i]);
    }
    n->out[0] = x;
}

void onnx_lower_trilu(onnx_node *n)
{
    int64_t k = onnx_const_int(n, 1, 0);
    bool upper = onnx_bool(n, "upper", true);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_trilu, 1, n->in[0]);
    ir_set_int(node, IR_ATTR(trilu, k), k);
    ir_set_bool(node, IR_ATTR(trilu, upper), upper);
    n->out[0] = ir_done(n->b, node);
}

/* ---- Shape, Size ----------------------------------------------------------------------------- */

static int clamp_axis(int64_t axis, int rank)
{
    if (axis < 0) axis = axis < -rank ? 0 : axis + rank;
    return (int)(axis > rank ? rank : axis);
}

void onnx_lower_shape(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    bool cut = n->opset >= 15;
    int start = cut ? clamp_axis(onnx_int(n, "start", 0), x->rank) : 0;
    int end = cut ? clamp_axis(onnx_int(n, "end", x->rank), x->rank) : x->rank;
    n->out[0] = onnx_dims_value(n, x->dims + start, end > start ? end - start : 0);
}

void onnx_lower_size(onnx_node *n)
{
    ir_dim count = ir_type_count(n->dims, &n->in[0]->type);
    n->out[0] = ir_reshape(n->b, onnx_dims_value(n, &count, 1), NULL, 0);
}
