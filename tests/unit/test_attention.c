/* test_attention.c - Attention against its definition, computed in double: heads that share keys, cached keys, padding,
 * windows, masks of both kinds, queries that see no key; as separate ops, and as one op where pass attention makes it. */
#include "runtime/inspect/check.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/unit/import_fixture.h"

#include <math.h>

enum { BATCH = 2, SIZE = 4, VALUE_SIZE = 3, MAX = 4096 };
typedef enum mask_kind { NO_MASK, BOOLEAN, ADDITIVE } mask_kind;

typedef struct row {
    int opset, heads, key_heads, queries, keys, past;
    bool flat, causal, padded;
    mask_kind mask;
    int left, right;
    float cap, scale;
} row;

/* clang-format off */
static const row rows[] = { /* opset, heads, of keys, queries, keys, past; flat, causal, padded; mask; window; cap, scale */
    {23, 2, 2, 3, 5, 0, false, false, false, NO_MASK,  -1, -1, 0, 0},
    {23, 4, 2, 3, 3, 0, true,  true,  false, NO_MASK,  -1, -1, 0, 0},
    {23, 3, 1, 2, 2, 3, false, true,  false, ADDITIVE, -1, -1, 0, 0},
    {23, 2, 2, 4, 4, 0, false, false, false, BOOLEAN,  -1, -1, 0.8f, 0.3f},
    {24, 2, 1, 3, 6, 0, true,  true,  true,  NO_MASK,  -1, -1, 0, 0},
    {24, 1, 1, 2, 4, 0, false, false, true,  BOOLEAN,  -1, -1, 0, 0},
    {25, 2, 2, 5, 5, 0, false, false, false, NO_MASK,   1,  0, 0, 0},
    {25, 2, 2, 5, 2, 0, false, false, false, ADDITIVE,  1, -1, 0, 0},
    {25, 2, 1, 2, 2, 4, false, true,  false, NO_MASK,   2,  1, 0, 0},
};
/* clang-format on */

/* ---- operands -------------------------------------------------------------------------------- */

typedef struct data {
    float q[MAX], k[MAX], v[MAX], past_k[MAX], past_v[MAX], bias[MAX];
    bool mask[MAX];
    int64_t padded[BATCH];
} data;

static uint32_t state_of_random;

static double next(void)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (double)(state_of_random >> 8) / (1 << 24);
}

static void draw(float *to, int n)
{
    for (int i = 0; i < n; i++) to[i] = (float)(2 * next() - 1);
}

/* Query 0 of sample 0 sees no key in both kinds of masks. */
static void draw_all(const row *r, data *d)
{
    const int total = r->past + r->keys;
    draw(d->q, BATCH * r->heads * r->queries * SIZE);
    draw(d->k, BATCH * r->key_heads * r->keys * SIZE);
    draw(d->v, BATCH * r->key_heads * r->keys * VALUE_SIZE);
    draw(d->past_k, BATCH * r->key_heads * r->past * SIZE);
    draw(d->past_v, BATCH * r->key_heads * r->past * VALUE_SIZE);
    draw(d->bias, BATCH * r->queries * total);
    for (int i = 0; i < BATCH * r->queries * total; i++) {
        d->mask[i] = next() < 0.6 && i >= total;
        if (i < total || next() < 0.3) d->bias[i] = -INFINITY;
    }
    d->padded[0] = 1, d->padded[1] = r->keys;
}

static const float *element(const row *r, const float *of, int heads, int length, int size, int b, int h, int i)
{
    return of + (size_t)(r->flat ? ((b * length + i) * heads + h) * size : ((b * heads + h) * length + i) * size);
}

/* ---- the definition -------------------------------------------------------------------------- */

static const float *key_of(const row *r, const float *past, const float *new, int size, int b, int h, int j)
{
    if (j < r->past) return past + (size_t)((b * r->key_heads + h) * r->past + j) * (size_t)size;
    return element(r, new, r->key_heads, r->keys, size, b, h, j - r->past);
}

static bool sees(const row *r, const data *d, int b, int i, int j)
{
    const int64_t position = i + (r->padded ? d->padded[b] - r->queries : r->past);
    bool open = (!r->causal || j <= position) && (!r->padded || j < d->padded[b]);
    open = open && (r->left < 0 || j >= position - r->left) && (r->right < 0 || j <= position + r->right);
    return open && (r->mask != BOOLEAN || d->mask[(b * r->queries + i) * (r->past + r->keys) + j]);
}

static double score(const row *r, const data *d, int b, int h, int i, int j)
{
    const float *q = element(r, d->q, r->heads, r->queries, SIZE, b, h, i),
                *k = key_of(r, d->past_k, d->k, SIZE, b, h / (r->heads / r->key_heads), j);
    double sum = 0, cap = (double)r->cap;
    for (int c = 0; c < SIZE; c++) sum += (double)q[c] * (double)k[c];
    sum *= r->scale > 0 ? (double)r->scale : 1 / sqrt(SIZE);
    if (cap > 0) sum = cap * tanh(sum / cap);
    if (r->mask == ADDITIVE) sum += (double)d->bias[(b * r->queries + i) * (r->past + r->keys) + j];
    return sees(r, d, b, i, j) ? sum : -INFINITY;
}

static double expected(const row *r, const data *d, int b, int h, int i, int c)
{
    double total = 0, sum = 0;
    for (int j = 0; j < r->past + r->keys; j++) {
        const double p = exp(score(r, d, b, h, i, j));
        total += p;
        sum += p * (double)key_of(r, d->past_v, d->v, VALUE_SIZE, b, h / (r->heads / r->key_heads), j)[c];
    }
    return total > 0 ? sum / total : 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char *dims_of(int heads, int length, int size, bool flat)
{
    static char texts[8][64];
    static int at;
    char *text = texts[at++ % 8];
    if (flat) snprintf(text, sizeof texts[0], "%d,%d,%d", BATCH, length, heads * size);
    else snprintf(text, sizeof texts[0], "%d,%d,%d,%d", BATCH, heads, length, size);
    return text;
}

static wire make_model(const row *r, const data *d)
{
    model m = model_new(r->opset);
    const size_t cells = (size_t)(BATCH * r->queries * (r->past + r->keys));
    const char *mask = dims_of(1, r->queries, r->past + r->keys, false);
    model_input(&m, "q", ONNX_float32, dims_of(r->heads, r->queries, SIZE, r->flat));
    model_input(&m, "k", ONNX_float32, dims_of(r->key_heads, r->keys, SIZE, r->flat));
    model_input(&m, "v", ONNX_float32, dims_of(r->key_heads, r->keys, VALUE_SIZE, r->flat));
    model_input(&m, "pk", ONNX_float32, dims_of(r->key_heads, r->past, SIZE, false));
    model_input(&m, "pv", ONNX_float32, dims_of(r->key_heads, r->past, VALUE_SIZE, false));
    if (r->mask == BOOLEAN) model_tensor(&m, tensor_new("m", ONNX_bool, mask, d->mask, cells));
    if (r->mask == ADDITIVE) model_tensor(&m, tensor_new("m", ONNX_float32, mask, d->bias, cells * sizeof *d->bias));
    model_tensor(&m, tensor_new("n", ONNX_int64, "2", d->padded, sizeof d->padded));
    char names[32];
    snprintf(names, sizeof names, "q,k,v,%s,%s,%s", r->mask ? "m" : "", r->past ? "pk,pv" : ",", r->padded ? "n" : "");
    node n = node_new("Attention", names, "y");
    if (r->flat) node_int(&n, "q_num_heads", r->heads), node_int(&n, "kv_num_heads", r->key_heads);
    if (r->causal) node_int(&n, "is_causal", 1);
    if (r->cap > 0) node_float(&n, "softcap", r->cap);
    if (r->scale > 0) node_float(&n, "scale", r->scale);
    if (r->left >= 0) node_int(&n, "left_window_size", r->left);
    if (r->right >= 0) node_int(&n, "right_window_size", r->right);
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, NULL);
    return model_finish(&m);
}

static rt_tensor input_of(const ir_module *m, const char *name, const float *values)
{
    const ir_type *type = &ir_graph_find_input(ir_graph_find(m, "forward"), name)->type;
    rt_tensor t = {.name = name, .dtype = IR_f32, .rank = type->rank, .data = (void *)(uintptr_t)values};
    memcpy(t.dims, type->dims, (size_t)type->rank * sizeof *t.dims);
    return t;
}

static bool has_one_op(const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->op == IR_OP_attention) return true;
    return false;
}

/* Lengths without padding are constants here, so which rows see no key is one, too; such an attention stays. */
static void fuse(scratch *t, const row *r, ir_module *m)
{
    compile_options o = compile_options_default();
    o.attention = true;
    assert_int_equal(test_pass(m, "attention", &o, t->d), AMPC_OK);
    if (!r->padded) assert_int_equal(has_one_op(ir_graph_find(m, "forward")), r->cap == 0);
}

/* No query without keys may be a finding. An additive mask is a parameter here, whose infinities are findings. */
static void check_finite(scratch *t, rt_session *s, const ir_module *m, const rt_tensor *inputs)
{
    rt_check *c;
    double scale;
    assert_int_equal(rt_check_open(s, m, &(rt_check_options){0}, t->d, &c), AMPC_OK);
    if (rt_check_run(c, ir_graph_find(m, "forward"), inputs, 5, t->d, &scale) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    const rt_checked *found = rt_check_found(c);
    if (found) fail_msg("%s is not finite", found->value->name);
    rt_check_close(c);
}

static void check(scratch *t, const row *r, const data *d, bool fused)
{
    ir_module *m = NULL;
    rt_session *s;
    if (import_bytes(t, make_model(r, d), NULL, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    if (fused) fuse(t, r, m);
    const rt_tensor inputs[] = {input_of(m, "q", d->q), input_of(m, "k", d->k), input_of(m, "v", d->v),
                                input_of(m, "pk", d->past_k), input_of(m, "pv", d->past_v)};
    assert_int_equal(rt_session_open(m, &(rt_session_options){.threads = 1}, t->d, &s), AMPC_OK);
    if (rt_session_run(s, "forward", inputs, 5, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    const float *y = rt_session_output(s, "y")->data;
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < r->heads; h++)
            for (int i = 0; i < r->queries; i++)
                for (int c = 0; c < VALUE_SIZE; c++) {
                    const double is = (double)element(r, y, r->heads, r->queries, VALUE_SIZE, b, h, i)[c];
                    if (!(fabs(is - expected(r, d, b, h, i, c)) < 1e-5))
                        fail_msg("row %d, element %d %d %d %d: %g, not %g", (int)(r - rows), b, h, i, c, is,
                                 expected(r, d, b, h, i, c));
                }
    if (r->mask != ADDITIVE) check_finite(t, s, m, inputs);
    rt_session_close(s);
    ir_module_free(m);
}

TEST_SCRATCH(test_values)
{
    static data d;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        state_of_random = (uint32_t)i;
        draw_all(&rows[i], &d);
        check(t, &rows[i], &d, false);
        check(t, &rows[i], &d, true);
    }
}
