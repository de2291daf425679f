/* test_ops_matmul.c - matmul against f64 sums over the rounded operands.
 *
 * A row is a shape. It runs in every float type, with and without bias, and with f32 results of low-precision
 * operands. Results are initialized to NaN. Epilogues are tested in many forms: for each one the device must report the
 * expected support, and must then run or reject it. */
#include "kernels/epilogue.h"
#include "tests/ops/products.h"
#include "tests/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/base/philox.h"

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
    {2, 2, {66, 3}, {3, 1280}}, /* is_slow_when_plain in kernels/cpu/matmul.c */
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

/* Every algorithm that cuBLASLt proposes is right, since tuning may choose any. */
static void every_algorithm(void **state)
{
    (void)state;
    if (!ops_on->device_ops) return;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t))
            for (int flags = 0; flags < 8 && (part_has_row(i) || i == 0); flags++)
                EACH_CANDIDATE(product_check(&products[i], types[t].in, types[t].out, flags & 1, flags & 2, flags & 4))
    check_candidates();
}

/* ---- matmul epilogues ------------------------------------------------------------------------ */

enum { AT_X = 3 + K_SLOT(epilogue, x), AT_ADDEND = 3 + K_SLOT(epilogue, addend) };
enum { N_IN = 3 + K_SLOT(epilogue, n_in), N_OUT = 1 + K_SLOT(epilogue, n_out) };

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
    {IR_OP_gelu, true, K_PART_ADDEND},
    {IR_OP_slope, true, K_PART_X},
    {IR_OP_slope, true, K_PART_X | K_PART_BIAS},
    {IR_OP_slope, false, K_PART_X},
    {IR_OP_relu, false, 0},
    {IR_OP_relu, false, K_PART_BIAS},
    {IR_OP_tanh, false, 0},
    {IR_OP_COUNT, false, K_PART_ADDEND},
    {IR_OP_COUNT, false, K_PART_ADDEND | K_PART_BIAS},
    {IR_OP_COUNT, false, K_PART_ADDEND | K_PART_SUM_B},
    {IR_OP_COUNT, false, K_PART_AUX},
    {IR_OP_COUNT, false, K_PART_SUM_A},
    {IR_OP_COUNT, false, K_PART_SUM_B},
    {IR_OP_COUNT, false, K_PART_SUM_A | K_PART_SUM_B},
    {IR_OP_COUNT, false, K_PART_SUM_B | K_PART_BIAS},
    {IR_OP_COUNT, false, 0},
};

typedef struct epilogue_size {
    int64_t m, n, k, batch;
} epilogue_size;

static const epilogue_size sizes[] = {{1, 1, 1, 1},  {1, 8, 7, 1},    {7, 8, 9, 1},    {8, 7, 33, 1},
                                      {9, 33, 8, 1}, {33, 128, 7, 1}, {128, 9, 33, 1}, {33, 8, 128, 1},
                                      {8, 16, 4, 3}, {5, 8, 0, 1},    {0, 8, 5, 1}};
enum { N_SIZES = sizeof sizes / sizeof *sizes, N_EPILOGUES = sizeof epilogues / sizeof *epilogues };

/* Returns whether the device is expected to support the epilogue. */
static bool is_supported(const epilogue_row *e, int size, int t)
{
    const unsigned matrices = K_PART_X | K_PART_AUX, sums = K_PART_SUM_A | K_PART_SUM_B;
    const bool plain = e->tail == IR_OP_COUNT && !(e->parts & ~(unsigned)K_PART_BIAS);
    if (plain) return true;
    if (sizes[size].m == 0 || sizes[size].k == 0 || e->tail == IR_OP_relu || e->tail == IR_OP_tanh) return false;
    if (!ops_on->device_ops)
        return e->tail == IR_OP_gelu && !(e->parts & ~(unsigned)K_PART_BIAS) && types[t].in != IR_f64;
    if (e->parts & (matrices | sums) &&
        (sizes[size].batch > 1 || (types[t].in != types[t].out && types[t].out != IR_f32)))
        return false;
    if (e->parts & matrices && sizes[size].n % 8) return false;
    if (e->parts & K_PART_ADDEND) {
        const bool is_alone = e->tail == IR_OP_COUNT && !(e->parts & (matrices | sums));
        return is_alone && (types[t].in == types[t].out || types[t].out == IR_f32);
    }
    if (e->tail == IR_OP_COUNT) return e->parts == K_PART_SUM_A || e->parts == K_PART_SUM_B;
    if (e->tail == IR_OP_slope) return e->tanh && e->parts == K_PART_X;
    return e->tanh && !(e->parts & sums);
}

/* cuBLASLt sums the operand that is its B only if it reads it transposed (recorded on an H200), and perhaps its A only if
 * it does not; plans then sum in a separate step. */
static bool may_be_refused(const epilogue_row *e, bool ta, bool tb)
{
    return (e->parts & K_PART_SUM_A && !ta) || (e->parts & K_PART_SUM_B && tb);
}

/* A call with everything that a row requests. */
typedef struct epilogue_case {
    const epilogue_row *row;
    ir_dtype type; /* of the operands */
    k_view in[N_IN], out[N_OUT];
    ir_attr attr[3], tail_attr[IR_DERIVATIVE_ATTRS];
    k_fused fused;
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
    c->tail_attr[0].i = e->tail == IR_OP_slope ? (e->tanh ? IR_WORD(function, gelu_tanh) : IR_WORD(function, gelu))
                                               : e->tanh;
    c->fused.count = k_count(&c->out[0]);
    c->fused.n_code = c->fused.n_results = 1;
    c->fused.code[0] = (k_instruction){
        .op = e->tail, .type = c->out[0].dtype, .attr = c->tail_attr, .n_arg = 1, .arg = {K_ACCUMULATOR}};
    c->fused.results[0] = (k_result){.from = 0, .fold = K_EACH};
    if (!(e->parts & K_PART_X)) return;
    c->fused.operands[c->fused.n_operands++] = (k_operand){.in = ir_op_get(IR_OP_matmul)->n_in + K_SLOT(epilogue, x),
                                                           .dense = true};
    c->fused.code[0].arg[c->fused.code[0].n_arg++] = ~0;
}

static void epilogue_make(epilogue_case *c, const epilogue_row *e, const epilogue_size *size, int t, bool ta, bool tb)
{
    const int64_t m = size->m, n = size->n, k = size->k, batch = size->batch;
    const ir_dtype in = types[t].in, out = types[t].out;
    const int rank = batch > 1 ? 3 : 2;
    const int64_t a[] = {batch, ta ? k : m, ta ? m : k}, b[] = {batch, tb ? n : k, tb ? k : n}, y[] = {batch, m, n};
    *c = (epilogue_case){.row = e, .type = in};
    c->in[0] = part_make(e, 0, in, rank, a + 3 - rank);
    c->in[1] = part_make(e, 0, in, rank, b + 3 - rank);
    c->in[2] = part_make(e, K_PART_BIAS, in, 1, &n);
    c->in[AT_X] = part_make(e, K_PART_X, out, rank, y + 3 - rank);
    c->in[AT_ADDEND] = part_make(e, K_PART_ADDEND, out, rank, y + 3 - rank);
    c->out[0] = part_make(e, 0, out, rank, y + 3 - rank);
    c->out[1 + K_SLOT(epilogue, aux)] = part_make(e, K_PART_AUX, out, rank, y + 3 - rank);
    c->out[1 + K_SLOT(epilogue, sum_a)] = part_make(e, K_PART_SUM_A, out, 1, &m);
    c->out[1 + K_SLOT(epilogue, sum_b)] = part_make(e, K_PART_SUM_B, out, 1, &n);
    for (int i = 0; i < N_IN; i++)
        if (k_present(&c->in[i])) view_fill(&c->in[i]);
    c->attr[IR_ATTR(matmul, trans_a)].i = ta;
    c->attr[IR_ATTR(matmul, trans_b)].i = tb;
    c->attr[IR_ATTR(matmul, out)].dtype = in == out ? IR_NO_DTYPE : out;
    if (e->tail != IR_OP_COUNT) tail_make(c);
    c->ctx = (k_context){.threads = THREADS, .error = c->error, .error_size = sizeof c->error};
    c->args = (k_args){.op = IR_OP_matmul,
                       .in = c->in,
                       .out = c->out,
                       .n_in = N_IN,
                       .n_out = N_OUT,
                       .attr = c->attr,
                       .fused = e->tail == IR_OP_COUNT ? NULL : &c->fused,
                       .ctx = &c->ctx};
}

static void epilogue_free(const epilogue_case *c)
{
    for (int i = 0; i < N_IN; i++) free(c->in[i].data);
    for (int i = 0; i < N_OUT; i++) free(c->out[i].data);
}

static double gelu(double x, bool by_tanh)
{
    if (!by_tanh) return x * 0.5 * (1 + erf(x * sqrt(0.5)));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, bool by_tanh) { return (gelu(x + 1e-6, by_tanh) - gelu(x - 1e-6, by_tanh)) / 2e-6; }

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
    double *values = product_expect(&c->in[0], &c->in[1], &c->in[2], &c->out[0], ta, tb);
    double *x = view_values(&c->in[AT_X]), *addend = view_values(&c->in[AT_ADDEND]);
    if (c->row->parts & K_PART_AUX) view_check("start", &c->out[1 + K_SLOT(epilogue, aux)], values, (double)k, c->type);
    if (c->row->parts & K_PART_SUM_A) sum_check(c, &c->in[0], ta, &c->out[1 + K_SLOT(epilogue, sum_a)]);
    if (c->row->parts & K_PART_SUM_B) sum_check(c, &c->in[1], !tb, &c->out[1 + K_SLOT(epilogue, sum_b)]);
    for (int64_t i = 0; i < k_count(&c->out[0]); i++)
        values[i] = c->row->tail == IR_OP_gelu      ? gelu(values[i], c->row->tanh)
                    : c->row->tail == IR_OP_slope   ? values[i] * gelu_slope(x[i], c->row->tanh)
                    : c->row->parts & K_PART_ADDEND ? values[i] + addend[i]
                                                    : values[i];
    const bool by_erf = c->row->tail == IR_OP_gelu && !c->row->tanh;
    /* oneDNN 3 computes erf with an error of 1e-6, cuBLASLt gelu with more (1.3e-6 seen on an H200). */
    view_check("epilogue", &c->out[0], values, (double)k + (by_erf ? 16 : c->row->tanh ? 64 : 0), c->type);
    free(values);
    free(x);
    free(addend);
}

static void epilogue_rows(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES * N_EPILOGUES * 4; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) {
            const epilogue_row *e = &epilogues[i / 4 % N_EPILOGUES];
            const int size = i / 4 / N_EPILOGUES;
            epilogue_case c;
            epilogue_make(&c, e, &sizes[size], t, i & 1, i & 2);
            bool expected = is_supported(e, size, t), absorbed = ops_absorbs(&c.args);
            if (expected && may_be_refused(e, i & 1, i & 2)) expected = absorbed;
            if (absorbed != expected)
                fail_msg("epilogue %td, size %d, %s->%s: %d '%s'", e - epilogues, size, ir_dtype_name(types[t].in),
                         ir_dtype_name(types[t].out), absorbed, c.error);
            assert_int_equal(ops_run(&c.args, false, 2), expected ? AMPC_OK : AMPC_UNSUPPORTED);
            if (expected) epilogue_check(&c, sizes[size].k);
            epilogue_free(&c);
        }
}

/* Result 0 may overwrite the addend, which changes no bit. */
static void addend_is_overwritten(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES * N_EPILOGUES; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) {
            const epilogue_row *e = &epilogues[i % N_EPILOGUES];
            const int size = i / N_EPILOGUES;
            if (!(e->parts & K_PART_ADDEND) || !is_supported(e, size, t)) continue;
            epilogue_case c;
            epilogue_make(&c, e, &sizes[size], t, false, false);
            const size_t bytes = k_bytes(&c.out[0]);
            void *addend = c.in[AT_ADDEND].data, *expected = malloc(bytes);
            assert_int_equal(ops_run(&c.args, false, 1), AMPC_OK);
            memcpy(expected, c.out[0].data, bytes);
            memcpy(c.out[0].data, addend, bytes);
            c.in[AT_ADDEND].data = c.out[0].data;
            assert_int_equal(ops_run(&c.args, false, 1), AMPC_OK);
            assert_memory_equal(c.out[0].data, expected, bytes);
            c.in[AT_ADDEND].data = addend;
            free(expected);
            epilogue_free(&c);
        }
}

/* Exact GELU in large products of low types is left to cuDNN, which compiles a kernel for each form and configuration. */
static const epilogue_size large = {1032, 1024, 8, 1};

static bool exact_gelu_is_right(const epilogue_row *e, int t, bool ta, bool tb, int candidate)
{
    epilogue_case c;
    epilogue_make(&c, e, &large, t, ta, tb);
    c.ctx.candidate = candidate;
    const bool there = ops_absorbs(&c.args);
    if (there) assert_int_equal(ops_run(&c.args, false, 2), AMPC_OK);
    if (there) epilogue_check(&c, large.k);
    epilogue_free(&c);
    return there;
}

static void exact_gelu(void **state)
{
    static const epilogue_row rows[] = {{IR_OP_gelu, false, K_PART_BIAS | K_PART_AUX},
                                        {IR_OP_slope, false, K_PART_X},
                                        {IR_OP_gelu, false, K_PART_AUX},
                                        {IR_OP_gelu, false, K_PART_BIAS}};
    enum { FORMS = sizeof rows / sizeof *rows, OFTEN = 2 /* the forms that training needs */ };
    (void)state;
    if (!ops_on->device_ops) skip();
    for (int t = next_types(-1), i = 0; t < N_TYPES; t = next_types(t)) {
        const bool low = types[t].in == types[t].out && ir_dtype_size(types[t].in) == 2;
        for (int form = 0; form < FORMS; form++, i++) {
            const bool all = part_has_row((size_t)form);
            if (form < OFTEN || all) assert_int_equal(exact_gelu_is_right(&rows[form], t, i & 1, i & 2, 0), low);
            for (int k = 1; low && all && exact_gelu_is_right(&rows[form], t, i & 1, i & 2, k); k++) continue;
        }
    }
}

static void small_or_odd_gelu_is_left(void **state)
{
    static const epilogue_row row = {IR_OP_gelu, false, K_PART_BIAS};
    static const epilogue_size left[] = {{1023, 1024, 8, 1}, {1032, 1025, 8, 1}, {1032, 1024, 9, 1}, {516, 1024, 8, 2}};
    (void)state;
    if (!ops_on->device_ops) skip();
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) {
            epilogue_case c;
            epilogue_make(&c, &row, &left[i], t, false, false);
            assert_false(ops_absorbs(&c.args));
            epilogue_free(&c);
        }
}

/* The device rejects epilogues whose description does not match the operands. */
static void epilogues_are_judged(void **state)
{
    enum { ROW = 9, SIZE = 2, F32 = 1 }; /* the slope of gelu with tanh */
    epilogue_case c;
    (void)state;
    if (!ops_on->device_ops) skip();
#define JUDGED(change, taken) \
    epilogue_make(&c, &epilogues[ROW], &sizes[SIZE], F32, true, false); \
    change; \
    assert_int_equal(ops_absorbs(&c.args), taken); \
    epilogue_free(&c)
    JUDGED((void)0, true);
    JUDGED(c.fused.code[0].type = IR_f16, false);
    JUDGED(c.fused.code[0].arg[0] = ~0, false);
    JUDGED(c.fused.code[0].arg[1] = K_ACCUMULATOR, false);
    JUDGED(c.fused.operands[0].dense = false, false);
    JUDGED(c.fused.operands[0].in = 0, false);
    JUDGED(c.fused.count--, false);
    JUDGED(c.fused.commits = true, false);
    JUDGED(c.fused.n_code = 2, false);
    JUDGED(c.fused.results[0].fold = K_ROW_SUM, false);
    JUDGED(c.in[AT_X].dtype = IR_f16, false);
    JUDGED(c.in[AT_X].dims[0]--, false);
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
            epilogue_make(&c, &epilogues[i], &sizes[SIZE], t, false, false);
            ir_store_f64(c.type, c.in[0].data, NAN);
            const bool runs = is_supported(c.row, SIZE, t) && !may_be_refused(c.row, false, false);
            if (runs) assert_int_equal(ops_run(&c.args, false, 1), AMPC_OK);
            double *values = view_values(&c.out[0]);
            for (int64_t k = 0; k < k_count(&c.out[0]) && runs; k++)
                assert_int_equal(isnan(values[k]) != 0, k < sizes[SIZE].n);
            free(values);
            epilogue_free(&c);
        }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_rows),
        cmocka_unit_test(epilogue_rows),
        cmocka_unit_test(epilogues_are_judged),
        cmocka_unit_test(exact_gelu),
        cmocka_unit_test(small_or_odd_gelu_is_left),
        cmocka_unit_test(nan_passes),
        cmocka_unit_test(every_algorithm),
        cmocka_unit_test(addend_is_overwritten),
        OPS_PACKED(matmul_rows),
    };
    return rows_run(ops_on->name, tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
