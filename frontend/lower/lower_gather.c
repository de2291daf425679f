/* lower_gather.c - operators that select or replace elements by index: Gather, GatherElements, GatherND,
 * ScatterElements, ScatterND, TensorScatter, MaxUnpool, ReverseSequence. */
#include "frontend/lower/lower.h"

#include <string.h>

void onnx_lower_gather(onnx_node *n)
{
    int rank = n->in[0]->type.rank, axis = onnx_axis(n, onnx_int(n, "axis", 0), rank);
    if (rank - 1 + n->in[1]->type.rank > ONNX_MAX_RANK) onnx_refuse(n, "the result rank is too large");
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, n->in[0], n->in[1]);
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_gather_elements(onnx_node *n)
{
    int axis = onnx_axis(n, onnx_int(n, "axis", 0), n->in[0]->type.rank);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_gather_elements, 2, n->in[0], n->in[1]);
    ir_set_int(node, IR_ATTR(gather_elements, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

static ir_value *gather_nd(onnx_node *n, ir_value *x, ir_value *indices, int64_t batch)
{
    ir_node *node = ir_new(n->b, IR_OP_gather_nd, 2, x, indices);
    ir_set_int(node, IR_ATTR(gather_nd, batch), batch);
    return ir_done(n->b, node);
}

void onnx_lower_gather_nd(onnx_node *n)
{
    n->out[0] = gather_nd(n, n->in[0], n->in[1], n->opset >= 12 ? onnx_int(n, "batch_dims", 0) : 0);
    if (n->out[0] && n->out[0]->type.rank > ONNX_MAX_RANK) onnx_refuse(n, "the result rank is too large");
}

/* ---- ScatterElements, ScatterND -------------------------------------------------------------- */

/* The reductions of the operator's version are the first n->arg. */
static int reduction_of(onnx_node *n)
{
    const int none = IR_WORD(scatter, none);
    return n->arg > 1 ? onnx_word_of(n, "reduction", ir_words_scatter, n->arg, none) : none;
}

void onnx_lower_scatter_elements(onnx_node *n)
{
    const int reduction = reduction_of(n);
    int axis = onnx_axis(n, onnx_int(n, "axis", 0), n->in[0]->type.rank);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_scatter_elements, 3, n->in[0], n->in[1], n->in[2]);
    ir_set_int(node, IR_ATTR(scatter_elements, axis), axis);
    ir_set_int(node, IR_ATTR(scatter_elements, reduction), reduction);
    n->out[0] = ir_done(n->b, node);
}

static ir_value *scatter_nd(onnx_node *n, ir_value *x, ir_value *indices, ir_value *updates, int reduction)
{
    ir_node *node = ir_new(n->b, IR_OP_scatter_nd, 3, x, indices, updates);
    ir_set_int(node, IR_ATTR(scatter_nd, reduction), reduction);
    return ir_done(n->b, node);
}

void onnx_lower_scatter_nd(onnx_node *n)
{
    const int reduction = reduction_of(n);
    if (!n->failed) n->out[0] = scatter_nd(n, n->in[0], n->in[1], n->in[2], reduction);
}

/* ---- TensorScatter --------------------------------------------------------------------------- */

/* a and b, broadcast to `shape`, as pairs: the shape with another axis of 2. */
static ir_value *pairs(onnx_node *n, ir_value *a, ir_value *b, const ir_dim *shape, int rank)
{
    ir_dim dims[IR_MAX_RANK];
    ir_value *parts[] = {a, b};
    for (int i = 0; i < 2; i++) parts[i] = ir_expand(n->b, parts[i], shape, rank);
    memcpy(dims, shape, (size_t)rank * sizeof *dims);
    dims[rank] = 1;
    for (int i = 0; i < 2; i++) parts[i] = ir_reshape(n->b, parts[i], dims, rank + 1);
    ir_node *node = ir_new_array(n->b, IR_OP_concat, 2, parts, 0);
    ir_set_int(node, IR_ATTR(concat, axis), rank);
    return ir_done(n->b, node);
}

/* The position in the cache of each update, [batch, 1, length]. */
static ir_value *cache_positions(onnx_node *n, ir_dim batch, ir_dim length, ir_dim cache, bool circular)
{
    ir_value *at = ir_reshape(n->b, onnx_iota(n, IR_i64, length), (ir_dim[]){1, 1, length}, 3);
    ir_value *first = onnx_in(n, 2);
    if (first) first = ir_reshape(n->b, ir_cast(n->b, first, IR_i64), (ir_dim[]){batch, 1, 1}, 3);
    if (first) at = ir_binary(n->b, IR_OP_add, at, first);
    if (circular) at = ir_binary(n->b, IR_OP_mod, at, ir_reshape(n->b, onnx_dims_value(n, &cache, 1), NULL, 0));
    return at;
}

/* The tensors are [batch, rest, cache or update length, inner] around the axis; positions are pairs of a row of the
 * first two, merged, and one of the third. */
void onnx_lower_tensor_scatter(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type, *update = &n->in[1]->type;
    static const char *const modes[] = {"linear", "circular", NULL};
    const bool circular = onnx_word(n, "mode", modes, 0) == 1;
    int axis = onnx_axis(n, onnx_int(n, "axis", -2), x->rank);
    if (axis == 0) onnx_reject(n, "the axis must not be 0, the batch");
    else if (update->rank != x->rank) onnx_reject(n, "the update has rank %d, the cache %d", update->rank, x->rank);
    for (int i = 0; i < x->rank && !n->failed; i++)
        if (i != axis && x->dims[i] != update->dims[i]) onnx_reject(n, "axis %d of cache and update differs", i);
    if (n->failed) return;
    const ir_dim batch = x->dims[0], cache = x->dims[axis], length = update->dims[axis];
    const ir_dim rest = ir_dim_product(n->dims, x->dims + 1, axis - 1), rows = ir_dim_mul(n->dims, batch, rest);
    const ir_dim inner = ir_dim_product(n->dims, x->dims + axis + 1, x->rank - axis - 1);
    ir_value *row = ir_reshape(n->b, onnx_iota(n, IR_i64, rows), (ir_dim[]){batch, rest, 1}, 3);
    ir_value *at = cache_positions(n, batch, length, cache, circular);
    ir_value *places = pairs(n, row, at, (ir_dim[]){batch, rest, length}, 3);
    places = ir_reshape(n->b, places, (ir_dim[]){rows, length, 2}, 3);
    ir_value *updates = ir_reshape(n->b, n->in[1], (ir_dim[]){rows, length, inner}, 3);
    ir_value *old = ir_reshape(n->b, n->in[0], (ir_dim[]){rows, cache, inner}, 3);
    ir_value *y = scatter_nd(n, old, places, updates, IR_WORD(scatter, none));
    n->out[0] = ir_reshape_like(n->b, y, x);
}

/* ---- ReverseSequence ------------------------------------------------------------------------- */

/* Position t of a sequence comes from length - 1 - t, or stays if it is beyond the length. */
void onnx_lower_reverse_sequence(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type, *lengths = &n->in[1]->type;
    int64_t batch_axis = onnx_int(n, "batch_axis", 1), time_axis = onnx_int(n, "time_axis", 0);
    if (x->rank < 2) onnx_reject(n, "the rank is %d, must be at least 2", x->rank);
    else if (batch_axis < 0 || batch_axis > 1 || time_axis != 1 - batch_axis)
        onnx_reject(n, "batch_axis and time_axis must be 0 and 1 or 1 and 0");
    else if (lengths->rank != 1 || lengths->dims[0] != x->dims[batch_axis])
        onnx_reject(n, "sequence_lens must have one element per sequence");
    if (n->failed) return;
    const ir_dim batch = x->dims[batch_axis], steps = x->dims[time_axis];
    const bool batch_first = batch_axis == 0;
    ir_dim by_batch[] = {batch_first ? batch : 1, batch_first ? 1 : batch};
    ir_dim by_step[] = {batch_first ? 1 : steps, batch_first ? steps : 1};
    ir_value *t = ir_reshape(n->b, onnx_iota(n, IR_i64, steps), by_step, 2);
    ir_value *length = ir_reshape(n->b, ir_cast(n->b, n->in[1], IR_i64), by_batch, 2);
    ir_value *last = ir_binary(n->b, IR_OP_sub, length, ir_scalar(n->b, IR_i64, 1));
    ir_value *reversed = ir_binary(n->b, IR_OP_sub, last, t), *inside = ir_binary(n->b, IR_OP_less, t, length);
    ir_value *from = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, inside, reversed, t));
    if (batch_first) {
        n->out[0] = gather_nd(n, n->in[0], ir_reshape(n->b, from, (ir_dim[]){batch, steps, 1}, 3), 1);
    } else {
        ir_value *sequence = ir_reshape(n->b, onnx_iota(n, IR_i64, batch), by_batch, 2);
        n->out[0] = gather_nd(n, n->in[0], pairs(n, from, sequence, x->dims, 2), 0);
    }
}

/* ---- MaxUnpool ------------------------------------------------------------------------------- */

static bool is_between(int64_t v, int64_t lowest) { return v >= lowest && v <= INT32_MAX; }

/* The size that pooling with this window would have reduced to x. */
static bool unpooled_shape(onnx_node *n, ir_dim *dims)
{
    const ir_type *x = &n->in[0]->type;
    onnx_list kernel = onnx_ints(n, "kernel_shape"), strides = onnx_ints(n, "strides"), pads = onnx_ints(n, "pads");
    const int spatial = x->rank - 2;
    if (spatial < 1) onnx_reject(n, "the rank is %d, must be at least 3", x->rank);
    else if (kernel.count != spatial || (strides.present && strides.count != spatial) ||
             (pads.present && pads.count != 2 * spatial))
        onnx_reject(n, "kernel_shape, strides and pads must have %d, %d and %d entries", spatial, spatial, 2 * spatial);
    for (int i = 0; i < x->rank && !n->failed; i++) dims[i] = x->dims[i];
    for (int i = 0; i < spatial && !n->failed; i++) {
        const int64_t stride = strides.present ? strides.items[i] : 1, size = kernel.items[i];
        const int64_t before = pads.present ? pads.items[i] : 0, after = pads.present ? pads.items[i + spatial] : 0;
        if (!is_between(stride, 1) || !is_between(size, 1) || !is_between(before, 0) || !is_between(after, 0))
            onnx_reject(n, "kernel_shape, strides or pads of axis %d are out of range", i);
        if (n->failed) return false;
        const ir_dim steps = ir_dim_mul(n->dims, ir_dim_add(n->dims, x->dims[2 + i], -1), stride);
        dims[2 + i] = ir_dim_add(n->dims, steps, size - before - after);
    }
    return !n->failed;
}

/* Pads or crops x to `shape` at the ends of its axes. */
static ir_value *resize_at_end(onnx_node *n, ir_value *x, onnx_list shape)
{
    int64_t before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK];
    if (shape.count != x->type.rank) onnx_reject(n, "output_shape needs %d entries", x->type.rank);
    for (int i = 0; i < x->type.rank && !n->failed; i++) {
        const ir_dim more = ir_dim_sub(n->dims, shape.items[i], x->type.dims[i]);
        after[i] = onnx_size(n, more, "the difference between output_shape and the unpooled size");
    }
    if (n->failed) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_pad, 1, x);
    ir_set_list(node, IR_ATTR(pad, before), before, x->type.rank);
    ir_set_list(node, IR_ATTR(pad, after), after, x->type.rank);
    return ir_done(n->b, node);
}

void onnx_lower_max_unpool(onnx_node *n)
{
    ir_dim dims[IR_MAX_RANK];
    const int rank = n->in[0]->type.rank;
    onnx_list shape = onnx_const_shape(n, 2);
    if (!ir_type_same_shape(&n->in[0]->type, &n->in[1]->type)) onnx_reject(n, "X and I differ in shape");
    if (n->failed || !unpooled_shape(n, dims)) return;
    const ir_dim count = ir_type_count(n->dims, &n->in[0]->type), total = ir_dim_product(n->dims, dims, rank);
    ir_value *zeros = ir_expand(n->b, ir_scalar_like(n->b, n->in[0], 0), &total, 1);
    ir_value *places = ir_reshape(n->b, n->in[1], (ir_dim[]){count, 1}, 2);
    ir_value *y = scatter_nd(n, zeros, places, ir_reshape(n->b, n->in[0], &count, 1), IR_WORD(scatter, none));
    y = ir_reshape(n->b, y, dims, rank);
    n->out[0] = y && shape.present ? resize_at_end(n, y, shape) : y;
}
