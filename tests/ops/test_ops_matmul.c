/* test_ops_matmul.c - matmul and the three convolutions against f64 sums over the rounded operands.
 *
 * A row is a shape. It runs in every float type, with and without bias, and with f32 results of low-precision
 * operands. Results are initialized to NaN. Convolutions run a second time, channels last. Matmul epilogues
 * are tested in many forms: for each one the device must report the expected support, and must then run or
 * reject it. */
#include "kernels/epilogue.h"
#include "tests/ops/ops.h"
#include "tests/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/philox.h"

enum { THREADS = 2, RANDOM_CONVS = 80 };

static uint64_t seed = 1;

/* ---- views ----------------------------------------------------------------------------------- */

static k_view view_make(ir_dtype t, int rank, const int64_t *dims)
{
    k_view v = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    size_t bytes = (k_bytes(&v) + 127) / 64 * 64;
    v.data = aligned_alloc(64, bytes);
    memset(v.data, 0xff, bytes); /* NaN in every float type */
    return v;
}

static void view_fill(k_view *v)
{
    seed++;
    for (int64_t i = 0; i < k_count(v); i++) {
        float x = philox_unit(philox_word(7, seed, (uint64_t)i)) * 2 - 1;
        ir_store_f64(v->dtype, (char *)v->data + i * (int64_t)ir_dtype_size(v->dtype), x);
    }
}

static double *view_values(const k_view *v)
{
    double *values = malloc(((size_t)k_count(v) + 1) * sizeof *values);
    for (int64_t i = 0; k_present(v) && i < k_count(v); i++)
        values[i] = ir_load_f64(v->dtype, (char *)v->data + i * (int64_t)ir_dtype_size(v->dtype));
    return values;
}

/* Tolerance for rounding the result and, over `depth` products of magnitude at most 1, each partial sum. */
static double tolerance(ir_dtype in, ir_dtype out, double depth)
{
    double low = out == IR_bf16 ? 0x1p-8 : out == IR_f16 ? 0x1p-11 : out == IR_f32 ? 0x1p-23 : 0x1p-50;
    return low + (in == IR_f64 ? 0x1p-52 : 0x1p-24) * (depth + 4);
}

static void view_check(const char *what, const k_view *v, const double *expected, double depth, ir_dtype in)
{
    double *actual = view_values(v), limit = tolerance(in, v->dtype, depth);
    for (int64_t i = 0; i < k_count(v); i++) {
        double error = fabs(actual[i] - expected[i]);
        if (!(error <= limit * (1 + fabs(expected[i]))))
            fail_msg("%s %s->%s: element %lld is %.9g, expected %.9g", what, ir_dtype_name(in), ir_dtype_name(v->dtype),
                     (long long)i, actual[i], expected[i]);
    }
    free(actual);
}

/* ---- running a kernel ------------------------------------------------------------------------ */

static void run_kernel(ir_op op, k_view *in, int n_in, k_view *out, int n_out, const ir_attr *attr)
{
    char error[256] = "";
    k_context ctx = {.threads = THREADS, .error = error, .error_size = sizeof error};
    k_args args = {.op = op, .in = in, .out = out, .n_in = n_in, .n_out = n_out, .attr = attr, .ctx = &ctx};
    /* twice, which tests that a primitive can be reused after a run */
    if (ops_run(&args, false, 2) != AMPC_OK) fail_msg("%s: %s", ir_op_get(op)->name, error);
}

static const struct {
    ir_dtype in, out;
} types[] = {{IR_f64, IR_f64},  {IR_f32, IR_f32},  {IR_f16, IR_f16},  {IR_bf16, IR_bf16}, {IR_f16, IR_f32},
             {IR_bf16, IR_f32}, {IR_f32, IR_bf16}, {IR_bf16, IR_f16}, {IR_f64, IR_f32},   {IR_f32, IR_f64}};
enum { N_TYPES = sizeof types / sizeof *types };

/* Returns the next row of types that the device supports. */
static int next_types(int t)
{
    do t++;
    while (t < N_TYPES && !(ops_takes(types[t].in) && ops_takes(types[t].out)));
    return t;
}

/* ---- matmul ---------------------------------------------------------------------------------- */

typedef struct product_row {
    int a_rank, b_rank;
    int64_t a[6], b[6]; /* before transposition */
} product_row;

static const product_row products[] = {
    {2, 2, {1, 1}, {1, 1}},
    {2, 2, {3, 5}, {5, 7}},
    {2, 2, {64, 33}, {33, 10}},
    {2, 2, {130, 70}, {70, 129}},
    {2, 2, {2, 2060}, {2060, 259}}, /* more than one panel each (kernels/cpu/panels.c) */
    {2, 2, {515, 3}, {3, 5}},
    {2, 2, {0, 5}, {5, 7}},
    {2, 2, {3, 0}, {0, 7}},
    {2, 2, {3, 5}, {5, 0}},
    {2, 2, {1, 100}, {100, 1}},
    {3, 2, {4, 3, 5}, {5, 7}},
    {4, 2, {2, 3, 4, 5}, {5, 6}},
    {3, 3, {4, 3, 5}, {4, 5, 7}},
    {3, 3, {4, 3, 5}, {1, 5, 7}},
    {3, 3, {1, 3, 5}, {4, 5, 7}},
    {2, 3, {3, 5}, {4, 5, 7}},
    {4, 4, {2, 3, 4, 5}, {2, 3, 5, 6}},
    {4, 4, {2, 1, 4, 5}, {1, 3, 5, 6}},
    {4, 4, {2, 3, 4, 5}, {2, 1, 5, 6}},
    {4, 3, {2, 3, 4, 5}, {3, 5, 6}},
    {5, 4, {2, 1, 3, 4, 5}, {4, 1, 5, 6}},
    {5, 5, {2, 1, 3, 4, 5}, {1, 4, 3, 5, 6}},
    {3, 3, {0, 3, 5}, {1, 5, 7}},
    {3, 3, {2, 3, 0}, {2, 0, 7}},
};

static void swap_last(k_view *v)
{
    int64_t rows = v->dims[v->rank - 2];
    v->dims[v->rank - 2] = v->dims[v->rank - 1];
    v->dims[v->rank - 1] = rows;
}

/* Returns the offset in an operand of batch item `item` of y, and the operand's matrix strides. */
static int64_t batch_offset(const k_view *v, const k_view *y, int64_t item)
{
    int64_t offset = 0, size = v->dims[v->rank - 2] * v->dims[v->rank - 1];
    for (int i = y->rank - 3; i >= 0; i--) {
        int64_t index = item % y->dims[i], at = i - (y->rank - v->rank);
        item /= y->dims[i];
        if (at < 0) continue;
        offset += (v->dims[at] == 1 ? 0 : index) * size;
        size *= v->dims[at];
    }
    return offset;
}

static double *product_expect(const k_view *a, const k_view *b, const k_view *bias, const k_view *y, bool ta, bool tb)
{
    int64_t m = y->dims[y->rank - 2], n = y->dims[y->rank - 1], k = a->dims[a->rank - (ta ? 2 : 1)];
    double *av = view_values(a), *bv = view_values(b), *cv = view_values(bias);
    double *sum = calloc((size_t)k_count(y) + 1, sizeof *sum);
    for (int64_t i = 0; i < k_count(y); i++) {
        int64_t item = i / (m * n), row = i / n % m, column = i % n;
        const double *am = av + batch_offset(a, y, item), *bm = bv + batch_offset(b, y, item);
        for (int64_t l = 0; l < k; l++)
            sum[i] += (ta ? am[l * m + row] : am[row * k + l]) * (tb ? bm[column * k + l] : bm[l * n + column]);
        if (k_present(bias)) sum[i] += cv[column];
    }
    free(av);
    free(bv);
    free(cv);
    return sum;
}

static void product_check(const product_row *row, ir_dtype in, ir_dtype out, bool ta, bool tb, bool with_bias)
{
    k_view a = view_make(in, row->a_rank, row->a), b = view_make(in, row->b_rank, row->b);
    int64_t k = a.dims[a.rank - 1], n = b.dims[b.rank - 1], dims[6];
    int rank = a.rank > b.rank ? a.rank : b.rank;
    for (int i = 0; i < rank - 2; i++) {
        int at = i - (rank - a.rank), bt = i - (rank - b.rank);
        int64_t ad = at < 0 ? 1 : a.dims[at], bd = bt < 0 ? 1 : b.dims[bt];
        dims[i] = ad == 1 ? bd : ad;
    }
    dims[rank - 2] = a.dims[a.rank - 2];
    dims[rank - 1] = n;
    if (ta) swap_last(&a);
    if (tb) swap_last(&b);
    k_view bias = {0}, y = view_make(out, rank, dims);
    if (with_bias) bias = view_make(in, 1, &n);
    view_fill(&a);
    view_fill(&b);
    if (with_bias) view_fill(&bias);
    ir_attr attr[3] = {[IR_ATTR(matmul, trans_a)] = {.i = ta},
                       [IR_ATTR(matmul, trans_b)] = {.i = tb},
                       [IR_ATTR(matmul, out)] = {.dtype = in == out ? IR_NO_DTYPE : out}};
    k_view operands[] = {a, b, bias};
    run_kernel(IR_OP_matmul, operands, 3, &y, 1, attr);
    double *expected = product_expect(&a, &b, &bias, &y, ta, tb);
    view_check("matmul", &y, expected, (double)k, in);
    free(expected);
    free(a.data);
    free(b.data);
    free(bias.data);
    free(y.data);
}

static void matmul_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t))
            for (int flags = 0; flags < 8; flags++)
                product_check(&products[i], types[t].in, types[t].out, flags & 1, flags & 2, flags & 4);
}

/* ---- matmul epilogues ------------------------------------------------------------------------ */

typedef struct epilogue_row {
    ir_op tail; /* IR_OP_COUNT: none */
    bool tanh;
    unsigned parts;
} epilogue_row;

static const epilogue_row epilogues[] = {
    {IR_OP_gelu, false, 0},
    {IR_OP_gelu, false, K_PART_BIAS},
    {IR_OP_gelu, false, K_PART_AUX},
    {IR_OP_gelu, true, 0},
    {IR_OP_gelu, true, K_PART_BIAS},
    {IR_OP_gelu, true, K_PART_AUX},
    {IR_OP_gelu, true, K_PART_BIAS | K_PART_AUX},
    {IR_OP_gelu, true, K_PART_AUX | K_PART_SUM_B},
    {IR_OP_gelu_grad, true, K_PART_X},
    {IR_OP_gelu_grad, true, K_PART_X | K_PART_BIAS},
    {IR_OP_gelu_grad, false, K_PART_X},
    {IR_OP_relu, false, 0},
    {IR_OP_relu, false, K_PART_BIAS},
    {IR_OP_tanh, false, 0},
    {IR_OP_COUNT, false, K_PART_AUX},
    {IR_OP_COUNT, false, K_PART_SUM_A},
    {IR_OP_COUNT, false, K_PART_SUM_B},
    {IR_OP_COUNT, false, K_PART_SUM_A | K_PART_SUM_B},
    {IR_OP_COUNT, false, K_PART_SUM_B | K_PART_BIAS},
    {IR_OP_COUNT, false, 0},
};

static const struct {
    int64_t m, n, k, batch;
} sizes[] = {{1, 1, 1, 1},    {1, 8, 7, 1},    {7, 8, 9, 1},  {8, 7, 33, 1}, {9, 33, 8, 1}, {33, 128, 7, 1},
             {128, 9, 33, 1}, {33, 8, 128, 1}, {8, 16, 4, 3}, {5, 8, 0, 1},  {0, 8, 5, 1}};
enum { N_SIZES = sizeof sizes / sizeof *sizes, N_EPILOGUES = sizeof epilogues / sizeof *epilogues };

/* Returns whether the device is expected to support the epilogue. */
static bool is_absorbed(const epilogue_row *e, int size, int t)
{
    const unsigned beside = K_PART_X | K_PART_AUX, sums = K_PART_SUM_A | K_PART_SUM_B;
    const bool plain = e->tail == IR_OP_COUNT && !(e->parts & ~(unsigned)K_PART_BIAS);
    if (plain) return true;
    if (sizes[size].m == 0 || sizes[size].k == 0 || e->tail == IR_OP_relu || e->tail == IR_OP_tanh) return false;
    if (!ops_on->device_ops) return e->tail == IR_OP_gelu && !(e->parts & (beside | sums)) && types[t].in != IR_f64;
    if (e->parts & (beside | sums) &&
        (sizes[size].batch > 1 || (types[t].in != types[t].out && types[t].out != IR_f32)))
        return false;
    if (e->parts & beside && sizes[size].n % 8) return false;
    if (e->tail == IR_OP_COUNT) return e->parts == K_PART_SUM_A || e->parts == K_PART_SUM_B;
    if (e->tail == IR_OP_gelu_grad) return e->tanh && e->parts == K_PART_X;
    return e->tanh && !(e->parts & sums);
}

/* A call with everything that a row requests. */
typedef struct epilogue_case {
    const epilogue_row *row;
    ir_dtype type; /* of the operands */
    k_view in[4], out[4];
    ir_attr attr[3], tail_attr[1];
    k_fused program;
    char error[256];
    k_context ctx;
    k_args args;
} epilogue_case;

static k_view part_make(const epilogue_row *e, unsigned part, ir_dtype t, int rank, const int64_t *dims)
{
    k_view none = {.dtype = IR_NO_DTYPE};
    return !part || e->parts & part ? view_make(t, rank, dims) : none;
}

static void tail_make(epilogue_case *c)
{
    const epilogue_row *e = c->row;
    c->tail_attr[0].i = e->tanh;
    c->program.count = k_count(&c->out[0]);
    c->program.n_code = c->program.n_results = 1;
    c->program.code[0] = (k_instruction){
        .op = e->tail, .type = c->out[0].dtype, .attr = c->tail_attr, .n_arg = 1, .arg = {K_ACCUMULATOR}};
    c->program.results[0] = (k_result){.from = 0, .fold = K_EACH};
    if (!(e->parts & K_PART_X)) return;
    c->program.operands[c->program.n_operands++] = (k_operand){.in = ir_op_get(IR_OP_matmul)->n_in + K_EPILOGUE_X,
                                                               .dense = true};
    c->program.code[0].arg[c->program.code[0].n_arg++] = ~0;
}

static void epilogue_make(epilogue_case *c, const epilogue_row *e, int size, int t, bool ta, bool tb)
{
    const int64_t m = sizes[size].m, n = sizes[size].n, k = sizes[size].k, batch = sizes[size].batch;
    const ir_dtype in = types[t].in, out = types[t].out;
    const int rank = batch > 1 ? 3 : 2;
    const int64_t a[] = {batch, ta ? k : m, ta ? m : k}, b[] = {batch, tb ? n : k, tb ? k : n}, y[] = {batch, m, n};
    *c = (epilogue_case){.row = e, .type = in};
    c->in[0] = part_make(e, 0, in, rank, a + 3 - rank);
    c->in[1] = part_make(e, 0, in, rank, b + 3 - rank);
    c->in[2] = part_make(e, K_PART_BIAS, in, 1, &n);
    c->in[3] = part_make(e, K_PART_X, out, rank, y + 3 - rank);
    c->out[0] = part_make(e, 0, out, rank, y + 3 - rank);
    c->out[1 + K_EPILOGUE_AUX] = part_make(e, K_PART_AUX, out, rank, y + 3 - rank);
    c->out[1 + K_EPILOGUE_SUM_A] = part_make(e, K_PART_SUM_A, out, 1, &m);
    c->out[1 + K_EPILOGUE_SUM_B] = part_make(e, K_PART_SUM_B, out, 1, &n);
    for (int i = 0; i < 4; i++)
        if (k_present(&c->in[i])) view_fill(&c->in[i]);
    c->attr[IR_ATTR(matmul, trans_a)].i = ta;
    c->attr[IR_ATTR(matmul, trans_b)].i = tb;
    c->attr[IR_ATTR(matmul, out)].dtype = in == out ? IR_NO_DTYPE : out;
    if (e->tail != IR_OP_COUNT) tail_make(c);
    c->ctx = (k_context){.threads = THREADS, .error = c->error, .error_size = sizeof c->error};
    c->args = (k_args){.op = IR_OP_matmul,
                       .in = c->in,
                       .out = c->out,
                       .n_in = 4,
                       .n_out = 4,
                       .attr = c->attr,
                       .program = e->tail == IR_OP_COUNT ? NULL : &c->program,
                       .ctx = &c->ctx};
}

static void epilogue_free(const epilogue_case *c)
{
    for (int i = 0; i < 4; i++) {
        free(c->in[i].data);
        free(c->out[i].data);
    }
}

static double gelu(double x, bool by_tanh)
{
    if (!by_tanh) return x * 0.5 * (1 + erf(x * sqrt(0.5)));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) { return (gelu(x + 1e-6, true) - gelu(x - 1e-6, true)) / 2e-6; }

/* Checks the sum of op(v) along k, which in memory is its first dimension or its second. */
static void sum_check(const epilogue_case *c, const k_view *v, bool k_first, const k_view *sum)
{
    int64_t rows = v->dims[0], columns = v->dims[1];
    double *values = view_values(v), *expected = calloc((size_t)k_count(sum) + 1, sizeof *expected);
    for (int64_t i = 0; i < rows * columns; i++) expected[k_first ? i % columns : i / columns] += values[i];
    view_check("sum", sum, expected, (double)(k_first ? rows : columns), c->type);
    free(values);
    free(expected);
}

static void epilogue_check(const epilogue_case *c, int64_t k)
{
    const bool ta = c->attr[IR_ATTR(matmul, trans_a)].i, tb = c->attr[IR_ATTR(matmul, trans_b)].i;
    double *values = product_expect(&c->in[0], &c->in[1], &c->in[2], &c->out[0], ta, tb), *x = view_values(&c->in[3]);
    if (c->row->parts & K_PART_AUX) view_check("start", &c->out[1 + K_EPILOGUE_AUX], values, (double)k, c->type);
    if (c->row->parts & K_PART_SUM_A) sum_check(c, &c->in[0], ta, &c->out[1 + K_EPILOGUE_SUM_A]);
    if (c->row->parts & K_PART_SUM_B) sum_check(c, &c->in[1], !tb, &c->out[1 + K_EPILOGUE_SUM_B]);
    for (int64_t i = 0; i < k_count(&c->out[0]); i++)
        values[i] = c->row->tail == IR_OP_gelu        ? gelu(values[i], c->row->tanh)
                    : c->row->tail == IR_OP_gelu_grad ? values[i] * gelu_slope(x[i])
                                                      : values[i];
    view_check("epilogue", &c->out[0], values, (double)k, c->type);
    free(values);
    free(x);
}

static void epilogue_rows(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES * N_EPILOGUES * 4; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) {
            const epilogue_row *e = &epilogues[i / 4 % N_EPILOGUES];
            const int size = i / 4 / N_EPILOGUES;
            epilogue_case c;
            epilogue_make(&c, e, size, t, i & 1, i & 2);
            bool expected = is_absorbed(e, size, t), absorbed = ops_absorbs(&c.args);
            if (absorbed != expected || c.error[0])
                fail_msg("epilogue %td, size %d, %s->%s: %d '%s'", e - epilogues, size, ir_dtype_name(types[t].in),
                         ir_dtype_name(types[t].out), absorbed, c.error);
            assert_int_equal(ops_run(&c.args, false, 2), expected ? AMPC_OK : AMPC_UNSUPPORTED);
            if (expected) epilogue_check(&c, sizes[size].k);
            epilogue_free(&c);
        }
}

/* The device rejects epilogues whose description does not match the operands. */
static void epilogues_are_judged(void **state)
{
    enum { ROW = 8, SIZE = 2, F32 = 1 }; /* gelu_grad with tanh */
    epilogue_case c;
    (void)state;
    if (!ops_on->device_ops) skip();
#define JUDGED(change, taken) \
    epilogue_make(&c, &epilogues[ROW], SIZE, F32, true, false); \
    change; \
    assert_int_equal(ops_absorbs(&c.args), taken); \
    epilogue_free(&c)
    JUDGED((void)0, true);
    JUDGED(c.program.code[0].type = IR_f16, false);
    JUDGED(c.program.code[0].arg[0] = ~0, false);
    JUDGED(c.program.code[0].arg[1] = K_ACCUMULATOR, false);
    JUDGED(c.program.operands[0].dense = false, false);
    JUDGED(c.program.operands[0].in = 0, false);
    JUDGED(c.program.count--, false);
    JUDGED(c.program.commits = true, false);
    JUDGED(c.program.n_code = 2, false);
    JUDGED(c.program.results[0].fold = K_ROW_SUM, false);
    JUDGED(c.in[3].dtype = IR_f16, false);
    JUDGED(c.in[3].dims[0]--, false);
    JUDGED(c.args.op = IR_OP_relu, false);
#undef JUDGED
}

/* A NaN in an operand makes a row of the result NaN. */
static void nan_passes(void **state)
{
    enum { SIZE = 5 };
    (void)state;
    for (int i = 0; i < N_EPILOGUES; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) {
            epilogue_case c;
            epilogue_make(&c, &epilogues[i], SIZE, t, false, false);
            ir_store_f64(c.type, c.in[0].data, NAN);
            if (is_absorbed(c.row, SIZE, t)) assert_int_equal(ops_run(&c.args, false, 1), AMPC_OK);
            double *values = view_values(&c.out[0]);
            for (int64_t k = 0; k < k_count(&c.out[0]) && is_absorbed(c.row, SIZE, t); k++)
                assert_int_equal(isnan(values[k]) != 0, k < sizes[SIZE].n);
            free(values);
            epilogue_free(&c);
        }
}

/* ---- convolution ----------------------------------------------------------------------------- */

typedef struct conv_row {
    int spatial;
    int64_t n, c, m, group; /* c: all channels */
    int64_t x[3], k[3], strides[3], dilations[3], pads[6];
} conv_row;

static const conv_row convs[] = {
    {2, 2, 1, 16, 1, {14, 14}, {5, 5}, {1, 1}, {1, 1}, {0}},
    {2, 2, 16, 32, 1, {9, 9}, {5, 5}, {1, 1}, {1, 1}, {0}},
    {2, 1, 3, 5, 1, {7, 6}, {3, 2}, {2, 1}, {1, 1}, {1, 0, 2, 1}},
    {2, 2, 8, 8, 8, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},  /* depthwise */
    {2, 2, 4, 8, 4, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},  /* depthwise, multiplier 2 */
    {2, 2, 6, 4, 2, {5, 7}, {3, 3}, {1, 2}, {1, 1}, {0}},           /* groups */
    {2, 2, 3, 4, 1, {9, 11}, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}}, /* dilation */
    {2, 2, 3, 4, 1, {8, 8}, {3, 3}, {3, 3}, {1, 1}, {0}},           /* with a remainder at the end */
    {2, 1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 2, 17, 19, 1, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 0, 3, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {0}}, /* empty batch */
    {1, 2, 3, 5, 1, {13}, {3}, {2}, {2}, {1, 3}},
    {1, 1, 4, 4, 2, {6}, {4}, {1}, {1}, {3, 0}},
    {3, 2, 2, 3, 1, {4, 5, 6}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {0, 1, 0, 1, 1, 2}},
    {3, 1, 4, 4, 4, {3, 3, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {2, 1, 2, 3, 1, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {2, 2, 3, 3}},    /* windows entirely in the padding */
    {2, 2, 3, 16, 1, {15, 14}, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}}, /* first layer of a network */
    {2, 2, 32, 16, 1, {6, 5}, {1, 1}, {2, 2}, {1, 1}, {0}},           /* shortcut */
    {2, 2, 40, 40, 40, {7, 6}, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}}, /* depthwise, more than one vector */
    {2, 1, 32, 64, 2, {5, 5}, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}},  /* groups of whole vectors */
    {1, 3, 1, 12, 1, {20}, {5}, {1}, {2}, {4, 4}},
    {1, 2, 24, 24, 24, {9}, {3}, {1}, {1}, {1, 1}},
    {3, 1, 17, 20, 1, {3, 4, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0}},
    {3, 1, 1, 16, 1, {4, 4, 5}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    /* shapes for which oneDNN has faulty code (kernels/cpu/conv.c) */
    {3, 6, 3, 6, 1, {5, 1, 3}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 0, 1, 1, 0}}, /* a window higher than x */
    {3, 2, 2, 2, 1, {5, 7, 14}, {3, 3, 3}, {4, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {2, 2, 16, 16, 1, {3, 1}, {1, 2}, {1, 4}, {1, 1}, {0, 1, 0, 0}}, /* a stride longer than a row */
    {2, 1, 5, 6, 1, {4, 14}, {1, 1}, {1, 2}, {1, 1}, {0}},
    {2, 1, 11, 14, 1, {6, 30}, {1, 1}, {1, 2}, {1, 1}, {0}},
    {2, 1, 24, 9, 1, {4, 15}, {1, 1}, {1, 1}, {1, 1}, {0}}, /* an odd number of filters */
};

typedef struct conv_case {
    const conv_row *row;
    int64_t x[5], w[5], y[5];
    int64_t lists[4][6]; /* strides, pads, dilations, shape */
    double *xv, *wv, *yv;
} conv_case;

typedef void conv_visit(conv_case *c, int64_t filter, int64_t xi, int64_t wi, int64_t yi, double *sum);

static void case_init(conv_case *c, const conv_row *row)
{
    *c = (conv_case){.row = row};
    c->x[0] = c->y[0] = row->n;
    c->x[1] = row->c;
    c->y[1] = c->w[0] = row->m;
    c->w[1] = row->c / row->group;
    for (int i = 0; i < row->spatial; i++) {
        c->x[2 + i] = row->x[i];
        c->w[2 + i] = row->k[i];
        int64_t window = (row->k[i] - 1) * row->dilations[i] + 1;
        c->y[2 + i] = (row->x[i] + row->pads[i] + row->pads[row->spatial + i] - window) / row->strides[i] + 1;
    }
}

/* Calls visit for every product of the convolution. */
static void case_visit(conv_case *c, conv_visit *visit, double *sum)
{
    const conv_row *r = c->row;
    int64_t y_count = 1, w_count = 1, per_group = r->m / r->group;
    int rank = r->spatial + 2;
    for (int i = 0; i < rank; i++) y_count *= c->y[i];
    for (int i = 1; i < rank; i++) w_count *= c->w[i];
    for (int64_t yi = 0; yi < y_count; yi++)
        for (int64_t tap = 0; tap < w_count; tap++) {
            int64_t y[5] = {0}, w[5] = {0}, rest = yi;
            for (int i = rank - 1; i >= 0; i--) y[i] = rest % c->y[i], rest /= c->y[i];
            rest = tap;
            for (int i = rank - 1; i >= 1; i--) w[i] = rest % c->w[i], rest /= c->w[i];
            int64_t xi = y[0] * r->c + y[1] / per_group * c->w[1] + w[1];
            bool inside = true;
            for (int i = 0; i < r->spatial; i++) {
                int64_t at = y[2 + i] * r->strides[i] + w[2 + i] * r->dilations[i] - r->pads[i];
                inside = inside && at >= 0 && at < r->x[i];
                xi = xi * r->x[i] + at;
            }
            if (inside) visit(c, y[1], xi, y[1] * w_count + tap, yi, sum);
        }
}

static void visit_forward(conv_case *c, int64_t filter, int64_t xi, int64_t wi, int64_t yi, double *sum)
{
    (void)filter;
    sum[yi] += c->xv[xi] * c->wv[wi];
}

static void visit_grad_input(conv_case *c, int64_t filter, int64_t xi, int64_t wi, int64_t yi, double *sum)
{
    (void)filter;
    sum[xi] += c->yv[yi] * c->wv[wi];
}

static void visit_grad_weight(conv_case *c, int64_t filter, int64_t xi, int64_t wi, int64_t yi, double *sum)
{
    (void)filter;
    sum[wi] += c->yv[yi] * c->xv[xi];
}

static void case_attrs(conv_case *c, ir_attr *attr, int strides, int pads, int dilations, int group)
{
    int n = c->row->spatial;
    attr[strides].list.items = c->row->strides;
    attr[pads].list.items = c->row->pads;
    attr[dilations].list.items = c->row->dilations;
    attr[strides].list.count = attr[dilations].list.count = n;
    attr[pads].list.count = 2 * n;
    attr[group].i = c->row->group;
}
#define CASE_ATTRS(c, attr, op) \
    case_attrs(c, attr, IR_ATTR(op, strides), IR_ATTR(op, pads), IR_ATTR(op, dilations), IR_ATTR(op, group))

static void check_and_free(conv_case *c, const char *what, conv_visit *visit, k_view *result, double depth, ir_dtype in,
                           const k_view *bias, int64_t inner)
{
    double *expected = calloc((size_t)k_count(result) + 1, sizeof *expected);
    double *shift = view_values(bias);
    if (k_present(bias))
        for (int64_t i = 0; i < k_count(result); i++) expected[i] = shift[i / inner % k_count(bias)];
    case_visit(c, visit, expected);
    view_check(what, result, expected, depth, in);
    free(expected);
    free(shift);
    free(result->data);
}

static void conv_check(const conv_row *row, ir_dtype in, ir_dtype out, bool with_bias)
{
    conv_case c;
    case_init(&c, row);
    int rank = row->spatial + 2;
    int64_t inner = 1, taps = c.w[1];
    for (int i = 2; i < rank; i++) inner *= c.y[i], taps *= c.w[i];
    k_view x = view_make(in, rank, c.x), w = view_make(in, rank, c.w), y = view_make(out, rank, c.y), bias = {0};
    if (with_bias) bias = view_make(in, 1, &row->m);
    view_fill(&x);
    view_fill(&w);
    if (with_bias) view_fill(&bias);
    c.xv = view_values(&x);
    c.wv = view_values(&w);
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv);
    k_view operands[] = {x, w, bias};
    run_kernel(IR_OP_conv, operands, 3, &y, 1, attr);
    check_and_free(&c, "conv", visit_forward, &y, (double)taps, in, &bias, inner);
    free(x.data);
    free(w.data);
    free(bias.data);
    free(c.xv);
    free(c.wv);
}

static void grad_input_check(const conv_row *row, ir_dtype in, ir_dtype out)
{
    conv_case c;
    case_init(&c, row);
    int rank = row->spatial + 2;
    double taps = (double)row->m;
    for (int i = 2; i < rank; i++) taps *= (double)c.w[i];
    k_view dy = view_make(in, rank, c.y), w = view_make(in, rank, c.w), dx = view_make(out, rank, c.x), none = {0};
    view_fill(&dy);
    view_fill(&w);
    c.yv = view_values(&dy);
    c.wv = view_values(&w);
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv_grad_input);
    k_view operands[] = {dy, w};
    run_kernel(IR_OP_conv_grad_input, operands, 2, &dx, 1, attr);
    check_and_free(&c, "conv_grad_input", visit_grad_input, &dx, taps, in, &none, 1);
    free(dy.data);
    free(w.data);
    free(c.yv);
    free(c.wv);
}

static void bias_grad_check(const conv_case *c, k_view *dbias, int64_t inner, ir_dtype in)
{
    double *sum = calloc((size_t)c->row->m, sizeof *sum);
    for (int64_t i = 0; i < c->row->n * c->row->m * inner; i++) sum[i / inner % c->row->m] += c->yv[i];
    view_check("conv_grad_weight dbias", dbias, sum, (double)(c->row->n * inner), in);
    free(sum);
    free(dbias->data);
}

/* wanted: 1 dw, 2 dbias, 3 both */
static void grad_weight_check(const conv_row *row, ir_dtype in, ir_dtype out, int wanted)
{
    conv_case c;
    case_init(&c, row);
    int rank = row->spatial + 2;
    int64_t inner = 1;
    for (int i = 2; i < rank; i++) inner *= c.y[i];
    k_view dy = view_make(in, rank, c.y), x = view_make(in, rank, c.x), none = {0};
    view_fill(&dy);
    view_fill(&x);
    c.yv = view_values(&dy);
    c.xv = view_values(&x);
    k_view results[] = {view_make(out, rank, c.w), view_make(out, 1, &row->m)}, kept[] = {results[0], results[1]};
    for (int i = 0; i < 2; i++)
        if (!(wanted & 1 << i)) results[i].data = NULL;
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv_grad_weight);
    k_view operands[] = {dy, x};
    run_kernel(IR_OP_conv_grad_weight, operands, 2, results, 2, attr);
    if (wanted & 1)
        check_and_free(&c, "conv_grad_weight", visit_grad_weight, &kept[0], (double)(row->n * inner), in, &none, 1);
    else free(kept[0].data);
    if (wanted & 2) bias_grad_check(&c, &kept[1], inner, in);
    else free(kept[1].data);
    free(dy.data);
    free(x.data);
    free(c.yv);
    free(c.xv);
}

#define EACH_CONV(statement) \
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) \
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) { \
            const conv_row *row = &convs[i]; \
            ir_dtype in = types[t].in, out = types[t].out; \
            statement; \
        }

static void conv_rows(void **state)
{
    (void)state;
    EACH_CONV(conv_check(row, in, out, false); conv_check(row, in, out, true))
}

static void conv_grad_input_rows(void **state)
{
    (void)state;
    EACH_CONV(grad_input_check(row, in, out))
}

static void conv_grad_weight_rows(void **state)
{
    (void)state;
    EACH_CONV(for (int wanted = 1; wanted < 4; wanted++) grad_weight_check(row, in, out, wanted))
}

/* Returns a random number in [low, high] that depends only on `shape` and `choice`. */
static int64_t choose(uint64_t shape, uint64_t choice, int64_t low, int64_t high)
{
    return low + (int64_t)(philox_unit(philox_word(11, shape, choice)) * (float)(high - low + 1));
}

/* Draws small images with windows of any size. False: no window fits. */
static bool random_row(conv_row *r, uint64_t shape)
{
    *r = (conv_row){.spatial = (int)choose(shape, 0, 1, 3), .n = choose(shape, 1, 1, 3), .group = 1};
    r->c = choose(shape, 2, 1, 18);
    r->m = choose(shape, 3, 1, 18);
    bool fits = true, point = choose(shape, 4, 0, 2) == 0;
    for (int i = 0; i < r->spatial; i++) {
        uint64_t axis = 10 * (uint64_t)(i + 1);
        r->x[i] = choose(shape, axis, 1, point ? 15 : 6);
        r->k[i] = point ? 1 : choose(shape, axis + 1, 1, 4);
        r->strides[i] = choose(shape, axis + 2, 1, 3);
        r->dilations[i] = choose(shape, axis + 3, 1, 2);
        int64_t window = (r->k[i] - 1) * r->dilations[i] + 1;
        r->pads[i] = choose(shape, axis + 4, 0, window / 2);
        r->pads[r->spatial + i] = choose(shape, axis + 5, 0, window / 2);
        fits = fits && r->x[i] + r->pads[i] + r->pads[r->spatial + i] >= window;
    }
    return fits;
}

/* CPU only: its library has faults in code that few shapes reach. */
static void random_convs(void **state)
{
    (void)state;
    if (ops_on->device_ops) return;
    static const ir_dtype in[] = {IR_f32, IR_bf16};
    for (uint64_t shape = 0; shape < RANDOM_CONVS; shape++) {
        conv_row row;
        ir_dtype t = in[shape % 2];
        if (!random_row(&row, shape) || !ops_takes(t)) continue;
        conv_check(&row, t, IR_f32, true);
        grad_input_check(&row, t, IR_f32);
        grad_weight_check(&row, t, IR_f32, 3);
    }
}

/* A transposed convolution with output padding reads more of x than the attributes cover. */
static void conv_grad_input_output_padding(void **state)
{
    (void)state;
    int64_t y[] = {1, 2, 3, 3}, w[] = {2, 3, 3, 3}, x[] = {1, 3, 8, 8}, strides[] = {2, 2}, ones[] = {1, 1},
            none[4] = {0};
    k_view dy = view_make(IR_f32, 4, y), wv = view_make(IR_f32, 4, w), dx = view_make(IR_f32, 4, x);
    view_fill(&dy);
    view_fill(&wv);
    ir_attr attr[8] = {0};
    attr[IR_ATTR(conv_grad_input, strides)].list.items = strides;
    attr[IR_ATTR(conv_grad_input, dilations)].list.items = ones;
    attr[IR_ATTR(conv_grad_input, pads)].list.items = none;
    attr[IR_ATTR(conv_grad_input, strides)].list.count = attr[IR_ATTR(conv_grad_input, dilations)].list.count = 2;
    attr[IR_ATTR(conv_grad_input, pads)].list.count = 4;
    attr[IR_ATTR(conv_grad_input, group)].i = 1;
    k_view operands[] = {dy, wv};
    run_kernel(IR_OP_conv_grad_input, operands, 2, &dx, 1, attr);
    const float *result = dx.data;
    for (int i = 0; i < 3 * 64; i++) {
        bool beyond = i % 8 == 7 || i / 8 % 8 == 7;
        if (beyond) assert_true(result[i] == 0);
        else assert_true(isfinite(result[i]));
    }
    free(dy.data);
    free(wv.data);
    free(dx.data);
}

#define BOTH_LAYOUTS(test) \
    cmocka_unit_test(test), { #test " (channels last)", test, ops_begin_channels_last, ops_end_channels_last, NULL }

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_rows),
        cmocka_unit_test(epilogue_rows),
        cmocka_unit_test(epilogues_are_judged),
        cmocka_unit_test(nan_passes),
        BOTH_LAYOUTS(conv_rows),
        BOTH_LAYOUTS(conv_grad_input_rows),
        BOTH_LAYOUTS(conv_grad_weight_rows),
        BOTH_LAYOUTS(random_convs),
        BOTH_LAYOUTS(conv_grad_input_output_padding),
    };
    return rows_run(ops_on->name, tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
