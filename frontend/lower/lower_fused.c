/* lower_fused.c - what optimisers fuse (other_ops.def): products, convolutions, activations and normalisations with
 * what surrounds them. Each is lowered to the ops of its parts. */
#include "frontend/lower/lower.h"

#include <string.h>

/* ---- activations ------------------------------------------------------------------------------ */

/* The activations of FusedConv and FusedGemm: operators of one operand, whose parameters are the attributes of the op,
 * and Clip, whose parameters are operands. */
static const struct activation {
    const char *name;
    ir_op op;
} activations[] = {
#define UNARY(operator, since, op) {#operator, IR_OP_##op },
#include "frontend/onnx.def"
    {"Clip", IR_OP_clip},
};
enum { MAX_PARAMETERS = 2 };

static const struct activation *find_activation(onnx_node *n)
{
    const char *name = onnx_text(n, "activation", "");
    for (size_t i = 0; *name && i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0) return &activations[i];
    if (*name) onnx_refuse(n, "activation '%s' is not supported", name);
    return NULL;
}

static int parameters_of(const struct activation *a)
{
    if (!a) return 0;
    return a->op == IR_OP_clip ? MAX_PARAMETERS : ir_op_get(a->op)->n_attr;
}

static ir_value *activated(onnx_node *n, const struct activation *a, ir_value *x, const double *parameters)
{
    if (!a || !x) return x;
    if (a->op == IR_OP_clip) {
        ir_value *high = ir_scalar_like(n->b, x, parameters[1]);
        return ir_done(n->b, ir_new(n->b, IR_OP_clip, 3, x, ir_scalar_like(n->b, x, parameters[0]), high));
    }
    ir_node *node = ir_new(n->b, a->op, 1, x);
    for (int i = 0; i < parameters_of(a); i++) ir_set_float(node, i, parameters[i]);
    return ir_done(n->b, node);
}

/* Exact, or the approximation by tanh (n->arg), of the sum of the operands. */
void onnx_lower_fused_gelu(onnx_node *n)
{
    ir_value *x = n->in[0], *bias = onnx_in(n, 1);
    ir_node *node = ir_new(n->b, IR_OP_gelu, 1, bias ? ir_binary(n->b, IR_OP_add, x, bias) : x);
    ir_set_bool(node, IR_ATTR(gelu, tanh), n->arg);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_quick_gelu(onnx_node *n)
{
    ir_node *node = ir_new(n->b, IR_OP_swish, 1, n->in[0]);
    ir_set_float(node, IR_ATTR(swish, alpha), onnx_float(n, "alpha", (double)1.702f));
    n->out[0] = ir_done(n->b, node);
}

/* ---- products --------------------------------------------------------------------------------- */

/* [M, batch.., K] -> [batch.., M, K], then with the last two axes exchanged. */
static ir_value *arranged(onnx_node *n, ir_value *v, bool batch_last, bool transposed)
{
    int64_t perm[IR_MAX_RANK];
    const int rank = v->type.rank;
    if (rank < 2) return v;
    for (int i = 0; i < rank; i++) perm[i] = i;
    if (batch_last && rank > 2) {
        for (int i = 0; i + 2 < rank; i++) perm[i] = i + 1;
        perm[rank - 2] = 0;
    }
    if (transposed) {
        const int64_t last = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2];
        perm[rank - 2] = last;
    }
    return ir_transpose(n->b, v, perm);
}

void onnx_lower_fused_matmul(onnx_node *n)
{
    const double alpha = onnx_float(n, "alpha", 1);
    const bool trans_a = onnx_bool(n, "transA", false), trans_b = onnx_bool(n, "transB", false);
    const bool batch_a = onnx_bool(n, "transBatchA", false), batch_b = onnx_bool(n, "transBatchB", false);
    ir_value *a = arranged(n, n->in[0], batch_a, trans_a), *b = arranged(n, n->in[1], batch_b, trans_b);
    ir_value *y = a && b ? onnx_matmul(n, a, b) : NULL;
    n->out[0] = y && alpha != 1 ? ir_binary(n->b, IR_OP_mul, y, ir_scalar_like(n->b, y, alpha)) : y;
}

void onnx_lower_fused_gemm(onnx_node *n)
{
    const struct activation *a = find_activation(n);
    double parameters[MAX_PARAMETERS] = {0};
    if (a && a->op == IR_OP_clip) onnx_refuse(n, "activation 'Clip' is not supported");
    if (n->failed) return;
    for (int i = 0; i < parameters_of(a); i++)
        parameters[i] = onnx_float(
            n, arena_printf(n->importer->scratch, "activation_%s", ir_op_get(a->op)->attr[i].name), 0);
    onnx_ignore(n, "activation_alpha"); /* of activations that do not have them */
    onnx_ignore(n, "activation_beta");
    onnx_ignore(n, "activation_gamma");
    onnx_lower_gemm(n);
    n->out[0] = activated(n, a, n->out[0], parameters);
}

/* activation(Conv(X, W, B) + Z) */
void onnx_lower_fused_conv(onnx_node *n)
{
    const struct activation *a = find_activation(n);
    const int wanted = parameters_of(a);
    int count = 0;
    const float *given = onnx_floats(n, "activation_params", &count);
    double parameters[MAX_PARAMETERS] = {0};
    if (count < wanted) onnx_reject(n, "activation_params has %d numbers, not %d", count, wanted);
    if (n->failed) return;
    for (int i = 0; i < wanted; i++) parameters[i] = (double)given[i];
    onnx_lower_conv(n);
    ir_value *y = n->out[0], *z = onnx_in(n, 3);
    if (y && z) y = ir_binary(n->b, IR_OP_add, y, z);
    if (y && !ir_type_same_shape(&y->type, &n->out[0]->type)) onnx_reject(n, "Z does not fit the convolution");
    n->out[0] = activated(n, a, y, parameters);
}

/* ---- normalisations --------------------------------------------------------------------------- */

/* LayerNormalization over the last axis; without a mean if `center` is false. */
static ir_value *normalized(onnx_node *n, ir_value *x, ir_value *scale, ir_value *bias, bool center)
{
    if (!x) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_layer_norm, 3, x, scale, bias);
    ir_set_int(node, IR_ATTR(layer_norm, axis), x->type.rank - 1);
    ir_set_float(node, IR_ATTR(layer_norm, eps), onnx_float(n, "epsilon", (double)1e-12f));
    ir_set_bool(node, IR_ATTR(layer_norm, center), center);
    return ir_done(n->b, node);
}

/* Normalises the sum of input, skip and bias, which is also result 3. n->arg: whether the mean is subtracted, so that
 * there is a beta. */
void onnx_lower_skip_layer_norm(onnx_node *n)
{
    ir_value *x = n->in[0], *bias = onnx_in(n, n->arg ? 4 : 3);
    ir_value *sum = ir_binary(n->b, IR_OP_add, x, n->in[1]);
    if (sum && !ir_type_same_shape(&sum->type, &x->type)) onnx_reject(n, "skip does not fit the input");
    if (sum && bias) sum = ir_binary(n->b, IR_OP_add, sum, bias);
    if (n->failed) return;
    n->out[0] = normalized(n, sum, n->in[2], n->arg ? onnx_in(n, 3) : NULL, n->arg);
    if (onnx_result_is_used(n, 3)) n->out[3] = sum;
}

static ir_value *rows_of(onnx_node *n, ir_value *table, ir_value *indices)
{
    return ir_done(n->b, ir_new(n->b, IR_OP_gather, 2, table, indices));
}

/* The number of ones of each row of a mask; 0 without a mask. */
static ir_value *lengths(onnx_node *n, ir_value *mask, ir_dim batch)
{
    if (!mask) return ir_expand(n->b, ir_scalar(n->b, IR_i32, 0), &batch, 1);
    ir_value *ones = ir_cast(n->b, ir_binary(n->b, IR_OP_equal, mask, ir_scalar_like(n->b, mask, 1)), IR_i32);
    return ones ? ir_reduce_sum(n->b, ones, (const int64_t[]){1}, 1, false) : NULL;
}

/* input_ids, segment_ids, the embeddings of words, positions and segments, gamma, beta, mask, position_ids; the sum of
 * the embeddings of each word is normalised. */
void onnx_lower_embed_layer_norm(onnx_node *n)
{
    enum { IDS, SEGMENTS, WORD_TABLE, POSITION_TABLE, SEGMENT_TABLE, GAMMA, BETA, MASK, POSITIONS };
    ir_value *ids = n->in[IDS], *positions = onnx_in(n, POSITIONS), *segments = onnx_in(n, SEGMENTS);
    onnx_ignore(n, "mask_index_type");
    if (ids->type.rank != 2) onnx_reject(n, "input_ids has %d dimensions, not 2", ids->type.rank);
    if (!segments != !onnx_in(n, SEGMENT_TABLE)) onnx_reject(n, "segment ids and their embedding belong together");
    if (n->failed) return;
    if (!positions) positions = onnx_iota(n, IR_i64, ids->type.dims[1]);
    ir_value *sum = rows_of(n, n->in[WORD_TABLE], ids);
    sum = ir_binary(n->b, IR_OP_add, sum, rows_of(n, n->in[POSITION_TABLE], positions));
    if (segments) sum = ir_binary(n->b, IR_OP_add, sum, rows_of(n, n->in[SEGMENT_TABLE], segments));
    n->out[0] = normalized(n, sum, n->in[GAMMA], n->in[BETA], true);
    if (onnx_result_is_used(n, 1)) n->out[1] = lengths(n, onnx_in(n, MASK), ids->type.dims[0]);
    if (onnx_result_is_used(n, 2)) n->out[2] = sum;
}
