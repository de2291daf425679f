/* lower_attention.c - Attention, RotaryEmbedding.
 *
 * Attention: scores = Q K^T; probabilities = softmax(softcap(scores) + mask); Y = probabilities V. Query heads that
 * share a key head are rows of one product, so keys are not repeated. A boolean mask, the causal one, windows and
 * padding are one condition; where it does not hold, a score is -inf. Rows without any key have zero probabilities;
 * their scores are 0 before the softmax, so that derivatives stay finite. */
#include "frontend/lower/lower.h"

#include <math.h>

enum { ATTENTION_PADDED = 24, ATTENTION_WINDOWS = 25 };

typedef struct attention {
    onnx_node *n;
    ir_builder *b;
    ir_value *q, *k, *v;               /* [batch, heads, length, size] */
    ir_dim batch, queries, keys, past; /* lengths; `past` of them are in the cache */
    int64_t heads, key_heads;
    ir_value *padded;  /* i64[batch]: number of keys without padding, or NULL */
    ir_value *allowed; /* bool, broadcasts to the scores: the keys a query sees; NULL: all */
    ir_value *bias;    /* additive mask, or NULL */
    bool empty_rows;   /* a query may see no key */
} attention;

/* ---- operands -------------------------------------------------------------------------------- */

/* [batch, length, heads * size] -> [batch, heads, length, size] */
static ir_value *split_heads(onnx_node *n, ir_value *v, int64_t heads)
{
    const ir_dim size = ir_dim_div(n->dims, v->type.dims[2], heads);
    if (size == IR_DIM_NONE) {
        onnx_reject(n, "%s channels cannot be divided among %lld heads",
                    ir_dim_print(n->dims, v->type.dims[2], n->importer->scratch), (long long)heads);
        return NULL;
    }
    const ir_dim dims[4] = {v->type.dims[0], v->type.dims[1], heads, size};
    return ir_transpose(n->b, ir_reshape(n->b, v, dims, 4), (const int64_t[]){0, 2, 1, 3});
}

static ir_value *merge_heads(onnx_node *n, ir_value *v)
{
    v = ir_transpose(n->b, v, (const int64_t[]){0, 2, 1, 3});
    if (!v) return NULL;
    const ir_dim dims[3] = {v->type.dims[0], v->type.dims[1], ir_dim_mul(n->dims, v->type.dims[2], v->type.dims[3])};
    return ir_reshape(n->b, v, dims, 3);
}

static ir_value *concatenate(ir_builder *b, ir_value *first, ir_value *second, int axis)
{
    ir_node *node = ir_new_array(b, IR_OP_concat, 2, (ir_value *[]){first, second}, 0);
    ir_set_int(node, IR_ATTR(concat, axis), axis);
    return ir_done(b, node);
}

/* The numbers of heads: attributes of operands with three axes, otherwise sizes. */
static void read_heads(attention *a)
{
    onnx_node *n = a->n;
    const bool flat = n->in[0]->type.rank == 3;
    const int64_t heads = onnx_int(n, "q_num_heads", 0), key_heads = onnx_int(n, "kv_num_heads", 0);
    for (int i = 0; i < 3; i++)
        if (n->in[i]->type.rank != (flat ? 3 : 4))
            onnx_reject(n, "Q, K and V must all have 3 or all have 4 dimensions");
    if (n->failed) return;
    a->heads = flat ? heads : onnx_size(n, n->in[0]->type.dims[1], "the number of heads");
    a->key_heads = flat ? key_heads : onnx_size(n, n->in[1]->type.dims[1], "the number of heads");
    if (a->heads < 1 || a->key_heads < 1 || a->heads % a->key_heads)
        onnx_reject(n, "%lld query heads cannot share %lld key heads", (long long)a->heads, (long long)a->key_heads);
}

static ir_value *read_operand(attention *a, int i)
{
    ir_value *v = a->n->in[i];
    return v->type.rank == 4 ? v : split_heads(a->n, v, i ? a->key_heads : a->heads);
}

/* Appends the new keys or values to the cached ones. */
static ir_value *with_past(attention *a, ir_value *v, int i)
{
    ir_value *past = onnx_in(a->n, i);
    if (!past || !v) return v;
    if (past->type.rank == 4) return concatenate(a->b, past, v, 2);
    onnx_reject(a->n, "the past key and value must have 4 dimensions");
    return NULL;
}

static bool read_operands(attention *a)
{
    onnx_node *n = a->n;
    if (!onnx_in(n, 4) != !onnx_in(n, 5)) onnx_reject(n, "only one of past_key and past_value is present");
    a->padded = n->opset >= ATTENTION_PADDED ? onnx_in(n, 6) : NULL;
    if (a->padded && onnx_in(n, 4)) onnx_reject(n, "past_key and nonpad_kv_seqlen exclude each other");
    if (a->padded && a->padded->type.rank != 1) onnx_reject(n, "nonpad_kv_seqlen must have one dimension");
    read_heads(a);
    if (n->failed) return false;
    a->q = read_operand(a, 0);
    a->k = with_past(a, read_operand(a, 1), 4);
    a->v = with_past(a, read_operand(a, 2), 5);
    if (!a->q || !a->k || !a->v) return false;
    a->batch = a->q->type.dims[0];
    a->queries = a->q->type.dims[2];
    a->keys = a->k->type.dims[2];
    a->past = onnx_in(n, 4) ? onnx_in(n, 4)->type.dims[2] : 0;
    return true;
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void allow_only(attention *a, ir_value *condition)
{
    a->allowed = a->allowed ? ir_binary(a->b, IR_OP_and, a->allowed, condition) : condition;
}

/* 0, 1, .. along the last of two axes, or along the first one. */
static ir_value *positions(attention *a, ir_dim count, bool last)
{
    ir_node *node = ir_new(a->b, IR_OP_iota, 0);
    ir_set_list(node, IR_ATTR(iota, size), &count, 1);
    const ir_dim column[2] = {count, 1};
    ir_value *v = ir_done(a->b, node);
    return last ? v : ir_reshape(a->b, v, column, 2);
}

static ir_value *moved(attention *a, ir_value *v, int64_t by)
{
    return by ? ir_binary(a->b, IR_OP_add, v, ir_scalar_like(a->b, v, (double)by)) : v;
}

static ir_value *per_sample(attention *a, ir_value *v)
{
    return ir_reshape(a->b, ir_cast(a->b, v, IR_i64), (const ir_dim[]){a->batch, 1, 1, 1}, 4);
}

/* The position of each query among the keys: its index after the keys that precede the first one. */
static ir_value *query_positions(attention *a)
{
    ir_value *index = positions(a, a->queries, false);
    if (a->padded) {
        ir_value *queries = onnx_dims_value(a->n, &a->queries, 1);
        ir_value *before = ir_binary(a->b, IR_OP_sub, per_sample(a, a->padded), queries);
        return ir_binary(a->b, IR_OP_add, index, before);
    }
    return a->past ? ir_binary(a->b, IR_OP_add, index, onnx_dims_value(a->n, &a->past, 1)) : index;
}

static void mask_positions(attention *a, bool causal, int64_t left, int64_t right)
{
    ir_builder *b = a->b;
    if (causal || left >= 0 || right >= 0) {
        ir_value *key = positions(a, a->keys, true), *query = query_positions(a);
        if (causal) allow_only(a, ir_binary(b, IR_OP_less_or_equal, key, query));
        if (left >= 0) allow_only(a, ir_binary(b, IR_OP_greater_or_equal, key, moved(a, query, -left)));
        if (right >= 0) allow_only(a, ir_binary(b, IR_OP_less_or_equal, key, moved(a, query, right)));
    }
    if (a->padded) {
        ir_value *end = per_sample(a, a->padded);
        allow_only(a, ir_binary(b, IR_OP_less, positions(a, a->keys, true), end));
    }
    a->empty_rows |= a->padded || left >= 0 || right >= 0;
}

/* The mask, extended to all keys with `fill` if it is shorter. */
static ir_value *full_mask(attention *a, ir_value *mask, double fill)
{
    const int rank = mask->type.rank;
    const ir_dim size = mask->type.dims[rank - 1];
    int64_t before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK] = {0};
    if (size == 1 && ir_dim_is_symbolic(a->keys)) onnx_size(a->n, a->keys, "the number of keys of a shorter mask");
    if (ir_dim_is_symbolic(size) || ir_dim_is_symbolic(a->keys) || size >= a->keys) return mask;
    after[rank - 1] = a->keys - size;
    ir_node *node = ir_new(a->b, IR_OP_pad, 2, mask, ir_scalar(a->b, mask->type.dtype, fill));
    ir_set_list(node, IR_ATTR(pad, before), before, rank);
    ir_set_list(node, IR_ATTR(pad, after), after, rank);
    return ir_done(a->b, node);
}

static void read_mask(attention *a)
{
    ir_value *mask = onnx_in(a->n, 3);
    if (!mask) return;
    a->empty_rows = true;
    const bool boolean = mask->type.dtype == IR_bool;
    if (!boolean && mask->type.dtype != a->q->type.dtype)
        onnx_reject(a->n, "the mask is %s, not bool or %s", ir_dtype_name(mask->type.dtype),
                    ir_dtype_name(a->q->type.dtype));
    if (mask->type.rank < 1 || mask->type.rank > 4) onnx_reject(a->n, "the mask has %d dimensions", mask->type.rank);
    if (a->n->failed) return;
    mask = full_mask(a, mask, boolean ? 0 : -INFINITY);
    if (boolean) allow_only(a, mask);
    else a->bias = mask;
}

static ir_value *masked(attention *a, ir_value *scores)
{
    ir_builder *b = a->b;
    if (a->bias) scores = ir_binary(b, IR_OP_add, scores, a->bias);
    if (!a->allowed || !scores) return scores;
    return ir_done(b, ir_new(b, IR_OP_where, 3, a->allowed, scores, ir_scalar_like(b, scores, -INFINITY)));
}

/* bool, 1 along the keys: the queries that see no key, or NULL if there are none. */
static ir_value *empty_rows(attention *a)
{
    ir_builder *b = a->b;
    if (!a->empty_rows) return NULL;
    ir_value *seen = a->allowed;
    if (a->bias) {
        ir_value *open = ir_binary(b, IR_OP_greater, a->bias, ir_scalar_like(b, a->bias, -INFINITY));
        seen = seen ? ir_binary(b, IR_OP_and, seen, open) : open;
    }
    seen = ir_cast(b, seen, IR_f32);
    if (!seen) return NULL;
    ir_value *count = ir_reduce_sum(b, seen, (const int64_t[]){seen->type.rank - 1}, 1, true);
    return ir_binary(b, IR_OP_equal, count, ir_scalar(b, IR_f32, 0));
}

/* ---- Attention ------------------------------------------------------------------------------- */

static ir_value *scaled(attention *a, ir_value *v, double factor)
{
    return factor == 1 ? v : ir_binary(a->b, IR_OP_mul, v, ir_scalar_like(a->b, v, factor));
}

/* The product of x [batch, heads, rows, _] and y [batch, key_heads, _, _]. Heads that share y are rows of a matrix. */
static ir_value *product(attention *a, ir_value *x, ir_value *y, bool transposed)
{
    if (!x || !y) return NULL;
    const ir_dim rows = x->type.dims[2], shared = ir_dim_mul(a->n->dims, rows, a->heads / a->key_heads);
    const ir_dim grouped[4] = {a->batch, a->key_heads, shared, x->type.dims[3]};
    ir_value *p = ir_matmul(a->b, ir_reshape(a->b, x, grouped, 4), y, NULL, false, transposed);
    if (!p) return NULL;
    return ir_reshape(a->b, p, (const ir_dim[]){p->type.dims[0], a->heads, rows, p->type.dims[3]}, 4);
}

static ir_value *capped(attention *a, ir_value *scores, double cap)
{
    if (!(cap > 0)) return scores;
    return scaled(a, ir_unary(a->b, IR_OP_tanh, scaled(a, scores, 1 / cap)), cap);
}

static ir_value *cleared(attention *a, ir_value *rows, ir_value *v)
{
    return rows ? ir_done(a->b, ir_new(a->b, IR_OP_where, 3, rows, ir_scalar_like(a->b, v, 0), v)) : v;
}

static ir_value *softmax(attention *a, ir_value *scores)
{
    const int64_t precision = onnx_int(a->n, "softmax_precision", 0);
    const ir_dtype type = scores->type.dtype, computed = precision ? onnx_type_dtype(precision) : type;
    if (!ir_dtype_is_float(computed)) onnx_reject(a->n, "softmax_precision is %lld", (long long)precision);
    if (a->n->failed) return NULL;
    ir_value *rows = empty_rows(a);
    if (a->empty_rows && !rows) return NULL;
    scores = ir_cast(a->b, cleared(a, rows, scores), computed);
    ir_node *node = ir_new(a->b, IR_OP_softmax, 1, scores);
    ir_set_int(node, IR_ATTR(softmax, axis), -1);
    ir_value *p = ir_done(a->b, node);
    return p ? ir_cast(a->b, cleared(a, rows, p), type) : NULL;
}

/* 1 / sqrt(size) unless the model has another factor; its root is applied to both operands of the product. */
static double root_of_scale(attention *a)
{
    const double size = (double)onnx_size(a->n, a->q->type.dims[3], "the size of a head");
    const double scale = onnx_float(a->n, "scale", 0);
    if (scale < 0) onnx_refuse(a->n, "a negative scale is not supported");
    return sqrt(scale > 0 ? scale : 1 / sqrt(size));
}

static void attend(attention *a)
{
    onnx_node *n = a->n;
    const double root = root_of_scale(a), cap = onnx_float(n, "softcap", 0);
    const int64_t mode = onnx_int(n, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) onnx_reject(n, "qk_matmul_output_mode is %lld, not 0 to 3", (long long)mode);
    if (n->failed) return;
    ir_value *keys = scaled(a, a->k, root), *steps[4] = {product(a, scaled(a, a->q, root), keys, true)};
    if (steps[0]) steps[1] = capped(a, steps[0], cap);
    if (steps[1]) steps[2] = masked(a, steps[1]);
    if (steps[2]) steps[3] = softmax(a, steps[2]);
    ir_value *y = product(a, steps[3], a->v, false);
    if (!y) return;
    n->out[0] = n->in[0]->type.rank == 3 ? merge_heads(n, y) : y;
    if (onnx_result_is_used(n, 1)) n->out[1] = a->k;
    if (onnx_result_is_used(n, 2)) n->out[2] = a->v;
    if (onnx_result_is_used(n, 3)) n->out[3] = steps[mode];
}

void onnx_lower_attention(onnx_node *n)
{
    attention a = {.n = n, .b = n->b};
    const bool causal = onnx_bool(n, "is_causal", false), windows = n->opset >= ATTENTION_WINDOWS;
    const int64_t left = windows ? onnx_int(n, "left_window_size", -1) : -1,
                  right = windows ? onnx_int(n, "right_window_size", -1) : -1;
    if (left < -1 || right < -1 || left > INT32_MAX || right > INT32_MAX)
        onnx_reject(n, "a window size is out of range");
    if (n->failed || !read_operands(&a)) return;
    mask_positions(&a, causal, left, right);
    read_mask(&a);
    if (!n->failed) attend(&a);
}

/* ---- RotaryEmbedding ------------------------------------------------------------------------- */

/* Splits the last axis into parts of these sizes. */
static bool split_last(onnx_node *n, ir_value *x, const ir_dim *sizes, int count, ir_value **parts)
{
    if (!x) return false;
    ir_node *node = ir_new_array(n->b, IR_OP_split, 1, &x, count);
    ir_set_int(node, IR_ATTR(split, axis), x->type.rank - 1);
    ir_set_list(node, IR_ATTR(split, sizes), sizes, count);
    if (!ir_done_all(n->b, node)) return false;
    for (int i = 0; i < count; i++) parts[i] = node->out[i];
    return true;
}

/* The rows of a cache, [batch, length, half], with an axis for the heads. */
static ir_value *rotation(onnx_node *n, ir_value *cache, int64_t half, bool heads_first)
{
    ir_value *ids = onnx_in(n, 3);
    if (cache->type.rank != (ids ? 2 : 3)) onnx_reject(n, "the caches have %d dimensions", cache->type.rank);
    else if (!ir_dim_may_equal(n->dims, cache->type.dims[cache->type.rank - 1], half))
        onnx_reject(n, "the caches must have %lld columns", (long long)half);
    if (n->failed) return NULL;
    if (ids) cache = ir_done(n->b, ir_new(n->b, IR_OP_gather, 2, cache, ids));
    if (!cache || cache->type.rank != 3) {
        onnx_reject(n, "position_ids must have 2 dimensions");
        return NULL;
    }
    const ir_dim *d = cache->type.dims;
    const ir_dim first[4] = {d[0], 1, d[1], d[2]}, second[4] = {d[0], d[1], 1, d[2]};
    return ir_reshape(n->b, cache, heads_first ? first : second, 4);
}

/* x, y -> x * cos - y * sin, x * sin + y * cos */
static void rotate(ir_builder *b, ir_value **pair, ir_value *cosine, ir_value *sine)
{
    ir_value *x = pair[0], *y = pair[1];
    ir_value *y_sine = ir_binary(b, IR_OP_mul, y, sine);
    pair[0] = ir_binary(b, IR_OP_sub, ir_binary(b, IR_OP_mul, x, cosine), y_sine);
    ir_value *y_cosine = ir_binary(b, IR_OP_mul, y, cosine);
    pair[1] = ir_binary(b, IR_OP_add, ir_binary(b, IR_OP_mul, x, sine), y_cosine);
}

/* Pairs are neighbours if interleaved; otherwise they are `half` apart. */
static ir_value *rotated(onnx_node *n, ir_value *x, int64_t half, bool interleaved, bool heads_first)
{
    ir_value *cosine = rotation(n, n->in[1], half, heads_first), *sine = rotation(n, n->in[2], half, heads_first);
    const ir_type whole = x->type;
    const ir_dim *d = whole.dims, sizes[2] = {interleaved ? 1 : half, interleaved ? 1 : half};
    const ir_dim pairs[5] = {d[0], d[1], d[2], half, 2}, flat[4] = {d[0], d[1], d[2], half};
    ir_value *pair[2];
    if (n->failed) return NULL;
    if (!split_last(n, interleaved ? ir_reshape(n->b, x, pairs, 5) : x, sizes, 2, pair)) return NULL;
    for (int i = 0; i < 2; i++) pair[i] = ir_reshape(n->b, pair[i], flat, 4);
    rotate(n->b, pair, cosine, sine);
    const ir_dim column[5] = {d[0], d[1], d[2], half, 1};
    for (int i = 0; i < 2 && interleaved; i++) pair[i] = ir_reshape(n->b, pair[i], column, 5);
    ir_value *y = concatenate(n->b, pair[0], pair[1], interleaved ? 4 : 3);
    return y ? ir_reshape_like(n->b, y, &whole) : NULL;
}

void onnx_lower_rotary_embedding(onnx_node *n)
{
    ir_value *x = n->in[0], *parts[2];
    const ir_type whole = x->type;
    const bool heads_first = whole.rank == 4, interleaved = onnx_bool(n, "interleaved", false);
    const int64_t heads = onnx_int(n, "num_heads", 0);
    int64_t rotating = onnx_int(n, "rotary_embedding_dim", 0);
    if (whole.rank != 3 && whole.rank != 4) onnx_reject(n, "X has %d dimensions, not 3 or 4", whole.rank);
    else if (whole.rank == 3 && heads < 1) onnx_reject(n, "attribute 'num_heads' is missing");
    if (n->failed) return;
    const ir_dim size = heads_first ? whole.dims[3] : ir_dim_div(n->dims, whole.dims[2], heads);
    const int64_t numeric = size == IR_DIM_NONE ? 0 : onnx_size(n, size, "the size of a head");
    if (!rotating) rotating = numeric;
    if (!n->failed && (numeric < 1 || rotating < 2 || rotating % 2 || rotating > numeric))
        onnx_reject(n, "cannot rotate %lld of %lld elements", (long long)rotating, (long long)numeric);
    if (n->failed) return;
    if (!heads_first) x = ir_reshape(n->b, x, (const ir_dim[]){whole.dims[0], whole.dims[1], heads, size}, 4);
    const bool partial = rotating < numeric;
    if (partial && !split_last(n, x, (const ir_dim[]){rotating, numeric - rotating}, 2, parts)) return;
    ir_value *y = x ? rotated(n, partial ? parts[0] : x, rotating / 2, interleaved, heads_first) : NULL;
    if (y && partial) y = concatenate(n->b, y, parts[1], 3);
    if (y) n->out[0] = ir_reshape_like(n->b, y, &whole);
}
