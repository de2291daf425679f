/* forms_attention.c - generators of Attention and RotaryEmbedding. */
#include "tests/forms/form.h"

typedef struct attention {
    tensor batch, queries, keys; /* shapes with one axis each */
    int64_t heads, key_heads, size, value_size;
    int64_t past; /* length of the cache; 0: none */
    bool is_flat; /* operands with three axes */
    bool is_padded, is_causal;
} attention;

static attention draw_sizes(drawing *w)
{
    attention a = {.key_heads = 1 + choose(w->c, 2), .size = 1 + choose(w->c, 4), .value_size = 1 + choose(w->c, 4)};
    a.heads = a.key_heads * (1 + choose(w->c, 2));
    a.batch = any_shape(w, 1, 1);
    a.queries = any_shape(w, 1, 1);
    a.past = rarely(w->c, 3) ? some_size(w) : 0;
    if (a.past || choose(w->c, 2)) push_size(&a.keys, some_size(w));
    else a.keys = any_shape(w, 1, 1);
    a.is_flat = choose(w->c, 2);
    a.is_padded = w->m.opset >= 24 && !a.past && rarely(w->c, 3);
    a.is_causal = rarely(w->c, 3);
    return a;
}

static void add_heads(drawing *w, const form *f, node *n, const attention *a, int i)
{
    const int64_t heads = i ? a->key_heads : a->heads, size = i == 2 ? a->value_size : a->size;
    const tensor *length = i ? &a->keys : &a->queries;
    tensor shape = {0};
    push_axis(&shape, &a->batch, 0);
    if (!a->is_flat) push_size(&shape, heads);
    push_axis(&shape, length, 0);
    push_size(&shape, a->is_flat ? heads * size : size);
    const tensor t = new_operand(w, f, &shape);
    node_operand(w, n, &t);
}

/* A mask of fewer axes than the scores, or with axes of one element, is repeated along the others. */
static void add_mask(drawing *w, const form *f, node *n, const attention *a)
{
    const int rank = 2 + choose(w->c, 3);
    tensor shape = {0};
    if (rank == 4 && choose(w->c, 2)) push_axis(&shape, &a->batch, 0);
    else if (rank == 4) push_size(&shape, 1);
    if (rank >= 3) push_size(&shape, choose(w->c, 2) ? a->heads : 1);
    push_axis(&shape, &a->queries, 0);
    if (a->past) push_size(&shape, a->past + a->keys.dims[0]);
    else push_axis(&shape, &a->keys, 0);
    const tensor t = choose(w->c, 2) ? new_tensor(w, ONNX_bool, (values){0, 2}, &shape, false)
                                     : new_operand(w, f, &shape);
    node_operand(w, n, &t);
}

static void add_cache(drawing *w, const form *f, node *n, const attention *a)
{
    for (int i = 0; i < 2; i++) {
        tensor shape = {0};
        push_axis(&shape, &a->batch, 0);
        push_size(&shape, a->key_heads);
        push_size(&shape, a->past);
        push_size(&shape, i ? a->value_size : a->size);
        const tensor t = new_operand(w, f, &shape);
        node_operand(w, n, &t);
    }
}

static void add_optional_operands(drawing *w, const form *f, node *n, const attention *a)
{
    if (choose(w->c, 2)) add_mask(w, f, n, a);
    else if (a->past || a->is_padded) node_operand(w, n, NULL);
    if (a->past) add_cache(w, f, n, a);
    if (!a->is_padded) return;
    node_operand(w, n, NULL);
    node_operand(w, n, NULL);
    const tensor t = new_tensor(w, ONNX_int64, (values){0, (double)a->keys.dims[0] + 1}, &a->batch, false);
    node_operand(w, n, &t);
}

/* Returns the number of results. The masked scores are infinite, so that gradient tests do not use them. */
static int draw_results(drawing *w, node *n, const attention *a)
{
    static const int8_t finite[] = {0, 1, 3};
    const int results = rarely(w->c, 4) ? 4 : a->past ? 3 : 1;
    const int mode = w->exact ? CHOOSE(w->c, finite) : choose(w->c, 4);
    if (results == 4) node_int_or_default(w, n, "qk_matmul_output_mode", mode, 0);
    return results;
}

static void draw_attention(drawing *w, const form *f)
{
    node n = {0};
    const attention a = draw_sizes(w);
    for (int i = 0; i < 3; i++) add_heads(w, f, &n, &a, i);
    add_optional_operands(w, f, &n, &a);
    if (a.is_flat) node_int(&n, "q_num_heads", a.heads);
    if (a.is_flat) node_int(&n, "kv_num_heads", a.key_heads);
    node_int_or_default(w, &n, "is_causal", a.is_causal, 0);
    if (rarely(w->c, 3)) node_float(&n, "softcap", 1.5f);
    if (rarely(w->c, 3)) node_float(&n, "scale", 0.3f);
    if (rarely(w->c, 4)) node_int(&n, "softmax_precision", w->exact ? w->exact : ONNX_float32);
    form_add(w, f, &n, draw_results(w, &n, &a));
}

enum { POSITIONS = 7 };

/* Cosines or sines: per position and read by position_ids, or per element of the sequence. */
static void add_rotation(drawing *w, node *n, const tensor *sequence, bool is_indexed, int64_t half)
{
    tensor shape = {0};
    if (is_indexed) push_size(&shape, POSITIONS);
    else shape = *sequence;
    push_size(&shape, half);
    const tensor t = new_tensor(w, w->type, (values){-1, 1}, &shape, true);
    node_operand(w, n, &t);
}

static void draw_rotary_embedding(drawing *w, const form *f)
{
    node n = {0};
    const int64_t heads = 1 + choose(w->c, 3), half = 1 + choose(w->c, 3), rest = rarely(w->c, 3) ? 2 : 0;
    const bool is_flat = choose(w->c, 2), is_indexed = choose(w->c, 2);
    const tensor batch = any_shape(w, 1, 1), length = any_shape(w, 1, 1);
    tensor shape = batch, sequence = batch;
    push_axis(&sequence, &length, 0);
    if (!is_flat) push_size(&shape, heads);
    push_axis(&shape, &length, 0);
    push_size(&shape, (2 * half + rest) * (is_flat ? heads : 1));
    const tensor x = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    for (int i = 0; i < 2; i++) add_rotation(w, &n, &sequence, is_indexed, half);
    if (is_indexed) {
        const tensor ids = new_tensor(w, ONNX_int64, (values){0, POSITIONS}, &sequence, false);
        node_operand(w, &n, &ids);
    }
    if (is_flat || choose(w->c, 2)) node_int(&n, "num_heads", heads);
    if (rest || choose(w->c, 2)) node_int(&n, "rotary_embedding_dim", 2 * half);
    node_int_or_default(w, &n, "interleaved", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

const form forms_attention[] = {
    {"Attention", draw_attention, "f", -2, 2, NULL, false},
    {"RotaryEmbedding", draw_rotary_embedding, "f", -2, 2, NULL, false},
    {0},
};
