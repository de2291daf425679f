/* lower_select.c - ArgMax, ArgMin, TopK, Hardmax, CumSum, Det. */
#include "frontend/lower/lower.h"

static ir_value *arg_max(onnx_node *n, ir_value *x, int axis, bool keepdims, bool last)
{
    if (!x) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_arg_max, 1, x);
    ir_set_int(node, IR_ATTR(arg_max, axis), axis);
    ir_set_bool(node, IR_ATTR(arg_max, keepdims), keepdims);
    ir_set_bool(node, IR_ATTR(arg_max, largest), n->arg);
    ir_set_bool(node, IR_ATTR(arg_max, last), last);
    return ir_done(n->b, node);
}

/* n->arg: whether the largest element is wanted. */
void onnx_lower_arg_max(onnx_node *n)
{
    int axis = onnx_axis(n, onnx_int(n, "axis", 0), n->in[0]->type.rank);
    bool keepdims = onnx_bool(n, "keepdims", true);
    bool last = n->opset >= 12 && onnx_bool(n, "select_last_index", false);
    if (!n->failed) n->out[0] = arg_max(n, n->in[0], axis, keepdims, last);
}

/* ---- TopK ---- */

/* The number of elements: an attribute in opsets whose rows have one operand. */
static ir_dim read_count(onnx_node *n)
{
    if (n->row->max_in > 1) {
        onnx_list k = onnx_const_list(n, 1);
        if (!n->failed && k.count != 1) onnx_reject(n, "K has %d elements, not 1", k.count);
        return n->failed ? 0 : k.items[0];
    }
    if (!onnx_has(n, "k")) onnx_reject(n, "attribute 'k' is missing");
    return ir_dim_number(onnx_int(n, "k", 0));
}

/* The result is always sorted, as the operator permits. */
void onnx_lower_top_k(onnx_node *n)
{
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), n->in[0]->type.rank);
    bool largest = n->opset < 11 || onnx_bool(n, "largest", true);
    if (n->opset >= 11) onnx_ignore(n, "sorted");
    if (n->row->max_in > 1 && !ir_const_get(n->importer->consts, n->in[1])) {
        if (!n->failed) onnx_sized_top_k(n, axis, largest);
        return;
    }
    ir_dim k = read_count(n);
    if (!n->failed && !ir_dim_is_symbolic(k) && k < 0)
        onnx_reject(n, "K is %lld, but must not be negative", (long long)k);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_top_k, 1, n->in[0]);
    ir_set_int(node, IR_ATTR(top_k, axis), axis);
    ir_set_list(node, IR_ATTR(top_k, count), &k, 1);
    ir_set_bool(node, IR_ATTR(top_k, largest), largest);
    n->out[0] = ir_done(n->b, node);
    if (n->out[0] && n->n_out > 1) n->out[1] = node->out[IR_OUT(top_k, indices)];
}

/* ---- Hardmax ---- */

/* 1 at the first maximum along the axis, 0 elsewhere. */
static ir_value *hardmax(onnx_node *n, ir_value *x, int axis)
{
    if (!x) return NULL;
    ir_dim size = x->type.dims[axis];
    ir_type along = {.rank = x->type.rank - axis, .dims = {size}};
    for (int i = 1; i < along.rank; i++) along.dims[i] = 1;
    ir_node *node = ir_new(n->b, IR_OP_iota, 0);
    ir_set_list(node, IR_ATTR(iota, size), &size, 1);
    ir_value *positions = ir_reshape_like(n->b, ir_done(n->b, node), &along);
    ir_value *is_max = ir_binary(n->b, IR_OP_equal, arg_max(n, x, axis, true, false), positions);
    return ir_cast(n->b, is_max, x->type.dtype);
}

void onnx_lower_hardmax(onnx_node *n)
{
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), n->in[0]->type.rank);
    if (n->failed) return;
    n->out[0] = n->in[0]->type.dims[axis] == 0 ? n->in[0] : hardmax(n, n->in[0], axis);
}

/* Before opset 13, the axes from `axis` on are one axis of a matrix. */
void onnx_lower_hardmax_flat(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    int axis = onnx_axis(n, onnx_int(n, "axis", 1), x->rank);
    if (n->failed) return;
    ir_dim matrix[2] = {ir_dim_product(n->dims, x->dims, axis)};
    matrix[1] = ir_dim_product(n->dims, x->dims + axis, x->rank - axis);
    if (matrix[1] == 0) n->out[0] = n->in[0];
    else n->out[0] = ir_reshape_like(n->b, hardmax(n, ir_reshape(n->b, n->in[0], matrix, 2), 1), x);
}

/* ---- CumSum, Det ---- */

void onnx_lower_cum_sum(onnx_node *n)
{
    bool exclusive = onnx_bool(n, "exclusive", false), reverse = onnx_bool(n, "reverse", false);
    int axis = onnx_axis(n, onnx_const_int(n, 1, 0), n->in[0]->type.rank);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_cum_sum, 1, n->in[0]);
    ir_set_int(node, IR_ATTR(cum_sum, axis), axis);
    ir_set_bool(node, IR_ATTR(cum_sum, exclusive), exclusive);
    ir_set_bool(node, IR_ATTR(cum_sum, reverse), reverse);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_det(onnx_node *n) { n->out[0] = ir_unary(n->b, IR_OP_det, n->in[0]); }
