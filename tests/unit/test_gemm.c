/* Products by own code (kernels/cpu/gemm.h) against sums in f64, for random shapes, types, strides and batches, with each
 * instruction set that the processor has, between guard zones. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"
#include "kernels/matmul.h"
#include "tests/test.h"
#include "tests/tier.h"

#include <float.h>
#include <math.h>

enum { GUARD = 4096, CASES = 160 };

static uint64_t seed;

static int64_t draw(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* ---- memory between guard zones ---------------------------------------------------------------------- */

static void *guarded(size_t bytes)
{
    char *at = malloc(bytes + 2 * GUARD);
    assert_non_null(at);
    memset(at, 0x5a, bytes + 2 * GUARD);
    return at + GUARD;
}

static void check_and_free(void *data, size_t bytes)
{
    char *at = (char *)data - GUARD;
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(at[i], 0x5a);
        assert_int_equal(at[GUARD + bytes + i], 0x5a);
    }
    free(at);
}

/* ---- a product --------------------------------------------------------------------------------------- */

typedef struct operand {
    gemm_matrix m;
    void *data;
    size_t bytes;
} operand;

/* A matrix of random numbers with `items` of them, in an order and a type that are drawn. */
static operand draw_operand(int64_t items, int64_t rows, int64_t columns)
{
    static const ir_dtype types[] = {IR_f32, IR_f32, IR_bf16, IR_f16};
    operand o = {.m = {.dtype = types[draw(4)], .as = draw(8) ? IR_NO_DTYPE : IR_bf16, .row = columns, .column = 1}};
    if (draw(2)) o.m.row = 1, o.m.column = rows;
    const int64_t count = items * rows * columns;
    o.bytes = (size_t)count * ir_dtype_size(o.m.dtype);
    o.data = guarded(o.bytes);
    o.m.data = o.data;
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(o.m.dtype, (char *)o.data + (size_t)i * ir_dtype_size(o.m.dtype),
                     (double)(draw(2001) - 1000) / 512);
    return o;
}

static double rounded(ir_dtype type, double value)
{
    uint16_t low;
    if (!ir_dtype_is_low(type)) return value;
    ir_store_f64(type, &low, value);
    return ir_load_f64(type, &low);
}

/* An element as it is multiplied. */
static double number(const gemm *g, const gemm_matrix *m, int64_t item, int64_t size, int64_t i, int64_t j)
{
    const int64_t at = item * size + i * m->row + j * m->column;
    const double value = ir_load_f64(m->dtype, (const char *)m->data + (size_t)at * ir_dtype_size(m->dtype));
    return rounded(g->type, rounded(m->as, value));
}

static bool b_is_shared(const gemm *g) { return g->batch && g->batch->b_shared[0]; }

/* The bound holds for sums in any order. A product of f16 is a sum of three, of which it lacks a part. */
static void check_sums(const gemm *g, const float *before, const float *c, int64_t ldc)
{
    const bool b_shared = b_is_shared(g);
    const double terms = (double)(g->type == IR_f16 ? 3 * g->k : g->k) + 2;
    const double bound_of_one = terms * FLT_EPSILON + (g->type == IR_f16 ? 0x1p-16 : 0);
    for (int64_t item = 0; item < g->items; item++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                const int64_t at = (item * g->m + i) * ldc + j;
                double sum = g->adds ? (double)before[at] : 0, size = fabs(sum);
                for (int64_t l = 0; l < g->k; l++) {
                    const double term = number(g, &g->a, item, g->m * g->k, i, l) *
                                        number(g, &g->b, b_shared ? 0 : item, g->k * g->n, l, j);
                    sum += term;
                    size += fabs(term);
                }
                const double error = fabs((double)c[at] - sum), bound = size * bound_of_one + 1e-30;
                if (error > bound)
                    fail_msg("[%lld,%lld] of item %lld: %g, not %g", (long long)i, (long long)j, (long long)item,
                             (double)c[at], sum);
            }
}

/* Copies the sums, so that results with and without a place for them can be compared. */
typedef struct receiver {
    float *to;
    int64_t m, ldc;
    const gemm *g; /* with the operands that fill_a and fill_b compute */
} receiver;

static void fill(const gemm *g, const gemm_matrix *m, int64_t item, int64_t size, const int64_t *at, uint16_t *to,
                 int64_t ld)
{
    for (int64_t i = 0; i < at[1]; i++)
        for (int64_t j = 0; j < at[3]; j++)
            ir_store_f64(g->type, &to[i * ld + j], number(g, m, item, size, at[0] + i, at[2] + j));
}

static void fill_a(const void *user, int64_t item, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   uint16_t *to, int64_t ld)
{
    const gemm *g = ((const receiver *)user)->g;
    fill(g, &g->a, item, g->m * g->k, (int64_t[]){row, rows, column, columns}, to, ld);
}

static void fill_b(const void *user, int64_t item, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   uint16_t *to, int64_t ld)
{
    const gemm *g = ((const receiver *)user)->g;
    fill(g, &g->b, b_is_shared(g) ? 0 : item, g->k * g->n, (int64_t[]){row, rows, column, columns}, to, ld);
}

static void receive(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows, int64_t column,
                    int64_t columns)
{
    const receiver *r = user;
    for (int64_t i = 0; i < rows; i++)
        memcpy(r->to + (item * r->m + row + i) * r->ldc + column, sums + i * ld, (size_t)columns * sizeof(float));
}

/* Runs the product and returns its result, [items * m, ldc]. */
static float *run(gemm g, const float *before, size_t bytes, int threads, bool receives)
{
    char error[200];
    const k_context ctx = {.threads = threads, .error = error, .error_size = sizeof error};
    float *c = guarded(bytes);
    const gemm whole = g;
    const receiver r = {c, g.m, g.ldc, &whole};
    if (bytes) memcpy(c, before, bytes);
    g.c = c;
    g.user = &r;
    if (receives) {
        g.c = NULL;
        g.finish = receive;
    }
    const size_t size = gemm_workspace(&g, &ctx);
    void *workspace = guarded(size);
    gemm_run(&g, workspace, &ctx);
    check_and_free(workspace, size);
    return c;
}

static void compare(const float *a, const float *b, size_t bytes) { assert_memory_equal(a, b, bytes); }

static void pack_f32(void *packed, const gemm *g, int64_t items, int threads)
{
    for (int64_t i = 0; i < items; i++) {
        float *to = (float *)packed + i * gemm_packed_size(g->k, g->n);
        gemm_matrix b = g->b;
        const int64_t half = draw(g->k + 1);
        b.data = (const char *)b.data + (size_t)(i * g->k * g->n) * ir_dtype_size(b.dtype);
        gemm_pack(to, &b, g->k, g->n, 0, half, &(k_context){.threads = threads});
        b.data = (const char *)b.data + (size_t)(half * b.row) * ir_dtype_size(b.dtype);
        gemm_pack(to, &b, g->k, g->n, half, g->k - half, &(k_context){.threads = 1});
    }
}

static void pack_low(void *packed, const gemm *g, int64_t items, int threads)
{
    gemm b = *g;
    b.items = items;
    b.batch = NULL;
    b.b_item = g->k * g->n;
    gemm_pack_low(packed, &b, &(k_context){.threads = threads});
}

/* All ways to compute the product have the same bits. */
static void check_ways(const gemm *g, const float *before, size_t bytes)
{
    const int64_t items = b_is_shared(g) ? 1 : g->items;
    const bool is_low = ir_dtype_is_low(g->type);
    const int64_t unit = gemm_packed_bytes(g->type, g->k, g->n);
    const size_t size = (size_t)(unit * items);
    float *c = run(*g, before, bytes, 1, false);
    check_sums(g, before, c, g->ldc);
    for (int way = 1; way < 6; way++) {
        gemm other = *g;
        void *packed = guarded(size);
        const bool receives = way >= 4 && !g->adds;
        if (way % 2) {
            other.packed = packed;
            other.packed_item = unit;
            (is_low ? pack_low : pack_f32)(packed, g, items, way);
        }
        if (is_low && way == 2) other.low_b = fill_b;
        if (is_low && way >= 2 && way < 4) other.low_a = fill_a;
        float *d = run(other, before, bytes, way, receives);
        if (!receives || g->ldc == g->n) compare(c, d, bytes);
        check_and_free(d, bytes);
        check_and_free(packed, size);
    }
    check_and_free(c, bytes);
}

/* A result of low type is the sums plus the bias, rounded once. */
static void check_low_result(const gemm *g)
{
    const k_context ctx = {.threads = 2};
    const size_t bytes = (size_t)(g->items * g->m * g->ldc) * sizeof(float);
    float *sums = guarded(bytes), bias[GEMM_COLUMNS * 4];
    uint16_t *low = guarded(bytes / 2);
    for (int64_t j = 0; j < g->n; j++) bias[j] = (float)draw(100) / 7;
    gemm wide = *g, narrow = *g;
    wide.adds = narrow.adds = false;
    wide.c = sums;
    narrow.low_c = low;
    if (draw(2)) narrow.bias = (gemm_matrix){bias, IR_f32, IR_NO_DTYPE, 0, 1};
    const size_t size = gemm_workspace(&narrow, &ctx), other = gemm_workspace(&wide, &ctx);
    void *workspace = guarded(size), *spare = guarded(other);
    gemm_run(&narrow, workspace, &ctx);
    gemm_run(&wide, spare, &ctx);
    for (int64_t i = 0; i < g->items * g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            const float sum = sums[i * g->ldc + j] + (narrow.bias.data ? bias[j] : 0);
            uint16_t want;
            ir_convert(g->type, &want, IR_f32, &sum, 1);
            assert_int_equal(low[i * g->ldc + j], want);
        }
    check_and_free(workspace, size);
    check_and_free(spare, other);
    check_and_free(sums, bytes);
    check_and_free(low, bytes / 2);
}

static void check_product(ir_dtype type, int64_t items, int64_t m, int64_t n, int64_t k)
{
    const bool b_shared = items > 1 && draw(2);
    product batch = {.rank = 1, .batch = {items}, .b_shared = {b_shared}};
    operand a = draw_operand(items, m, k), b = draw_operand(b_shared ? 1 : items, k, n);
    gemm g = {.type = type, .items = items, .m = m, .n = n, .k = k, .a = a.m, .b = b.m, .adds = draw(3) == 0};
    g.batch = &batch;
    g.ldc = n + (draw(2) ? 0 : draw(20));
    g.c_item = m * g.ldc;
    const size_t bytes = (size_t)(items * m * g.ldc) * sizeof(float);
    float *before = guarded(bytes);
    for (size_t i = 0; i < bytes / sizeof *before; i++) before[i] = (float)draw(100) / 7;
    check_ways(&g, before, bytes);
    if (ir_dtype_is_low(type)) check_low_result(&g);
    check_and_free(before, bytes);
    check_and_free(a.data, a.bytes);
    check_and_free(b.data, b.bytes);
}

static void check_random(ir_dtype type)
{
    static const int64_t edges[] = {0, 1, 2, 3, 13, 14, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 129};
    const int64_t n_edges = sizeof edges / sizeof *edges;
    for (int c = 0; c < CASES; c++) {
        const int64_t k = draw(4) ? edges[draw(n_edges)] : 200 + draw(400);
        check_product(type, draw(3) ? 1 : draw(4), edges[draw(n_edges)], edges[draw(n_edges)], k);
    }
    check_product(type, 1, 600, 40, 20);
    check_product(type, 1, 3, 1100, 300);
}

TEST(test_random_products)
{
    seed = 1 + tier_seed();
    for (int level = 0; level < CPU_ISA_COUNT; level++) {
        if (!cpu_isa_limit((cpu_isa_level)level)) continue;
        check_random(IR_f32);
    }
    cpu_isa_limit(CPU_ISA_COUNT - 1);
}

TEST(test_random_products_of_low_types)
{
    seed = 2 + tier_seed();
    for (ir_dtype type = IR_f16; type <= IR_bf16; type++)
        if (gemm_has(type)) check_random(type);
}

/* An element has the same bits whatever its neighbours: one row, many rows, one column, many columns. */
TEST(test_bits_of_parts)
{
    enum { M = 70, N = 100, K = 700 };
    static float a[M * K], b[K * N], whole[M * N], part[M * N];
    seed = 5;
    for (int i = 0; i < M * K; i++) a[i] = (float)draw(1000) / 999 - 0.5f;
    for (int i = 0; i < K * N; i++) b[i] = (float)draw(1000) / 999 - 0.5f;
    const k_context ctx = {.threads = 1};
    for (int level = 0; level < CPU_ISA_COUNT; level++) {
        if (!cpu_isa_limit((cpu_isa_level)level)) continue;
        gemm g = {.items = 1, .m = M, .n = N, .k = K, .a = {a, IR_f32, IR_NO_DTYPE, K, 1}, .c = whole, .ldc = N};
        g.b = (gemm_matrix){b, IR_f32, IR_NO_DTYPE, N, 1};
        void *workspace = malloc(gemm_workspace(&g, &ctx) * 2);
        assert_non_null(workspace);
        gemm_run(&g, workspace, &ctx);
        for (int round = 0; round < 10; round++) {
            const int64_t row = draw(M), column = draw(N);
            gemm h = g;
            h.m = 1 + draw(M - row);
            h.n = 1 + draw(N - column);
            h.a.data = a + row * K;
            h.b.data = b + column;
            h.c = part;
            gemm_run(&h, workspace, &ctx);
            for (int64_t r = 0; r < h.m; r++)
                assert_memory_equal(part + r * N, whole + (row + r) * N + column, (size_t)h.n * sizeof(float));
        }
        free(workspace);
    }
    cpu_isa_limit(CPU_ISA_COUNT - 1);
}

/* NaN and infinity reach the result, and only their row and column. */
TEST(test_special_numbers)
{
    enum { M = 5, N = 37, K = 9 };
    float a[M * K], b[K * N], c[M * N];
    char workspace[1 << 16];
    for (int i = 0; i < M * K; i++) a[i] = 1;
    for (int i = 0; i < K * N; i++) b[i] = 1;
    a[2 * K + 3] = NAN;
    b[4 * N + 36] = INFINITY;
    gemm g = {.items = 1, .m = M, .n = N, .k = K, .a = {a, IR_f32, IR_NO_DTYPE, K, 1}, .c = c, .ldc = N};
    g.b = (gemm_matrix){b, IR_f32, IR_NO_DTYPE, N, 1};
    const k_context ctx = {.threads = 1};
    assert_true(gemm_workspace(&g, &ctx) <= sizeof workspace);
    for (int level = 0; level < CPU_ISA_COUNT; level++) {
        if (!cpu_isa_limit((cpu_isa_level)level)) continue;
        gemm_run(&g, workspace, &ctx);
        for (int r = 0; r < M; r++)
            for (int j = 0; j < N; j++) {
                const float value = c[r * N + j];
                if (r == 2) assert_true(isnan(value));
                else if (j == 36) assert_true(isinf(value));
                else assert_true(value == K);
            }
    }
    cpu_isa_limit(CPU_ISA_COUNT - 1);
}

enum { ODD_M = 41, ODD_N = 53, ODD_K = 77 };

/* c = a b in a low type, of row-major a and b. */
static void multiply_low(ir_dtype type, const uint16_t *a, const uint16_t *b, float *c, int64_t m)
{
    static char workspace[1 << 20];
    const k_context ctx = {.threads = 1};
    gemm g = {.type = type, .items = 1, .m = m, .n = ODD_N, .k = ODD_K, .c = c, .ldc = ODD_N};
    g.a = (gemm_matrix){a, type, IR_NO_DTYPE, ODD_K, 1};
    g.b = (gemm_matrix){b, type, IR_NO_DTYPE, ODD_N, 1};
    assert_true(gemm_workspace(&g, &ctx) <= sizeof workspace);
    gemm_run(&g, workspace, &ctx);
}

static void draw_low(ir_dtype type, uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ir_store_f64(type, &x[i], (double)(draw(2001) - 1000) / 512);
}

/* With infinities, NaN and zeros in both operands, each element is what f64 says. */
static void check_specials(ir_dtype type)
{
    static const double specials[] = {INFINITY, -INFINITY, NAN, 0, 65504};
    static uint16_t a[ODD_M * ODD_K], b[ODD_K * ODD_N];
    static float c[ODD_M * ODD_N];
    draw_low(type, a, ODD_M * ODD_K);
    draw_low(type, b, ODD_K * ODD_N);
    for (int i = 0; i < 6; i++) ir_store_f64(type, &a[draw(ODD_M * ODD_K)], specials[3 + draw(2)]);
    for (int i = 0; i < 4; i++) ir_store_f64(type, &a[draw(ODD_M * ODD_K)], specials[draw(3)]);
    for (int i = 0; i < 4; i++) ir_store_f64(type, &b[draw(ODD_K * ODD_N)], specials[draw(4)]);
    multiply_low(type, a, b, c, ODD_M);
    for (int i = 0; i < ODD_M; i++)
        for (int j = 0; j < ODD_N; j++) {
            double sum = 0;
            for (int l = 0; l < ODD_K; l++)
                sum += ir_load_f64(type, &a[i * ODD_K + l]) * ir_load_f64(type, &b[l * ODD_N + j]);
            const float x = c[i * ODD_N + j];
            if (isnan(sum)) assert_true(isnan(x));
            else if (isinf(sum)) assert_true(x == (float)sum);
            else assert_true(fabs((double)x - sum) <= 1e-3 * fabs(sum) + 20);
        }
}

/* A row has the same bits alone and together with others, of which some have infinities. */
static void check_rows(ir_dtype type)
{
    static uint16_t a[ODD_M * ODD_K], b[ODD_K * ODD_N];
    static float whole[ODD_M * ODD_N], part[ODD_M * ODD_N];
    draw_low(type, a, ODD_M * ODD_K);
    draw_low(type, b, ODD_K * ODD_N);
    multiply_low(type, a, b, whole, ODD_M);
    for (int row = 0; row < ODD_M; row++) {
        multiply_low(type, a + row * ODD_K, b, part, 1 + draw(ODD_M - row));
        assert_memory_equal(part, whole + row * ODD_N, ODD_N * sizeof(float));
    }
    ir_store_f64(type, &a[5 * ODD_K + 3], INFINITY);
    multiply_low(type, a, b, part, ODD_M);
    for (int row = 0; row < ODD_M; row++)
        if (row != 5) assert_memory_equal(part + row * ODD_N, whole + row * ODD_N, ODD_N * sizeof(float));
        else assert_true(!(fabsf(part[row * ODD_N]) < INFINITY));
}

TEST(test_special_numbers_of_low_types)
{
    seed = 3 + tier_seed();
    for (ir_dtype type = IR_f16; type <= IR_bf16; type++)
        for (int i = 0; gemm_has(type) && i < 40; i++) {
            check_specials(type);
            check_rows(type);
        }
}
