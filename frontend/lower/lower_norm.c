/* lower_norm.c - BatchNormalization, LayerNormalization, RMSNormalization, Softmax, LogSoftmax, Dropout. */
#include "frontend/lower/lower.h"

/* ---- BatchNormalization ----------------------------------------------------------------------
 * Training form: training_mode = 1 from opset 14 on, more than one result in earlier opsets. Results 1 and 2 are the
 * new running statistics, which are stored into the storage that operands 3 and 4 read. */

/* The running statistic at this node: the storage, or the value that an earlier use of the same module computed. */
static ir_value *statistic(onnx_node *n, ir_value *v)
{
    if (v->kind != IR_VALUE_STORAGE) return v;
    v->storage->kind = IR_STATE;
    for (size_t i = 0; i < n->importer->stores.count; i++)
        if (n->importer->stores.items[i].state == v->storage) return n->importer->stores.items[i].value;
    return v;
}

static void store_statistic(onnx_node *n, const ir_value *operand, ir_value *v)
{
    if (operand->kind != IR_VALUE_STORAGE) return;
    onnx_importer *im = n->importer;
    for (size_t i = 0; i < im->stores.count; i++)
        if (im->stores.items[i].state == operand->storage) {
            im->stores.items[i].value = v;
            return;
        }
    vec_push(im->scratch, &im->stores, ((onnx_store){operand->storage, v}));
}

/* The variance of the batch, computed from the op's result 1 / sqrt(var + eps). */
static ir_value *saved_variance(onnx_node *n, ir_value *rstd, double eps)
{
    ir_value *square = ir_unary(n->b, IR_OP_reciprocal, ir_binary(n->b, IR_OP_mul, rstd, rstd));
    return ir_binary(n->b, IR_OP_sub, square, ir_scalar_like(n->b, square, eps));
}

void onnx_lower_batch_norm(onnx_node *n)
{
    double eps = onnx_float(n, "epsilon", (double)1e-5f), momentum = onnx_float(n, "momentum", (double)0.9f);
    bool training = n->arg ? onnx_bool(n, "training_mode", false) : n->n_out > 1;
    if (n->opset < 9 && !onnx_bool(n, "spatial", true)) onnx_refuse(n, "spatial = 0 is not supported");
    if (n->arg && !training && n->n_out > 1) onnx_reject(n, "has %d outputs without training_mode", n->n_out);
    if (n->failed) return;
    ir_value *const running[] = {n->in[3], n->in[4]};
    ir_node *node = ir_new(n->b, IR_OP_batch_norm, 5, n->in[0], n->in[1], n->in[2], statistic(n, running[0]),
                           statistic(n, running[1]));
    ir_set_float(node, IR_ATTR(batch_norm, eps), eps);
    ir_set_float(node, IR_ATTR(batch_norm, momentum), momentum);
    ir_set_bool(node, IR_ATTR(batch_norm, training), training);
    n->out[0] = ir_done(n->b, node);
    if (!n->out[0] || !training) return;
    static const int slots[] = {IR_OUT(batch_norm, mean_out), IR_OUT(batch_norm, var_out),
                                IR_OUT(batch_norm, saved_mean)};
    for (int i = 1; i < n->n_out && i <= 3; i++) n->out[i] = node->out[slots[i - 1]];
    if (onnx_result_is_used(n, 4)) n->out[4] = saved_variance(n, node->out[IR_OUT(batch_norm, saved_rstd)], eps);
    store_statistic(n, running[0], node->out[IR_OUT(batch_norm, mean_out)]);
    store_statistic(n, running[1], node->out[IR_OUT(batch_norm, var_out)]);
}

/* ---- LayerNormalization, RMSNormalization ----------------------------------------------------- */

/* Scale or bias with exactly the normalised dimensions; ONNX allows it to broadcast to them. */
static ir_value *affine(onnx_node *n, ir_value *v, int axis)
{
    const ir_type *x = &n->in[0]->type;
    return v ? ir_expand(n->b, v, x->dims + axis, x->rank - axis) : NULL;
}

/* The type of the statistics. */
static ir_dtype stash_type(onnx_node *n)
{
    int64_t stash = onnx_int(n, "stash_type", ONNX_float32);
    ir_dtype t = onnx_type_dtype(stash);
    if (!ir_dtype_is_float(t)) onnx_refuse(n, "stash_type %s is not supported", onnx_type_name(stash));
    return t;
}

/* n->arg: whether the mean is subtracted, and is a result before the other statistic. */
void onnx_lower_layer_norm(onnx_node *n)
{
    const int rstd = n->arg ? 2 : 1;
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), n->in[0]->type.rank);
    double eps = onnx_float(n, "epsilon", (double)1e-5f);
    ir_dtype statistics = stash_type(n);
    if (n->failed) return;
    ir_value *scale = affine(n, n->in[1], axis), *bias = affine(n, onnx_in(n, 2), axis);
    if (!scale || (onnx_in(n, 2) && !bias)) return;
    ir_node *node = ir_new(n->b, IR_OP_layer_norm, 3, n->in[0], scale, bias);
    ir_set_int(node, IR_ATTR(layer_norm, axis), axis);
    ir_set_float(node, IR_ATTR(layer_norm, eps), eps);
    ir_set_bool(node, IR_ATTR(layer_norm, center), n->arg);
    n->out[0] = ir_done(n->b, node);
    if (n->out[0] && n->arg && onnx_result_is_used(n, 1))
        n->out[1] = ir_cast(n->b, node->out[IR_OUT(layer_norm, mean)], statistics);
    if (n->out[0] && onnx_result_is_used(n, rstd))
        n->out[rstd] = ir_cast(n->b, node->out[IR_OUT(layer_norm, rstd)], statistics);
}

/* ---- Softmax, LogSoftmax --------------------------------------------------------------------- */

static ir_value *softmax(onnx_node *n, ir_value *x, int axis)
{
    ir_node *node = ir_new(n->b, (ir_op)n->arg, 1, x);
    bool log = n->arg == IR_OP_log_softmax;
    ir_set_int(node, log ? IR_ATTR(log_softmax, axis) : IR_ATTR(softmax, axis), axis);
    return ir_done(n->b, node);
}

void onnx_lower_softmax(onnx_node *n)
{
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), n->in[0]->type.rank);
    if (!n->failed) n->out[0] = softmax(n, n->in[0], axis);
}

/* Before opset 13, all axes from `axis` on are normalised together, as one axis of a matrix. */
void onnx_lower_softmax_flat(onnx_node *n)
{
    ir_value *x = n->in[0];
    int axis = onnx_axis(n, onnx_int(n, "axis", 1), x->type.rank);
    if (n->failed) return;
    if (axis == x->type.rank - 1) {
        n->out[0] = softmax(n, x, axis);
        return;
    }
    ir_dim matrix[2] = {ir_dim_product(n->dims, x->type.dims, axis)};
    matrix[1] = ir_dim_product(n->dims, x->type.dims + axis, x->type.rank - axis);
    ir_value *y = softmax(n, ir_reshape(n->b, x, matrix, 2), 1);
    n->out[0] = ir_reshape_like(n->b, y, &x->type);
}

/* ---- Dropout ---------------------------------------------------------------------------------
 * A Dropout in training mode becomes a `dropout` node; any other one is the identity, with a mask of all true. */

static void keep_all(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    n->out[0] = n->in[0];
    if (onnx_result_is_used(n, 1)) n->out[1] = ir_expand(n->b, ir_scalar(n->b, IR_bool, 1), x->dims, x->rank);
}

static void drop(onnx_node *n, double ratio)
{
    ir_node *node = ir_new(n->b, IR_OP_dropout, 2, n->in[0], onnx_random_state(n->importer));
    ir_set_float(node, IR_ATTR(dropout, ratio), ratio);
    ir_set_int(node, IR_ATTR(dropout, stream), n->importer->streams++);
    n->out[0] = ir_done(n->b, node);
    if (n->out[0] && onnx_result_is_used(n, 1)) n->out[1] = node->out[IR_OUT(dropout, mask)];
}

static void dropout(onnx_node *n, double ratio, bool training)
{
    onnx_ignore(n, "seed");
    if (!(ratio >= 0 && ratio < 1)) onnx_reject(n, "ratio is %g, not in [0, 1)", ratio);
    if (n->failed) return;
    if (training && ratio > 0) drop(n, ratio);
    else keep_all(n);
}

/* Before opset 12, the file does not specify the mode: it is chosen later, for the whole graph. */
void onnx_lower_dropout_attribute(onnx_node *n)
{
    dropout(n, onnx_float(n, "ratio", 0.5), true);
    if (n->opset < 10 && onnx_result_is_used(n, 1)) n->out[1] = ir_cast(n->b, n->out[1], n->in[0]->type.dtype);
}

void onnx_lower_dropout(onnx_node *n)
{
    bool training = onnx_const_int(n, 2, 0) != 0;
    dropout(n, training ? onnx_const_float(n, 1, 0.5) : 0, training);
}
