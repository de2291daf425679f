/* lower_pad.c - Pad.
 *
 * The op has numbers. Amounts that depend on symbols are lowered axis by axis: what is removed is sliced off, constants
 * are concatenated, and modes that repeat elements gather them. */
#include "frontend/lower/lower.h"

static ir_value *padded(onnx_node *n, ir_value *x, const int64_t *before, const int64_t *after, int mode,
                        ir_value *value)
{
    ir_node *node = ir_new(n->b, IR_OP_pad, 2, x, value);
    ir_set_list(node, IR_ATTR(pad, before), before, x->type.rank);
    ir_set_list(node, IR_ATTR(pad, after), after, x->type.rank);
    ir_set_int(node, IR_ATTR(pad, mode), mode);
    return ir_done(n->b, node);
}

/* Removes elements where the amounts are negative, and sets these to 0. Modes that repeat elements repeat only those
 * that are left. */
static ir_value *crop(onnx_node *n, ir_value *x, int64_t *before, int64_t *after)
{
    int64_t less[2][IR_MAX_RANK] = {{0}};
    bool any = false;
    for (int i = 0; i < x->type.rank; i++)
        for (int side = 0; side < 2; side++) {
            int64_t *amount = side ? &after[i] : &before[i];
            if (*amount >= 0) continue;
            less[side][i] = *amount;
            *amount = 0;
            any = true;
        }
    return any ? padded(n, x, less[0], less[1], IR_WORD(pad, constant), NULL) : x;
}

/* ---- amounts that depend on symbols -------------------------------------------------------------- */

static ir_value *size_of(onnx_node *n, ir_dim d) { return ir_reshape(n->b, onnx_dims_value(n, &d, 1), NULL, 0); }

/* Which of the elements 0 to size - 1 is at position i, an integer. */
static ir_value *repeated(onnx_node *n, ir_value *i, ir_dim size, int mode)
{
    ir_value *zero = ir_scalar(n->b, IR_i64, 0), *last = size_of(n, ir_dim_sub(n->dims, size, 1));
    if (mode == IR_WORD(pad, edge)) return ir_done(n->b, ir_new(n->b, IR_OP_clip, 3, i, zero, last));
    if (mode == IR_WORD(pad, wrap)) return ir_binary(n->b, IR_OP_mod, i, size_of(n, size));
    /* reflect: there and back */
    ir_value *period = ir_binary(n->b, IR_OP_add, last, last);
    i = ir_binary(n->b, IR_OP_mod, i, ir_binary(n->b, IR_OP_max, period, ir_scalar(n->b, IR_i64, 1)));
    return ir_binary(n->b, IR_OP_min, i, ir_binary(n->b, IR_OP_sub, period, i));
}

static ir_value *constants(onnx_node *n, const ir_type *x, int axis, ir_dim amount, ir_value *value)
{
    ir_type shape = *x;
    shape.dims[axis] = amount;
    return ir_expand(n->b, value ? value : ir_scalar(n->b, x->dtype, 0), shape.dims, shape.rank);
}

static ir_value *pad_axis(onnx_node *n, ir_value *x, int axis, ir_dim before, ir_dim after, int mode, ir_value *value)
{
    ir_dim_table *t = n->dims;
    ir_dim left = x->type.dims[axis], amounts[2] = {ir_dim_max(t, before, 0)};
    amounts[1] = ir_dim_max(t, after, 0);
    const ir_dim removed = ir_dim_sub(t, amounts[0], before), removed_after = ir_dim_sub(t, amounts[1], after);
    left = ir_dim_sub(t, ir_dim_sub(t, left, removed), removed_after);
    const ir_dim to = ir_dim_add(t, ir_dim_add(t, left, amounts[0]), amounts[1]);
    if (left == IR_DIM_NONE || to == IR_DIM_NONE)
        onnx_refuse_dim(n, before, "the amounts of axis %d are too complex", axis);
    if (n->failed) return NULL;
    x = onnx_slice_axis(n, x, axis, removed, left);
    if (!x) return NULL;
    if (mode == IR_WORD(pad, constant)) {
        ir_value *parts[3];
        int count = 0;
        if (amounts[0] != 0) parts[count++] = constants(n, &x->type, axis, amounts[0], value);
        parts[count++] = x;
        if (amounts[1] != 0) parts[count++] = constants(n, &x->type, axis, amounts[1], value);
        ir_node *node = ir_new_array(n->b, IR_OP_concat, count, parts, 0);
        ir_set_int(node, IR_ATTR(concat, axis), axis);
        return ir_done(n->b, node);
    }
    ir_value *start = size_of(n, amounts[0]), *i = ir_binary(n->b, IR_OP_sub, onnx_iota(n, IR_i64, to), start);
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, x, repeated(n, i, left, mode));
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    return ir_done(n->b, node);
}

/* Pads the axes with such an amount and sets these amounts to 0. */
static ir_value *pad_by_symbols(onnx_node *n, ir_dim *before, ir_dim *after, int mode, ir_value *value)
{
    ir_value *x = n->in[0];
    for (int i = 0; x && i < n->in[0]->type.rank && !n->failed; i++)
        if (ir_dim_is_symbolic(before[i]) || ir_dim_is_symbolic(after[i])) {
            x = pad_axis(n, x, i, before[i], after[i], mode, value);
            before[i] = after[i] = 0;
        }
    return x;
}

/* ---- the operator -------------------------------------------------------------------------------- */

/* Pads the axes in `axes` (default: all); `pads` has all begins, then all ends. */
static void pad(onnx_node *n, onnx_list pads, onnx_list axes, ir_value *value)
{
    const int mode = onnx_word(n, "mode", ir_words_pad, IR_WORD(pad, constant));
    const bool repeats = mode != IR_WORD(pad, constant);
    int rank = n->in[0]->type.rank, count = axes.present ? axes.count : rank;
    ir_dim before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK] = {0};
    bool set[IR_MAX_RANK], symbolic = false, nothing = true,
                           mixed = false; /* an axis with removed and repeated elements */
    for (int i = 0; i < pads.count; i++) {
        symbolic |= ir_dim_is_symbolic(pads.items[i]);
        if (pads.items[i] == IR_DIM_NONE) onnx_size(n, pads.items[i], "a padding amount");
    }
    if (symbolic && n->importer->options->emit_opset) {
        onnx_keep_opaque(n);
        return;
    }
    if (!n->failed && pads.count != 2 * count) onnx_reject(n, "%d padding amounts for %d axes", pads.count, count);
    onnx_axes(n, axes, rank, set);
    for (int i = 0; i < count && !n->failed; i++) {
        int axis = axes.present ? onnx_axis(n, axes.items[i], rank) : i;
        before[axis] = pads.items[i];
        after[axis] = pads.items[i + count];
    }
    ir_value *x = n->failed ? NULL : pad_by_symbols(n, before, after, mode, value);
    for (int axis = 0; x && axis < rank; axis++) {
        if (before[axis] != (int32_t)before[axis] || after[axis] != (int32_t)after[axis])
            onnx_reject(n, "a padding amount is out of range");
        nothing &= !before[axis] && !after[axis];
        mixed |= repeats && ((before[axis] < 0 && after[axis] > 0) || (before[axis] > 0 && after[axis] < 0));
    }
    if (nothing) n->out[0] = x;
    if (nothing || !x || n->failed) return;
    if (mixed) x = crop(n, x, before, after);
    if (x) n->out[0] = padded(n, x, before, after, mode, repeats ? NULL : value);
}

void onnx_lower_pad_attribute(onnx_node *n)
{
    double value = onnx_float(n, "value", 0);
    pad(n, onnx_ints(n, "pads"), (onnx_list){0}, value == 0 ? NULL : ir_scalar_like(n->b, n->in[0], value));
}

void onnx_lower_pad(onnx_node *n)
{
    ir_value *value = onnx_scalar_of(n, onnx_in(n, 2));
    onnx_list pads = onnx_const_list(n, 1), axes = onnx_const_list(n, 3);
    if (!n->failed) pad(n, pads, axes, value);
}
