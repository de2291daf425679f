/* lower_sized.c - results whose size depends on data: NonMaxSuppression, and Compress, NonZero, Unique and TopK of
 * operands that are computed at run time.
 *
 * An op computes rows up to a bound and how many of them are valid, and trim cuts them (docs/data-sizes.md). */
#include "frontend/lower/lower.h"

/* The first `count` rows, which become `size`. */
static ir_value *trim(onnx_node *n, ir_value *rows, ir_value *count, ir_dim size)
{
    if (!rows || !count) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_trim, 2, rows, count);
    ir_set_list(node, IR_ATTR(trim, size), &size, 1);
    return ir_done(n->b, node);
}

/* Whether such a result is possible here; otherwise refuses the node. */
static bool can_trim(onnx_node *n)
{
    if (n->importer->subgraph->outer)
        onnx_refuse(n, "the size of its result depends on data, which is not supported inside a subgraph");
    return !n->failed;
}

static ir_value *gather(onnx_node *n, ir_value *x, ir_value *at, int axis)
{
    if (!x || !at) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, x, at);
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    return ir_done(n->b, node);
}

/* Moves `axis` to the front, or back from there. */
static ir_value *move_axis(onnx_node *n, ir_value *x, int axis, bool to_front)
{
    int64_t perm[IR_MAX_RANK];
    if (!x) return NULL;
    for (int i = 0; i < x->type.rank; i++)
        perm[i] = to_front ? (i == 0 ? axis : i - (i <= axis)) : (i == axis ? 0 : i + (i < axis));
    return ir_transpose(n->b, x, perm);
}

void onnx_sized_nonzero(onnx_node *n)
{
    if (!can_trim(n)) return;
    ir_node *found = ir_new(n->b, IR_OP_nonzero, 1, n->in[0]);
    ir_value *rows = ir_done(n->b, found);
    rows = trim(n, rows, ir_out(found, IR_OUT(nonzero, count)), onnx_data_dim(n, 0, 1));
    n->out[0] = rows ? ir_transpose(n->b, rows, (int64_t[]){1, 0}) : NULL;
}

void onnx_sized_compress(onnx_node *n, ir_value *x, int axis)
{
    const ir_type *condition = &n->in[1]->type;
    if (condition->rank != 1 || condition->dtype != IR_bool) onnx_reject(n, "condition must be a list of bool");
    if (!can_trim(n)) return;
    const ir_dim size = onnx_data_dim(n, 0, onnx_has(n, "axis") ? axis : 0);
    ir_node *found = ir_new(n->b, IR_OP_nonzero, 1, n->in[1]);
    ir_value *at = ir_done(n->b, found);
    if (at) at = ir_reshape(n->b, at, condition->dims, 1);
    n->out[0] = gather(n, x, trim(n, at, ir_out(found, IR_OUT(nonzero, count)), size), axis);
}

void onnx_sized_unique(onnx_node *n, ir_value *x, int axis, bool sorted)
{
    if (!can_trim(n)) return;
    ir_value *rows = move_axis(n, x, axis, true);
    if (!rows) return;
    const ir_dim size = onnx_data_dim(n, 0, axis);
    ir_node *found = ir_new(n->b, IR_OP_unique, 1, rows);
    ir_set_bool(found, IR_ATTR(unique, sorted), sorted);
    ir_value *first = ir_done(n->b, found), *count = ir_out(found, IR_OUT(unique, count));
    first = trim(n, first, count, size);
    n->out[0] = gather(n, x, first, axis);
    if (onnx_result_is_used(n, 1)) n->out[1] = first;
    if (onnx_result_is_used(n, 2)) n->out[2] = ir_out(found, IR_OUT(unique, inverse));
    if (onnx_result_is_used(n, 3)) n->out[3] = trim(n, ir_out(found, IR_OUT(unique, counts)), count, size);
}

/* ---- TopK ---- */

/* The whole axis is sorted, because K is known only at run time. */
void onnx_sized_top_k(onnx_node *n, int axis, bool largest)
{
    if (!can_trim(n)) return;
    if (!ir_dtype_is_int(n->in[1]->type.dtype)) onnx_reject(n, "K must be an integer");
    ir_value *count = onnx_scalar_of(n, n->in[1]);
    if (n->failed || !count) return;
    const ir_dim size = onnx_data_dim(n, 0, axis);
    ir_node *sorted = ir_new(n->b, IR_OP_top_k, 1, n->in[0]);
    ir_set_int(sorted, IR_ATTR(top_k, axis), axis);
    ir_set_list(sorted, IR_ATTR(top_k, count), &n->in[0]->type.dims[axis], 1);
    ir_set_bool(sorted, IR_ATTR(top_k, largest), largest);
    if (!ir_done(n->b, sorted)) return;
    for (int i = 0; i < n->n_out; i++) {
        if (!onnx_result_is_used(n, i)) continue;
        ir_value *rows = trim(n, move_axis(n, ir_out(sorted, i), axis, true), count, size);
        n->out[i] = move_axis(n, rows, axis, false);
    }
}

/* ---- NonMaxSuppression ---- */

/* The maximum number of boxes for a batch and class: a dimension if it is known, else an operand of the op. */
static ir_dim read_limit(onnx_node *n, ir_dim boxes, ir_value **max)
{
    *max = NULL;
    if (!onnx_in(n, 2)) return 0;
    if (!ir_dtype_is_int(n->in[2]->type.dtype)) onnx_reject(n, "max_output_boxes_per_class must be an integer");
    const ir_const_value *known = ir_const_get(n->importer->consts, n->in[2]);
    if (!known || known->count != 1) {
        *max = onnx_scalar_of(n, n->in[2]);
        return boxes;
    }
    const ir_dim most = ir_dim_min(n->dims, ir_dim_max(n->dims, known->ints[0], 0), boxes);
    return most == IR_DIM_NONE ? boxes : most;
}

void onnx_lower_non_max_suppression(onnx_node *n)
{
    const int64_t center = onnx_int(n, "center_point_box", 0);
    ir_value *max;
    if (center != 0 && center != 1) onnx_reject(n, "center_point_box is %lld, must be 0 or 1", (long long)center);
    for (int i = 0; i < 2; i++)
        if (n->in[i]->type.rank != 3) onnx_reject(n, "input %d must have 3 dimensions", i);
    if (!can_trim(n)) return;
    const ir_dim limit = read_limit(n, n->in[0]->type.dims[1], &max);
    ir_value *iou = onnx_scalar_of(n, onnx_in(n, 3)), *score = onnx_scalar_of(n, onnx_in(n, 4));
    if (n->failed) return;
    ir_node *chosen = ir_new(n->b, IR_OP_nms, 5, n->in[0], n->in[1], max, iou, score);
    ir_set_list(chosen, IR_ATTR(nms, limit), &limit, 1);
    ir_set_bool(chosen, IR_ATTR(nms, center), center != 0);
    ir_value *rows = ir_done(n->b, chosen);
    n->out[0] = trim(n, rows, ir_out(chosen, IR_OUT(nms, count)), onnx_data_dim(n, 0, 0));
}
