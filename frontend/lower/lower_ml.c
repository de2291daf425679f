/* lower_ml.c - the linear operators of ai.onnx.ml (other_ops.def), whose weights are attributes. Results are floats. */
#include "frontend/lower/lower.h"

/* Floats from an attribute, in this shape. */
static ir_value *floats(onnx_node *n, const char *name, const ir_dim *dims, int rank)
{
    int count = 0;
    const float *items = onnx_floats(n, name, &count);
    const ir_type type = ir_type_make(IR_f32, rank, dims);
    int64_t wanted = 1;
    for (int i = 0; i < rank; i++) wanted *= dims[i];
    if (!items || count != wanted)
        onnx_reject(n, "attribute '%s' has %d elements, not %lld", name, count, (long long)wanted);
    if (n->failed) return NULL;
    return ir_constant(n->b, arena_printf(n->importer->arena, "%s.%s", n->b->loc.node, name), &type, items);
}

/* The operand in f32 as rows of features; a vector is one row. */
static ir_value *rows_of(onnx_node *n)
{
    ir_value *x = ir_cast(n->b, n->in[0], IR_f32);
    if (!x->type.rank || x->type.rank > 2) onnx_refuse(n, "an operand of %d dimensions", x->type.rank);
    if (n->failed || x->type.rank == 2) return n->failed ? NULL : x;
    return ir_reshape(n->b, x, (const ir_dim[]){1, x->type.dims[0]}, 2);
}

void onnx_lower_feature_extractor(onnx_node *n)
{
    ir_value *x = n->in[0], *indices = n->in[1];
    if (!x->type.rank) onnx_reject(n, "X is a scalar");
    if (n->failed) return;
    const ir_dim count = ir_type_count(n->dims, &indices->type);
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, x, ir_reshape(n->b, indices, &count, 1));
    ir_set_int(node, IR_ATTR(gather, axis), x->type.rank - 1);
    ir_value *y = ir_done(n->b, node);
    n->out[0] = y && x->type.rank == 1 ? ir_reshape(n->b, y, (const ir_dim[]){1, count}, 2) : y;
}

/* (x - offset) * scale */
void onnx_lower_scaler(onnx_node *n)
{
    ir_value *x = ir_cast(n->b, n->in[0], IR_f32);
    int offsets = 0, scales = 0;
    onnx_floats(n, "offset", &offsets);
    onnx_floats(n, "scale", &scales);
    if (!x->type.rank) onnx_reject(n, "X is a scalar");
    const ir_dim features = n->failed ? 1 : x->type.dims[x->type.rank - 1];
    if (!ir_dim_may_equal(n->dims, features, offsets) && offsets != 1)
        onnx_reject(n, "%d offsets do not fit the last axis", offsets);
    if (scales != offsets) onnx_reject(n, "%d scales and %d offsets", scales, offsets);
    if (n->failed) return;
    ir_value *offset = floats(n, "offset", (const ir_dim[]){offsets}, 1),
             *scale = floats(n, "scale", (const ir_dim[]){scales}, 1);
    n->out[0] = ir_binary(n->b, IR_OP_mul, ir_binary(n->b, IR_OP_sub, x, offset), scale);
}

/* Each row divided by its largest element, or by the sum or root of the squares of its sizes, unless that is 0. */
void onnx_lower_normalizer(onnx_node *n)
{
    static const char *const words[] = {"MAX", "L1", "L2", NULL};
    static const ir_op reductions[] = {IR_OP_reduce_max, IR_OP_reduce_l1, IR_OP_reduce_l2};
    const int norm = onnx_word(n, "norm", words, 0);
    ir_value *x = ir_cast(n->b, n->in[0], IR_f32);
    if (!x->type.rank) onnx_reject(n, "X is a scalar");
    if (n->failed) return;
    const int64_t axis = x->type.rank - 1;
    ir_node *node = ir_new(n->b, reductions[norm], 1, x);
    ir_set_list(node, ir_op_find_attr(reductions[norm], "axes"), &axis, 1);
    ir_set_bool(node, ir_op_find_attr(reductions[norm], "keepdims"), true);
    ir_value *size = ir_done(n->b, node);
    if (!size) return;
    ir_value *none = ir_binary(n->b, IR_OP_equal, size, ir_scalar_like(n->b, size, 0));
    size = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, none, ir_scalar_like(n->b, size, 1), size));
    n->out[0] = ir_binary(n->b, IR_OP_div, x, size);
}

/* ---- linear models ----------------------------------------------------------------------------- */

typedef enum transform { NONE, SOFTMAX, LOGISTIC } transform;

static transform read_transform(onnx_node *n)
{
    static const char *const words[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT", NULL};
    const int word = onnx_word(n, "post_transform", words, NONE);
    if (word > LOGISTIC) onnx_refuse(n, "post_transform %s is not supported", words[word]);
    return (transform)word;
}

static ir_value *transformed(onnx_node *n, ir_value *v, transform t)
{
    if (t == LOGISTIC) return ir_unary(n->b, IR_OP_sigmoid, v);
    if (t != SOFTMAX || !v) return v;
    ir_node *node = ir_new(n->b, IR_OP_softmax, 1, v);
    ir_set_int(node, IR_ATTR(softmax, axis), 1);
    return ir_done(n->b, node);
}

/* x W^T + b with `outputs` rows of coefficients. */
static ir_value *linear(onnx_node *n, int64_t outputs, const char *intercepts)
{
    ir_value *x = rows_of(n);
    if (!x) return NULL;
    const int64_t features = onnx_size(n, x->type.dims[1], "the number of features");
    if (n->failed) return NULL;
    ir_value *w = floats(n, "coefficients", (const ir_dim[]){outputs, features}, 2), *b = NULL;
    if (onnx_has(n, intercepts)) b = floats(n, intercepts, (const ir_dim[]){outputs}, 1);
    return n->failed ? NULL : ir_matmul(n->b, x, w, b, false, true);
}

void onnx_lower_linear_regressor(onnx_node *n)
{
    const int64_t targets = onnx_int(n, "targets", 1);
    const transform t = read_transform(n);
    if (targets == 1 && t != NONE) onnx_refuse(n, "post_transform of a single score"); /* onnxruntime ignores it */
    if (targets < 1 || targets > INT32_MAX) onnx_reject(n, "targets is %lld", (long long)targets);
    n->out[0] = n->failed ? NULL : transformed(n, linear(n, targets, "intercepts"), t);
}

/* The labels of the positions in a list, or the positions. */
static ir_value *labels_at(onnx_node *n, ir_value *positions, onnx_list labels)
{
    return ir_done(n->b, ir_new(n->b, IR_OP_gather, 2, onnx_dims_value(n, labels.items, labels.count), positions));
}

/* The label of the first largest score; of a single score, the second of two labels if it is positive. */
static ir_value *chosen(onnx_node *n, ir_value *scores, onnx_list labels, int64_t outputs)
{
    if (!scores) return NULL;
    if (outputs == 1) {
        ir_value *positive = ir_binary(n->b, IR_OP_greater, scores, ir_scalar_like(n->b, scores, 0));
        return labels_at(n, ir_reshape(n->b, ir_cast(n->b, positive, IR_i64), scores->type.dims, 1), labels);
    }
    ir_node *node = ir_new(n->b, IR_OP_arg_max, 1, scores);
    ir_set_int(node, IR_ATTR(arg_max, axis), 1);
    ir_set_bool(node, ir_op_find_attr(IR_OP_arg_max, "keepdims"), false);
    return labels_at(n, ir_done(n->b, node), labels);
}

/* A single score s is the second of two: 1 - s, s; before a logistic function -s, s. */
static ir_value *both(onnx_node *n, ir_value *s, transform t)
{
    if (!s) return NULL;
    ir_value *other = t == NONE ? ir_binary(n->b, IR_OP_sub, ir_scalar_like(n->b, s, 1), s)
                                : ir_unary(n->b, IR_OP_neg, s);
    ir_node *node = ir_new_array(n->b, IR_OP_concat, 2, (ir_value *[]){other, s}, 0);
    ir_set_int(node, IR_ATTR(concat, axis), 1);
    return ir_done(n->b, node);
}

void onnx_lower_linear_classifier(onnx_node *n)
{
    const onnx_list labels = onnx_ints(n, "classlabels_ints");
    const transform t = read_transform(n);
    int outputs = 0;
    onnx_floats(n, "intercepts", &outputs);
    onnx_ignore(n, "multi_class");
    if (onnx_has(n, "classlabels_strings")) onnx_refuse(n, "labels that are strings are not supported");
    else if (!outputs || labels.count != (outputs == 1 ? 2 : outputs))
        onnx_refuse(n, "%d labels of %d scores", labels.count, outputs);
    else if (outputs == 1 && t == SOFTMAX) onnx_refuse(n, "SOFTMAX of a single score");
    ir_value *scores = n->failed ? NULL : linear(n, outputs, "intercepts");
    if (onnx_result_is_used(n, 0)) n->out[0] = chosen(n, scores, labels, outputs);
    if (onnx_result_is_used(n, 1)) n->out[1] = transformed(n, outputs == 1 ? both(n, scores, t) : scores, t);
}
