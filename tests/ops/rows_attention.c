/* rows_attention.c - attention and its gradient, from the definition. */
#include "tests/ops/ops.h"
#include "ir/base/philox.h"
#include "tests/test.h"
#include "tests/tier.h"

#include <math.h>

typedef enum masking { NO_MASK, FULL, KEYS, QUERIES, HEADS, ONE } masking;

typedef struct shape {
    int64_t batch, heads, shared; /* heads of q for each one of k and v */
    int64_t queries, keys, depth, width;
    masking mask;
    bool boolean, causal;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 5, 5, 4, 4, NO_MASK, false, false},       {2, 3, 1, 17, 17, 64, 64, NO_MASK, false, true},
    {2, 2, 2, 17, 19, 8, 5, NO_MASK, false, false},     {1, 2, 3, 33, 21, 16, 32, FULL, false, true},
    {2, 1, 1, 64, 64, 32, 32, FULL, true, false},       {2, 2, 1, 65, 129, 64, 48, KEYS, true, false},
    {2, 2, 1, 63, 128, 1, 1, KEYS, false, true},        {1, 2, 1, 16, 40, 33, 31, QUERIES, true, false},
    {2, 2, 2, 7, 9, 3, 17, HEADS, false, false},        {3, 1, 1, 2, 6, 256, 255, ONE, false, true},
    {1, 2, 1, 1, 1000, 64, 64, NO_MASK, false, true},   {1, 1, 1, 127, 1000, 16, 16, FULL, true, true},
    {1, 1, 1, 1000, 127, 20, 64, NO_MASK, false, true}, {1, 1, 1, 130, 257, 128, 64, HEADS, true, false},
    {1, 1, 1, 0, 3, 4, 4, NO_MASK, false, false},       {1, 2, 1, 3, 0, 4, 4, NO_MASK, false, false},
    {2, 1, 1, 3, 4, 0, 2, KEYS, true, false},           {2, 1, 1, 3, 4, 2, 0, NO_MASK, false, false},
    {0, 2, 2, 3, 4, 2, 2, NO_MASK, false, false},       {1, 0, 1, 3, 4, 2, 2, NO_MASK, false, false},
    {1, 1, 2, 33, 31, 257, 20, NO_MASK, false, true},   {1, 2, 1, 31, 33, 20, 300, KEYS, true, false},
    {1, 1, 1, 32, 32, 32, 33, FULL, false, false},      {1, 1, 1, 3, 70, 129, 130, KEYS, false, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const struct dropout {
    shape shape;
    double ratio; /* of the probabilities that are dropped */
} dropouts[] = {
    {{1, 2, 2, 65, 68, 16, 24, NO_MASK, false, true}, 0.5},  {{2, 1, 2, 33, 67, 33, 31, KEYS, true, false}, 0.1},
    {{2, 2, 1, 70, 132, 100, 128, FULL, false, false}, 0.3}, {{1, 1, 1, 5, 64, 8, 8, NO_MASK, false, false}, 0.999},
    {{1, 2, 1, 17, 36, 200, 9, QUERIES, true, true}, 0.25},  {{1, 1, 2, 3, 1, 300, 4, NO_MASK, false, false}, 0.5},
};
enum { DROPOUTS = sizeof dropouts / sizeof *dropouts };

static const shape *now;

/* The item of k and v that item i of q reads. */
static int64_t keys_of(int64_t i) { return i / now->shared; }
static int64_t items(void) { return now->batch * now->heads * now->shared; }

/* The score of key j for query i, -infinity if it is masked out. */
static double score(const ops_case *c, int64_t item, int64_t i, int64_t j)
{
    const int64_t d = now->depth;
    const double *q = c->x[0] + (item * now->queries + i) * d, *k = c->x[1] + (keys_of(item) * now->keys + j) * d;
    double sum = 0;
    for (int64_t l = 0; l < d; l++) sum += q[l] * k[l];
    sum *= c->attr[IR_ATTR(attention, scale)].f;
    if (now->mask != NO_MASK) {
        const k_view scores = {.rank = 4, .dims = {now->batch, now->heads * now->shared, now->queries, now->keys}};
        const double m = c->x[3][case_broadcast(&c->in[3], &scores, (item * now->queries + i) * now->keys + j)];
        if (now->boolean ? m == 0 : m == -INFINITY) return -INFINITY;
        if (!now->boolean) sum += m;
    }
    return now->causal && j > i + now->keys - now->queries ? -INFINITY : sum;
}

/* What dropout multiplies the probability of key j for a query, row `row` of q, by. */
static double factor(const ops_case *c, int64_t row, int64_t j)
{
    const double *rng = c->x[c->op == IR_OP_attention ? IR_IN(attention, rng) : IR_IN(attention_grad, rng)];
    const uint64_t stream = ((uint64_t)c->attr[IR_ATTR(attention, stream)].i + 1) << 32;
    const double ratio = c->attr[IR_ATTR(attention, ratio)].f;
    if (ratio == 0) return 1;
    const uint32_t word = philox_word((uint64_t)rng[0], stream | (uint32_t)rng[1], (uint64_t)(row * now->keys + j));
    return word < ratio * 0x1p32 ? 0 : 1 / (1 - ratio);
}

/* Computes y and the two parts of lse. */
static void attend(const ops_case *c, double *y, double *lse)
{
    double *p = calloc((size_t)now->keys + 1, sizeof *p);
    for (int64_t row = 0; row < items() * now->queries; row++) {
        const int64_t item = row / now->queries;
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < now->keys; j++) {
            p[j] = score(c, item, row % now->queries, j);
            most = fmax(most, p[j]);
        }
        for (int64_t j = 0; j < now->keys; j++) sum += p[j] = exp(p[j] - (most == -INFINITY ? 0 : most));
        for (int64_t j = 0; j < now->keys; j++) p[j] *= factor(c, row, j);
        lse[2 * row] = most;
        lse[2 * row + 1] = sum == 0 ? 0 : log(sum);
        for (int64_t e = 0; e < now->width; e++) {
            double total = 0;
            for (int64_t j = 0; j < now->keys; j++)
                total += p[j] * c->x[2][(keys_of(item) * now->keys + j) * now->width + e];
            y[row * now->width + e] = sum == 0 ? 0 : total / sum;
        }
    }
    free(p);
}

static void attention_reference(ops_case *c) { attend(c, c->expected[0], c->expected[1]); }

enum { Y = IR_IN(attention_grad, y), LSE = IR_IN(attention_grad, lse), DY = IR_IN(attention_grad, dy) };

/* The probability of key j for a query, row `row` of q, before dropout, and its gradient. */
static double probability(const ops_case *c, int64_t row, int64_t j, double *slope)
{
    const double s = score(c, row / now->queries, row % now->queries, j), *lse = c->x[LSE] + 2 * row;
    const double *dy = c->x[DY] + row * now->width, *v = c->x[2];
    v += (keys_of(row / now->queries) * now->keys + j) * now->width;
    *slope = 0;
    for (int64_t e = 0; e < now->width; e++) *slope += dy[e] * v[e];
    *slope *= factor(c, row, j);
    return s == -INFINITY ? 0 : exp(s - lse[0] - lse[1]);
}

static void attention_grad_reference(ops_case *c)
{
    const int64_t depth = now->depth, width = now->width;
    const double scale = c->attr[IR_ATTR(attention, scale)].f;
    for (int g = 0; g < 3; g++) memset(c->expected[g], 0, (size_t)k_count(&c->in[g]) * sizeof(double));
    for (int64_t row = 0; row < items() * now->queries; row++) {
        const double *dy = c->x[DY] + row * width;
        const bool dots = now->keys > 64 || ops_on->device_ops; /* as the kernel does: y is rounded */
        double delta = 0, dp;
        for (int64_t e = 0; e < width && dots; e++) delta += dy[e] * c->x[Y][row * width + e];
        for (int64_t j = 0; j < now->keys && !dots; j++) {
            const double p = probability(c, row, j, &dp);
            delta += p * dp;
        }
        for (int64_t j = 0; j < now->keys; j++) {
            const double p = probability(c, row, j, &dp), dropped = p * factor(c, row, j);
            const int64_t at = keys_of(row / now->queries) * now->keys + j;
            for (int64_t e = 0; e < width; e++) c->expected[2][at * width + e] += dropped * dy[e];
            for (int64_t d = 0; d < depth; d++) {
                c->expected[0][row * depth + d] += p * (dp - delta) * scale * c->x[1][at * depth + d];
                c->expected[1][at * depth + d] += p * (dp - delta) * scale * c->x[0][row * depth + d];
            }
        }
    }
}

/* Adds a mask that hides all keys from some queries. */
static void add_mask(ops_case *c, ir_dtype t)
{
    const int64_t heads = now->heads * now->shared;
    const int64_t dims[][4] = {[FULL] = {1, 1, now->queries, now->keys},
                               [KEYS] = {now->batch, 1, 1, now->keys},
                               [QUERIES] = {now->batch, 1, now->queries, 1},
                               [HEADS] = {now->batch, heads, now->queries, now->keys},
                               [ONE] = {1, 1, 1, 1}};
    const int rank = now->mask == FULL ? 2 : now->mask == ONE ? 1 : 4;
    const int64_t *shape_of = dims[now->mask] + 4 - rank;
    if (now->mask == NO_MASK) {
        case_absent(c);
        return;
    }
    double *m = case_in(c, now->boolean ? IR_bool : t, rank, shape_of, now->boolean ? 0 : -2, now->boolean ? 1 : 2);
    const int64_t n = k_count(&c->in[3]), row = shape_of[rank - 1] ? shape_of[rank - 1] : 1;
    for (int64_t i = 0; i < n; i++) {
        const bool hides = i / row % 5 == 3 || (now->mask != ONE && i % 11 == 5);
        if (hides) m[i] = now->boolean ? 0 : -INFINITY;
    }
}

static void add_dropout(ops_case *c, double ratio)
{
    static const int64_t two[] = {2};
    if (ratio == 0) return;
    case_in(c, IR_i64, 1, two, 0, 1000000);
    c->attr[IR_ATTR(attention, ratio)].f = (float)ratio;
    c->attr[IR_ATTR(attention, stream)].i = 3;
}

/* Makes the case of a shape, with the operands of the gradient if the op is that. */
static ops_case make(const shape *s, double ratio, ir_op op, ir_dtype t)
{
    const bool back = op == IR_OP_attention_grad;
    const int64_t heads = s->heads * s->shared;
    const int64_t q[] = {s->batch, heads, s->queries, s->depth}, k[] = {s->batch, s->heads, s->keys, s->depth},
                  v[] = {s->batch, s->heads, s->keys, s->width}, y[] = {s->batch, heads, s->queries, s->width},
                  lse[] = {s->batch, heads, s->queries, 2};
    const ir_dtype wide = t == IR_f64 ? t : IR_f32;
    ops_case c = case_of(op);
    now = s;
    case_in(&c, t, 4, q, -2, 2);
    case_in(&c, t, 4, k, -2, 2);
    case_in(&c, t, 4, v, -1, 1);
    add_mask(&c, s->queries % 2 ? t : wide);
    c.attr[IR_ATTR(attention, scale)].f = (float)(1 / sqrt((double)s->depth + 1));
    c.attr[IR_ATTR(attention, causal)].i = s->causal;
    if (back) {
        double *to = case_in(&c, t, 4, y, 0, 0), *sums = case_in(&c, wide, 4, lse, 0, 0);
        case_in(&c, t, 4, y, -1, 1);
        add_dropout(&c, ratio);
        attend(&c, to, sums);
        case_out(&c, t, 4, q);
        case_out(&c, t, 4, k);
        case_out(&c, t, 4, v);
    } else {
        add_dropout(&c, ratio);
        case_out(&c, t, 4, y);
        case_out(&c, wide, 4, lse);
    }
    c.floor = c.size = 1;
    c.units = back ? 100 : 24;
    /* Probabilities, and gradients of scores, may be rounded to the type of the operands. */
    if (t == IR_bf16) c.units = back ? 0x1p17 : 0x1p15;
    if (t == IR_f16 && ops_on->device_ops) c.units = back ? 0x1p13 : 0x1p12;
    return c;
}

/* Infinities and NaN are in the results of the queries that see them, and only there. */
static void check_extremes(const ops_row *row, ir_dtype t)
{
    static const shape s = {1, 2, 1, 70, 71, 20, 24, FULL, false, true};
    ops_case c = make(&s, 0, row->op, t);
    for (int64_t j = 0; j < s.depth; j++) {
        c.x[1][3 * s.depth + j] = c.x[1][60 * s.depth + j] = NAN;
        c.x[0][5 * s.depth + j] = INFINITY;
    }
    for (int64_t i = 0; i < s.queries; i++) c.x[3][i * s.keys + 3] = -INFINITY;
    c.x[3][10 * s.keys + 2] = INFINITY;
    case_check(&c, attention_reference);
    case_end(&c);
}

static void check_without_lse(const ops_row *row, ir_dtype t)
{
    ops_case c = make(&shapes[1], 0, row->op, t);
    free(c.out[1].data);
    c.out[1] = (k_view){.dtype = IR_NO_DTYPE};
    case_check(&c, attention_reference);
    case_end(&c);
}

/* ---- strided views ---- */

enum { APART = 3 };

/* Spreads a view [B,H,T,D] over memory as [B,T,H,APART,D], or collects it. */
static void spread(const k_view *v, char *memory, bool back)
{
    const int64_t row = v->dims[3] * (int64_t)ir_dtype_size(v->dtype);
    for (int64_t i = 0; i < v->dims[0] * v->dims[1] * v->dims[2]; i++) {
        const int64_t t = i % v->dims[2], h = i / v->dims[2] % v->dims[1], b = i / v->dims[2] / v->dims[1];
        char *dense = (char *)v->data + i * row,
             *apart = memory + ((b * v->dims[2] + t) * v->dims[1] + h) * APART * row;
        memcpy(back ? dense : apart, back ? apart : dense, (size_t)row);
    }
}

/* A copy of v in such memory. */
static k_view spread_view(const k_view *v, int64_t strides[4])
{
    k_view s = *v;
    if (v->rank != 4 || v->dims[3] == 2 || v->dtype == IR_bool) return s;
    const int64_t d = v->dims[3] * APART;
    strides[0] = v->dims[2] * v->dims[1] * d, strides[1] = d, strides[2] = v->dims[1] * d, strides[3] = 1;
    s.data = calloc(k_bytes(v) * APART + 1, 1);
    s.strides = strides;
    spread(v, s.data, false);
    return s;
}

/* Runs the case on strided views. results[i]: those of result i, dense and malloc'ed; NULL if it is not strided. */
static void run_strided(ops_case *c, int candidate, char **results)
{
    k_view views[2 * CASE_MAX];
    int64_t strides[2 * CASE_MAX][4];
    const k_context ctx = {.threads = 1, .error = c->error, .error_size = sizeof c->error, .candidate = candidate};
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const k_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        const bool is_mask = i == IR_IN(attention, mask);
        views[i] = is_mask ? *v : spread_view(v, strides[i]);
    }
    k_args args = {.op = c->op,
                   .in = views,
                   .out = views + c->n_in,
                   .n_in = c->n_in,
                   .n_out = c->n_out,
                   .attr = c->attr,
                   .ctx = &ctx};
    assert_int_equal(ops_run(&args, false, 1), AMPC_OK);
    for (int i = 0; i < c->n_out; i++) {
        k_view got = c->out[i];
        results[i] = NULL;
        if (!args.out[i].strides) continue;
        got.data = results[i] = calloc(k_bytes(&got) + 1, 1);
        spread(&got, args.out[i].data, true);
    }
    for (int i = 0; i < c->n_in + c->n_out; i++)
        if (views[i].strides) free(views[i].data);
}

/* The results in strided views must have the bits of those in dense ones. */
static void check_strides(ops_case *c)
{
    char *results[CASE_MAX];
    run_strided(c, 0, results);
    for (int i = 0; i < c->n_out; i++) {
        const size_t bytes = k_bytes(&c->out[i]);
        if (results[i]) assert_memory_equal(results[i], c->out[i].data, bytes + !bytes);
        free(results[i]);
    }
}

/* A gradient has the same bits if another one is not wanted. */
static void check_unwanted(ops_case *c)
{
    const k_context ctx = {.threads = 1, .error = c->error, .error_size = sizeof c->error};
    for (int unwanted = 0; unwanted < c->n_out; unwanted++) {
        k_view out[CASE_MAX];
        k_args args = {.op = c->op, .in = c->in, .out = out, .n_in = c->n_in, .n_out = c->n_out, .attr = c->attr};
        args.ctx = &ctx;
        for (int i = 0; i < c->n_out; i++) {
            out[i] = i == unwanted ? (k_view){.dtype = IR_NO_DTYPE} : c->out[i];
            out[i].data = i == unwanted ? NULL : calloc(k_bytes(&out[i]) + 1, 1);
        }
        assert_int_equal(ops_run(&args, false, 1), AMPC_OK);
        for (int i = 0; i < c->n_out; i++) {
            if (i != unwanted) assert_memory_equal(out[i].data, c->out[i].data, k_bytes(&out[i]));
            free(out[i].data);
        }
    }
}

/* ---- the library ---- */

/* Large enough for cuDNN, which does not run smaller ones. */
static const shape large[] = {{1, 2, 1, 256, 256, 16, 8, NO_MASK, false, true},
                              {1, 2, 4, 128, 136, 8, 16, NO_MASK, false, false}};

/* Compares item i of a result, which cuDNN rounds probabilities for. */
static void check_near(const char *what, int64_t i, double got, double expected, ir_dtype t)
{
    const double tolerance = t == IR_bf16 ? 0x1p-6 : 0x1p-9;
    if (!(fabs(got - expected) <= tolerance * fmax(1, fabs(expected))))
        fail_msg("%s[%d]: %g instead of %g", what, (int)i, got, expected);
}

/* On devices, a tuning context may choose the library; the first candidate is the library's first. */
static void check_library(ir_dtype t)
{
    for (size_t i = 0; i < sizeof large / sizeof *large && ops_on->device_ops; i++) {
        if (!tier_is_due(2 * i + (t == IR_bf16), 4)) continue; /* cuDNN compiles a kernel for each */
        ops_case c = make(&large[i], 0, IR_OP_attention, t);
        const int64_t rows = items() * now->queries;
        double *y = calloc((size_t)(rows * now->width), sizeof *y), *sums = calloc((size_t)(2 * rows), sizeof *sums);
        const float *lse = c.out[1].data;
        char *results[CASE_MAX];
        case_encode(&c);
        attend(&c, y, sums);
        run_strided(&c, 1, results);
        for (int64_t k = 0; k < rows * now->width; k++)
            check_near("y", k, ir_load_f64(t, results[0] + k * (int64_t)ir_dtype_size(t)), y[k], t);
        for (int64_t k = 0; k < 2 * rows; k += 2)
            check_near("lse", k, (double)lse[k] + (double)lse[k + 1], sums[k] + sums[k + 1], t);
        free(results[0]);
        free(sums);
        free(y);
        case_end(&c);
    }
}

static void attention(const ops_row *row, ir_dtype t)
{
    const bool back = row->op == IR_OP_attention_grad;
    if (!back && (t == IR_f16 || t == IR_bf16)) check_library(t);
    for (int i = 0; i < SHAPES + DROPOUTS; i++) {
        const struct dropout *d = i < SHAPES ? NULL : &dropouts[i - SHAPES];
        ops_case c = make(d ? &d->shape : &shapes[i], d ? d->ratio : 0, row->op, t);
        case_check(&c, back ? attention_grad_reference : attention_reference);
        if (i < 6 || d) check_strides(&c);
        if (i == 0 && back) check_unwanted(&c);
        case_end(&c);
    }
    if (back) return;
    check_extremes(row, t);
    check_without_lse(row, t);
}

/* clang-format off */
const ops_row attention_rows[] = {
    {IR_OP_attention, "F", attention, 0, 0, NULL, 0, 0},
    {IR_OP_attention_grad, "F", attention, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
