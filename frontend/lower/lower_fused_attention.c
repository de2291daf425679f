/* lower_fused_attention.c - Attention and MultiHeadAttention of com.microsoft, MatMulNBits (other_ops.def).
 *
 * Masks are added to the scores as 0 or mask_filter_value. */
#include "frontend/lower/lower.h"

#include <math.h>

typedef struct fused_attention {
    onnx_node *n;
    ir_value *q, *k, *v; /* [batch, heads, length, size] */
    int64_t heads;
    ir_value *mask, *bias; /* operands, or NULL */
    ir_dim past;
} fused_attention;

/* ---- shapes ------------------------------------------------------------------------------------ */

static ir_value *joined(onnx_node *n, ir_value *a, ir_value *b, int axis)
{
    if (!a || !b) return NULL;
    ir_node *node = ir_new_array(n->b, IR_OP_concat, 2, (ir_value *[]){a, b}, 0);
    ir_set_int(node, IR_ATTR(concat, axis), axis);
    return ir_done(n->b, node);
}

/* Parts of an axis of these sizes. */
static bool cut(onnx_node *n, ir_value *v, int axis, const ir_dim *sizes, int count, ir_value **parts)
{
    if (!v) return false;
    ir_node *node = ir_new_array(n->b, IR_OP_split, 1, &v, count);
    ir_set_int(node, IR_ATTR(split, axis), axis);
    ir_set_list(node, IR_ATTR(split, sizes), sizes, count);
    if (!ir_done_all(n->b, node)) return false;
    for (int i = 0; i < count; i++) parts[i] = node->out[i];
    return true;
}

/* [batch, length, heads * size] -> [batch, heads, length, size] */
static ir_value *by_heads(fused_attention *a, ir_value *v)
{
    onnx_node *n = a->n;
    if (!v) return NULL;
    const ir_dim size = v->type.rank == 3 ? ir_dim_div(n->dims, v->type.dims[2], a->heads) : IR_DIM_NONE;
    if (size == IR_DIM_NONE) onnx_refuse(n, "an operand cannot be divided among %lld heads", (long long)a->heads);
    if (n->failed) return NULL;
    const ir_dim dims[4] = {v->type.dims[0], v->type.dims[1], a->heads, size};
    return ir_transpose(n->b, ir_reshape(n->b, v, dims, 4), (const int64_t[]){0, 2, 1, 3});
}

/* ---- masks ------------------------------------------------------------------------------------- */

/* 0 where the condition holds, `otherwise` elsewhere */
static ir_value *penalty(onnx_node *n, ir_value *allowed, ir_dtype type, double otherwise)
{
    ir_value *zero = ir_scalar(n->b, type, 0), *low = ir_scalar(n->b, type, otherwise);
    return allowed ? ir_done(n->b, ir_new(n->b, IR_OP_where, 3, allowed, zero, low)) : NULL;
}

/* The number of keys of each sample, or a number per key (and query) that is positive if it counts: a condition on
 * [batch, 1, queries or 1, keys]. */
static ir_value *allowed_keys(fused_attention *a)
{
    onnx_node *n = a->n;
    ir_value *mask = a->mask;
    const ir_dim batch = a->q->type.dims[0], keys = a->k->type.dims[2], *d = mask->type.dims;
    if (mask->type.rank == 1 && ir_dim_may_equal(n->dims, d[0], batch)) {
        ir_value *ends = ir_reshape(n->b, mask, (const ir_dim[]){batch, 1, 1, 1}, 4);
        return ir_binary(n->b, IR_OP_less, onnx_iota(n, mask->type.dtype, keys), ends);
    }
    if (mask->type.rank == 2) mask = ir_reshape(n->b, mask, (const ir_dim[]){d[0], 1, 1, d[1]}, 4);
    else if (mask->type.rank == 3) mask = ir_reshape(n->b, mask, (const ir_dim[]){d[0], 1, d[1], d[2]}, 4);
    else onnx_refuse(n, "a mask of %d dimensions is not supported", mask->type.rank);
    return n->failed ? NULL : ir_binary(n->b, IR_OP_greater, mask, ir_scalar_like(n->b, mask, 0));
}

/* The keys up to the query itself: a condition on [queries, keys]. */
static ir_value *seen_keys(fused_attention *a)
{
    onnx_node *n = a->n;
    const ir_dim queries = a->q->type.dims[2], column[2] = {queries, 1};
    ir_value *last = ir_reshape(n->b, onnx_iota(n, IR_i64, queries), column, 2);
    if (a->past) last = ir_binary(n->b, IR_OP_add, last, onnx_dims_value(n, &a->past, 1));
    return ir_binary(n->b, IR_OP_less_or_equal, onnx_iota(n, IR_i64, a->k->type.dims[2]), last);
}

/* The masks are summed before they are added, as onnxruntime does: where all keys are masked, the rounding shows. */
static ir_value *masked(fused_attention *a, ir_value *scores, bool causal)
{
    onnx_node *n = a->n;
    const double filter = onnx_float(n, "mask_filter_value", -10000);
    if (!scores) return NULL;
    const ir_dtype type = scores->type.dtype;
    ir_value *sum = a->mask ? penalty(n, allowed_keys(a), type, filter) : a->bias;
    if (a->mask && a->bias) sum = ir_binary(n->b, IR_OP_add, sum, a->bias);
    if (sum) scores = ir_binary(n->b, IR_OP_add, scores, sum);
    if (!causal || !scores) return scores;
    ir_value *never = ir_scalar(n->b, type, -INFINITY);
    return ir_done(n->b, ir_new(n->b, IR_OP_where, 3, seen_keys(a), scores, never));
}

/* ---- attention --------------------------------------------------------------------------------- */

/* softmax(q k^T * scale + masks) v as [batch, length, heads * size] */
static ir_value *attend(fused_attention *a)
{
    onnx_node *n = a->n;
    const bool causal = onnx_bool(n, "unidirectional", false);
    const int64_t size = a->q ? onnx_size(n, a->q->type.dims[3], "the size of a head") : 1;
    double scale = onnx_float(n, "scale", 0);
    if (n->failed || !a->q || !a->k || !a->v) return NULL;
    if (scale == 0) scale = 1 / sqrt((double)size);
    ir_value *q = ir_binary(n->b, IR_OP_mul, a->q, ir_scalar_like(n->b, a->q, scale));
    ir_value *scores = masked(a, ir_matmul(n->b, q, a->k, NULL, false, true), causal);
    if (!scores) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_softmax, 1, scores);
    ir_set_int(node, IR_ATTR(softmax, axis), -1);
    ir_value *y = ir_matmul(n->b, ir_done(n->b, node), a->v, NULL, false, false);
    if (y) y = ir_transpose(n->b, y, (const int64_t[]){0, 2, 1, 3});
    if (!y) return NULL;
    const ir_dim *d = y->type.dims, dims[3] = {d[0], d[1], ir_dim_mul(n->dims, d[2], d[3])};
    return ir_reshape(n->b, y, dims, 3);
}

static int64_t read_heads(onnx_node *n)
{
    const int64_t heads = onnx_int(n, "num_heads", 0);
    if (heads < 1 || heads > INT32_MAX) onnx_reject(n, "num_heads is %lld", (long long)heads);
    return heads;
}

/* [1, ..] of two: the cached keys and values, and the results that they become. */
static ir_value *half_of(onnx_node *n, ir_value *pair, int i)
{
    ir_value *parts[2];
    if (!cut(n, pair, 0, (const ir_dim[]){1, 1}, 2, parts)) return NULL;
    return ir_reshape(n->b, parts[i], pair->type.dims + 1, pair->type.rank - 1);
}

static ir_value *stacked(onnx_node *n, ir_value *a, ir_value *b)
{
    if (!a || !b) return NULL;
    const ir_dim *d = a->type.dims, dims[5] = {1, d[0], d[1], d[2], d[3]};
    ir_value *second = ir_reshape(n->b, b, dims, 5);
    return joined(n, ir_reshape(n->b, a, dims, 5), second, 0);
}

/* The sizes of all queries, keys and values: an attribute, or thirds. */
static bool read_sizes(onnx_node *n, ir_dim total, ir_dim *sizes)
{
    const onnx_list given = onnx_ints(n, "qkv_hidden_sizes");
    if (given.present && given.count != 3) onnx_reject(n, "qkv_hidden_sizes has %d numbers", given.count);
    for (int i = 0; i < 3 && !n->failed; i++) sizes[i] = given.present ? given.items[i] : ir_dim_div(n->dims, total, 3);
    if (!n->failed && sizes[0] == IR_DIM_NONE) onnx_reject(n, "the weights are not those of three products");
    return !n->failed;
}

/* input, weights, bias, mask, past keys and values, addend of the scores. */
void onnx_lower_fused_attention(onnx_node *n)
{
    enum { X, WEIGHTS, BIAS, MASK, PAST, ADDED, PAST_LENGTH };
    fused_attention a = {.n = n, .heads = read_heads(n), .mask = onnx_in(n, MASK), .bias = onnx_in(n, ADDED)};
    ir_value *past = onnx_in(n, PAST), *parts[3];
    ir_dim sizes[3];
    if (onnx_bool(n, "do_rotary", false)) onnx_refuse(n, "do_rotary is not supported");
    if (onnx_bool(n, "past_present_share_buffer", false)) onnx_refuse(n, "past_present_share_buffer is not supported");
    onnx_ignore(n, "rotary_embedding_dim");
    if (n->in[X]->type.rank != 3 || n->in[WEIGHTS]->type.rank != 2)
        onnx_reject(n, "operands of other ranks than 3 and 2");
    if (past && past->type.rank != 5) onnx_reject(n, "past has %d dimensions, not 5", past->type.rank);
    if (n->failed || !read_sizes(n, n->in[WEIGHTS]->type.dims[1], sizes)) return;
    ir_value *all = ir_matmul(n->b, n->in[X], n->in[WEIGHTS], onnx_in(n, BIAS), false, false);
    if (!cut(n, all, 2, sizes, 3, parts)) return;
    a.q = by_heads(&a, parts[0]), a.k = by_heads(&a, parts[1]), a.v = by_heads(&a, parts[2]);
    if (past) {
        a.past = past->type.dims[3];
        a.k = joined(n, half_of(n, past, 0), a.k, 2);
        a.v = joined(n, half_of(n, past, 1), a.v, 2);
    }
    n->out[0] = attend(&a);
    if (onnx_result_is_used(n, 1)) n->out[1] = stacked(n, a.k, a.v);
}

static ir_dim length_of(const ir_value *v) { return v->type.dims[v->type.rank == 4 ? 2 : 1]; }

/* query, key, value, their biases as one, mask, addend of the scores, past key, past value. */
void onnx_lower_multi_head_attention(onnx_node *n)
{
    enum { QUERY, KEY, VALUE, BIAS, MASK, ADDED, PAST_KEY, PAST_VALUE, PAST_LENGTH };
    fused_attention a = {.n = n, .heads = read_heads(n), .mask = onnx_in(n, MASK), .bias = onnx_in(n, ADDED)};
    ir_value *parts[3] = {n->in[QUERY], onnx_in(n, KEY), onnx_in(n, VALUE)}, *biases[3] = {NULL};
    if (!parts[1] || !parts[2]) onnx_refuse(n, "packed keys and values are not supported");
    if (onnx_bool(n, "unidirectional", false) && parts[1] &&
        !ir_dim_may_equal(n->dims, parts[0]->type.dims[1], length_of(parts[1])))
        onnx_refuse(n, "unidirectional attention to another number of keys is not supported");
    if (onnx_in(n, PAST_LENGTH) || onnx_in(n, PAST_LENGTH + 1)) onnx_refuse(n, "a shared cache is not supported");
    if (!onnx_in(n, PAST_KEY) != !onnx_in(n, PAST_VALUE))
        onnx_reject(n, "only one of past_key and past_value is present");
    for (int i = 0; i < 3 && !n->failed; i++)
        if (parts[i]->type.rank != 3 && (!i || parts[i]->type.rank != 4)) onnx_refuse(n, "packed operands");
    if (n->failed) return;
    if (onnx_in(n, BIAS)) {
        ir_dim sizes[3];
        for (int i = 0; i < 3; i++)
            sizes[i] = parts[i]->type.rank == 3 ? parts[i]->type.dims[2] : parts[0]->type.dims[2];
        if (!cut(n, n->in[BIAS], 0, sizes, 3, biases)) return;
    }
    ir_value **to[3] = {&a.q, &a.k, &a.v};
    for (int i = 0; i < 3; i++) {
        const bool split = parts[i]->type.rank == 4; /* by heads, without a bias */
        ir_value *v = biases[i] && !split ? ir_binary(n->b, IR_OP_add, parts[i], biases[i]) : parts[i];
        *to[i] = split ? v : by_heads(&a, v);
    }
    if (onnx_in(n, PAST_KEY)) {
        a.past = n->in[PAST_KEY]->type.rank == 4 ? n->in[PAST_KEY]->type.dims[2] : 0;
        a.k = joined(n, n->in[PAST_KEY], a.k, 2);
        a.v = joined(n, n->in[PAST_VALUE], a.v, 2);
    }
    n->out[0] = attend(&a);
    if (onnx_result_is_used(n, 1)) n->out[1] = a.k;
    if (onnx_result_is_used(n, 2)) n->out[2] = a.v;
}

/* ---- MatMulNBits ------------------------------------------------------------------------------- */

/* Numbers of 4 bits, the lower half of each byte first, as bytes; the last axis has `count` of them. */
static ir_value *unpacked(onnx_node *n, ir_value *v, int64_t count)
{
    ir_type column = v->type, flat = v->type;
    column.dims[column.rank++] = 1;
    flat.dims[flat.rank - 1] = ir_dim_mul(n->dims, flat.dims[flat.rank - 1], 2);
    ir_node *high = ir_new(n->b, IR_OP_shift, 2, v, ir_scalar(n->b, IR_u8, 4));
    ir_set_bool(high, IR_ATTR(shift, right), true);
    ir_value *low = ir_binary(n->b, IR_OP_bit_and, v, ir_scalar(n->b, IR_u8, 15));
    ir_value *seconds = ir_reshape_like(n->b, ir_done(n->b, high), &column);
    ir_value *pairs = joined(n, ir_reshape_like(n->b, low, &column), seconds, v->type.rank);
    ir_value *all = ir_reshape_like(n->b, pairs, &flat), *parts[2];
    if (!all || all->type.dims[all->type.rank - 1] == count) return all;
    const ir_dim sizes[2] = {count, all->type.dims[all->type.rank - 1] - count};
    return cut(n, all, all->type.rank - 1, sizes, 2, parts) ? parts[0] : NULL;
}

/* A, B [N, blocks, bytes], scales and zero points by block, order of the columns, bias. */
void onnx_lower_matmul_nbits(onnx_node *n)
{
    enum { A, B, SCALES, ZEROS, ORDER, BIAS };
    const int64_t columns = onnx_int(n, "K", 0), rows = onnx_int(n, "N", 0), bits = onnx_int(n, "bits", 4),
                  block = onnx_int(n, "block_size", 0);
    onnx_ignore(n, "accuracy_level");
    onnx_ignore(n, "weight_prepacked");
    if (bits != 4 && bits != 8) onnx_refuse(n, "%lld bits are not supported", (long long)bits);
    if (onnx_in(n, ORDER)) onnx_refuse(n, "g_idx is not supported");
    if (columns < 1 || rows < 1 || block < 16 || columns > INT32_MAX || rows > INT32_MAX || block > INT32_MAX)
        onnx_reject(n, "N, K or block_size is out of range");
    if (n->failed) return;
    const int64_t blocks = (columns + block - 1) / block;
    ir_value *zeros = onnx_in(n, ZEROS), *b = n->in[B], *parts[2];
    const ir_dtype type = n->in[A]->type.dtype;
    const ir_dim by_byte[3] = {rows, blocks, block * bits / 8}, by_block[3] = {rows, blocks, 1};
    b = ir_reshape(n->b, b, by_byte, 3);
    if (b && bits == 4) b = unpacked(n, b, block);
    if (zeros && zeros->type.dtype == IR_u8) {
        const ir_dim packed[2] = {rows, bits == 4 ? (blocks + 1) / 2 : blocks};
        zeros = ir_reshape(n->b, zeros, packed, 2);
        if (zeros && bits == 4) zeros = unpacked(n, zeros, blocks);
    }
    zeros = zeros ? ir_reshape(n->b, ir_cast(n->b, zeros, type), by_block, 3)
                  : ir_scalar(n->b, type, (double)(1 << (bits - 1)));
    ir_value *scales = ir_reshape(n->b, onnx_held_scale(n, SCALES), by_block, 3);
    if (!b || !zeros || !scales) return;
    ir_value *w = ir_binary(n->b, IR_OP_mul, ir_binary(n->b, IR_OP_sub, ir_cast(n->b, b, type), zeros), scales);
    w = ir_reshape(n->b, w, (const ir_dim[]){rows, blocks * block}, 2);
    if (w && blocks * block > columns)
        w = cut(n, w, 1, (const ir_dim[]){columns, blocks * block - columns}, 2, parts) ? parts[0] : NULL;
    if (w) n->out[0] = ir_matmul(n->b, n->in[A], w, onnx_in(n, BIAS), false, true);
}
