/* lower_normalise.c - normalisations that are made of other ops: InstanceNormalization, GroupNormalization,
 * MeanVarianceNormalization, LpNormalization, LRN. */
#include "frontend/lower/lower.h"

#include <string.h>

/* x normalised over the axes from `axis` on, without scale and bias. */
static ir_value *normalise(onnx_node *n, ir_value *x, int axis, double eps)
{
    if (!x) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_layer_norm, 3, x, NULL, NULL);
    ir_set_int(node, IR_ATTR(layer_norm, axis), axis);
    ir_set_float(node, IR_ATTR(layer_norm, eps), eps);
    return ir_done(n->b, node);
}

/* x scale + bias, with vectors along axis 1 of x. */
static ir_value *apply_affine(onnx_node *n, ir_value *x)
{
    if (!x) return NULL;
    ir_type along = {.rank = x->type.rank - 1, .dims = {x->type.dims[1]}};
    for (int i = 1; i < along.rank; i++) along.dims[i] = 1;
    ir_value *scale = ir_reshape_like(n->b, n->in[1], &along), *bias = ir_reshape_like(n->b, n->in[2], &along);
    return ir_binary(n->b, IR_OP_add, ir_binary(n->b, IR_OP_mul, x, scale), bias);
}

/* Checks that scale and bias are vectors of that size. */
static void expect_vectors(onnx_node *n, ir_dim size)
{
    for (int i = 1; i <= 2; i++) {
        const ir_type *t = &n->in[i]->type;
        if (t->rank != 1 || t->dims[0] != size)
            onnx_reject(n, "%s must be a vector of %s", i == 1 ? "scale" : "bias",
                        ir_dim_print(n->dims, size, n->importer->scratch));
    }
}

static void expect_image(onnx_node *n)
{
    int rank = n->in[0]->type.rank;
    if (rank < 3) onnx_reject(n, "the input has rank %d, but needs N, C and spatial dimensions", rank);
}

void onnx_lower_instance_norm(onnx_node *n)
{
    double eps = onnx_float(n, "epsilon", (double)1e-5f);
    expect_image(n);
    if (!n->failed) expect_vectors(n, n->in[0]->type.dims[1]);
    if (!n->failed) n->out[0] = apply_affine(n, normalise(n, n->in[0], 2, eps));
}

/* ---- GroupNormalization ---- */

/* Reads num_groups, which must divide the number of channels. */
static int64_t read_groups(onnx_node *n)
{
    int64_t groups = onnx_int(n, "num_groups", 0), channels = onnx_size(n, n->in[0]->type.dims[1], "the channel axis");
    if (groups < 1 || channels % groups)
        onnx_reject(n, "num_groups is %lld, which does not divide %lld channels", (long long)groups,
                    (long long)channels);
    return groups;
}

/* n->arg: scale and bias have one element per channel, not per group. */
void onnx_lower_group_norm(onnx_node *n)
{
    ir_value *x = n->in[0];
    const ir_type *t = &x->type;
    double eps = onnx_float(n, "epsilon", (double)1e-5f);
    if (n->arg) onnx_ignore(n, "stash_type");
    expect_image(n);
    int64_t groups = n->failed ? 1 : read_groups(n);
    if (!n->failed) expect_vectors(n, n->arg ? t->dims[1] : groups);
    if (n->failed) return;
    ir_dim each = ir_dim_mul(n->dims, ir_dim_number(t->dims[1] / groups),
                             ir_dim_product(n->dims, t->dims + 2, t->rank - 2));
    ir_value *y = normalise(n, ir_reshape(n->b, x, (ir_dim[]){t->dims[0], groups, each}, 3), 2, eps);
    if (!n->arg) y = apply_affine(n, y);
    y = ir_reshape_like(n->b, y, t);
    n->out[0] = n->arg ? apply_affine(n, y) : y;
}

/* ---- MeanVarianceNormalization ---- */

/* The axes that `last` marks are moved to the end; returns the number of the others. */
static int order_axes(const bool *last, int rank, int64_t *perm)
{
    int count = 0, others = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < rank; i++)
            if (last[i] == pass) perm[count++] = i;
        if (!pass) others = count;
    }
    return others;
}

/* The operator adds 1e-9 to the standard deviation, which equals 1e-18 added to the variance where that is 0. */
void onnx_lower_mean_variance(onnx_node *n)
{
    static const ir_dim usual[] = {0, 2, 3};
    ir_value *x = n->in[0];
    int rank = x->type.rank;
    onnx_list axes = onnx_ints(n, "axes");
    bool set[IR_MAX_RANK];
    int64_t perm[IR_MAX_RANK], back[IR_MAX_RANK];
    if (!axes.present) axes = (onnx_list){usual, 3, true};
    onnx_axes(n, axes, rank, set);
    if (n->failed) return;
    int kept = order_axes(set, rank, perm);
    for (int i = 0; i < rank; i++) back[perm[i]] = i;
    ir_value *y = ir_transpose(n->b, x, perm);
    if (kept == rank) y = ir_binary(n->b, IR_OP_sub, x, x); /* the mean of one element */
    else y = normalise(n, y, kept, 1e-18);
    n->out[0] = ir_transpose(n->b, y, back);
}

/* ---- LpNormalization ---- */

/* Where the norm is 0, so is the result. */
void onnx_lower_lp_norm(onnx_node *n)
{
    ir_value *x = n->in[0];
    int64_t axis = onnx_axis(n, onnx_int(n, "axis", -1), x->type.rank), p = onnx_int(n, "p", 2);
    if (p != 1 && p != 2) onnx_reject(n, "p is %lld, not 1 or 2", (long long)p);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, p == 1 ? IR_OP_reduce_l1 : IR_OP_reduce_l2, 1, x);
    ir_set_list(node, IR_ATTR(reduce_l1, axes), &axis, 1);
    ir_value *norm = ir_done(n->b, node);
    if (!norm) return;
    ir_value *zero = ir_binary(n->b, IR_OP_equal, norm, ir_scalar_like(n->b, norm, 0));
    ir_value *divisor = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, zero, ir_scalar_like(n->b, norm, 1), norm));
    n->out[0] = ir_binary(n->b, IR_OP_div, x, divisor);
}

/* ---- LRN ---- */

/* The mean of `size` channels around each one, counting channels beyond the ends as 0. */
static ir_value *channel_means(onnx_node *n, ir_value *x, int64_t size)
{
    if (!x) return NULL;
    const ir_type *t = &x->type;
    ir_dim column[4] = {t->dims[0], 1, t->dims[1], ir_dim_product(n->dims, t->dims + 2, t->rank - 2)};
    ir_node *node = ir_new(n->b, IR_OP_avg_pool, 1, ir_reshape(n->b, x, column, 4));
    ir_set_list(node, IR_ATTR(avg_pool, kernel), (int64_t[]){size, 1}, 2);
    ir_set_list(node, IR_ATTR(avg_pool, strides), (int64_t[]){1, 1}, 2);
    ir_set_list(node, IR_ATTR(avg_pool, pads), (int64_t[]){(size - 1) / 2, 0, size / 2, 0}, 4);
    ir_set_list(node, IR_ATTR(avg_pool, dilations), (int64_t[]){1, 1}, 2);
    ir_set_bool(node, IR_ATTR(avg_pool, count_pad), true);
    return ir_reshape_like(n->b, ir_done(n->b, node), t);
}

/* y = x / (bias + alpha * mean of squares)^beta, in f32 for low types, whose range squares exceed. */
void onnx_lower_lrn(onnx_node *n)
{
    double alpha = onnx_float(n, "alpha", (double)1e-4f), beta = onnx_float(n, "beta", 0.75);
    double bias = onnx_float(n, "bias", 1);
    int64_t size = onnx_int(n, "size", 0);
    ir_dtype t = n->in[0]->type.dtype;
    if (size < 1 || size > INT16_MAX) onnx_reject(n, "size is %lld, not in [1, %d]", (long long)size, INT16_MAX);
    expect_image(n);
    if (n->failed) return;
    ir_value *x = ir_dtype_is_low(t) ? ir_cast(n->b, n->in[0], IR_f32) : n->in[0];
    ir_value *mean = channel_means(n, ir_binary(n->b, IR_OP_mul, x, x), size);
    if (!mean) return;
    ir_value *base = ir_binary(n->b, IR_OP_mul, mean, ir_scalar_like(n->b, mean, alpha));
    base = ir_binary(n->b, IR_OP_add, base, ir_scalar_like(n->b, mean, bias));
    ir_value *factor = ir_binary(n->b, IR_OP_pow, base, ir_scalar_like(n->b, mean, -beta));
    n->out[0] = ir_cast(n->b, ir_binary(n->b, IR_OP_mul, x, factor), t);
}
