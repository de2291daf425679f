/* test_dim.c - dimension expressions at their limits; tests/expect/ir/dim.rows has what they are and print. */
#include "ir/ops/dim.h"
#include "tests/test.h"

static arena *memory;
static ir_dim_table *table;

static int open_table(void **state)
{
    (void)state;
    memory = arena_new(0);
    table = ir_dim_table_new(memory);
    return 0;
}

static int close_table(void **state)
{
    (void)state;
    arena_free(memory);
    return 0;
}

/* Parses an expression. "?" is the unknown dimension. */
static ir_dim dim(const char *text)
{
    const char *end;
    if (!strcmp(text, "?")) return IR_DIM_NONE;
    ir_dim d = ir_dim_parse(table, text, &end);
    assert_true(d != IR_DIM_NONE);
    assert_string_equal(end, "");
    return d;
}

static const char *print(ir_dim d) { return ir_dim_print(table, d, memory); }

#define TEST_DIM(name) TEST_WITH(open_table, close_table, void *unused, name)

/* The order of terms and atoms is independent of the order in which symbols were created. */
TEST_DIM(test_order_is_stable)
{
    static const char *const texts[] = {"A*B+B*C+floor(A/2)*C+A+2", "N*floor((T+1)/2)+N*T+T"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        table = ir_dim_table_new(memory);
        const char *first = print(dim(texts[i]));
        table = ir_dim_table_new(memory);
        dim("floor(T/2)+T+N+C+B+A");
        assert_string_equal(print(dim(texts[i])), first);
    }
}

TEST_DIM(test_deep)
{
    char deep[200];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    const char *end;
    assert_true(ir_dim_parse(table, deep, &end) == IR_DIM_NONE);
}

TEST_DIM(test_limits)
{
    assert_true(ir_dim_number(INT64_MIN) == IR_DIM_LOWEST);
    assert_true(ir_dim_floordiv(table, IR_DIM_NONE, 2) == IR_DIM_NONE);
    ir_dim dims[] = {dim("N"), 2, dim("T")};
    assert_string_equal(print(ir_dim_product(table, dims, 3)), "2*N*T");
    assert_int_equal(ir_dim_product(table, dims, 0), 1);
}

/* Too many terms, too high a degree and too deep a nesting yield "no such dimension" instead of a crash. */
TEST_DIM(test_bounds)
{
    ir_dim sum = 0, nested = dim("N"), n = dim("N"), square = n;
    for (int i = 0; i < 100; i++) {
        const char *name = arena_printf(memory, "s%d", i);
        sum = ir_dim_add(table, sum, ir_dim_symbol(table, name));
        nested = ir_dim_floordiv(table, ir_dim_add(table, nested, ir_dim_mul(table, nested, n)), 7);
        square = ir_dim_mul(table, square, square);
    }
    assert_true(sum == IR_DIM_NONE && nested == IR_DIM_NONE && square == IR_DIM_NONE);
    ir_dim chain = n;
    for (int i = 0; i < 1000; i++) chain = ir_dim_floordiv(table, ir_dim_add(table, chain, 1), 2);
    print(chain);
    for (int i = 0; i < 5000; i++) assert_true(ir_dim_is_symbolic(ir_dim_add(table, n, i + 1)));
    assert_true(ir_dim_add(table, n, 4000) == dim("N+4000"));
}

TEST_DIM(test_no_value)
{
    dim("N+T+U");
    int64_t got;
    size_t unbound = 0;
    const int64_t huge[] = {INT64_MAX, 3, 1};
    assert_false(ir_dim_eval(table, dim("N*T"), huge, &got, &unbound));
    assert_true(unbound == SIZE_MAX);
    assert_false(ir_dim_eval(table, IR_DIM_NONE, huge, &got, NULL));
    assert_int_equal(ir_dim_symbol_count(table), 3);
}

TEST_DIM(test_no_solution)
{
    int64_t huge[] = {INT64_MAX, 3, -1, -1}; /* an overflow has no symbol to solve for */
    assert_false(ir_dim_solve(table, dim("N*T"), 6, huge));
}

/* ---- random expressions, their bounds and texts, compared with their values ---- */

enum { SIZES = 9, SYMBOLS = 3, LEAVES = 6, POOL = 24, LARGE = 1 << 20 };
static const int64_t some_sizes[SIZES] = {0, 1, 2, 3, 4, 5, 7, 16, 1000};

static uint64_t random_state;

static int64_t any(int64_t n) /* in [0,n) */
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

typedef struct sample { /* a dimension and its value for the sizes of this run */
    ir_dim d;
    int64_t value;
} sample;

static sample combine(const sample *a, const sample *b)
{
    const int64_t k = 1 + any(4), q = a->value / k - (a->value % k < 0);
    switch (any(6)) {
    case 0: return (sample){ir_dim_add(table, a->d, b->d), a->value + b->value};
    case 1: return (sample){ir_dim_sub(table, a->d, b->d), a->value - b->value};
    case 2: return (sample){ir_dim_floordiv(table, a->d, k), q};
    case 3: return (sample){ir_dim_mul(table, a->d, b->d), a->value * b->value};
    case 4: return (sample){ir_dim_max(table, a->d, b->d), a->value > b->value ? a->value : b->value};
    default: return (sample){ir_dim_min(table, a->d, b->d), a->value < b->value ? a->value : b->value};
    }
}

static void check_sample(const sample *s, const int64_t *sizes)
{
    int64_t value = 0;
    const char *text = print(s->d);
    const ir_dim min = ir_dim_lower_bound(table, s->d), max = ir_dim_upper_bound(table, s->d);
    if (!ir_dim_eval(table, s->d, sizes, &value, NULL) || value != s->value)
        fail_msg("%s is %lld, not %lld, with %lld %lld %lld", text, (long long)value, (long long)s->value,
                 (long long)sizes[0], (long long)sizes[1], (long long)sizes[2]);
    if ((min != IR_DIM_NONE && value < min) || (max != IR_DIM_NONE && value > max))
        fail_msg("%s is %lld, outside of %lld to %lld", text, (long long)value, (long long)min, (long long)max);
    if (dim(text) != s->d) fail_msg("%s reads as %s", text, print(dim(text)));
}

TEST_DIM(test_random_values)
{
    for (int seed = 0; seed < 300; seed++) {
        random_state = (uint64_t)seed;
        sample pool[POOL];
        int64_t sizes[SYMBOLS];
        table = ir_dim_table_new(memory);
        for (int i = 0; i < SYMBOLS; i++) {
            sizes[i] = some_sizes[any(SIZES)];
            pool[i] = (sample){ir_dim_symbol(table, (const char *[]){"N", "T", "A"}[i]), sizes[i]};
        }
        for (int i = SYMBOLS; i < POOL; i++) {
            const int64_t number = any(12) - 3;
            pool[i] = i < LEAVES ? (sample){number, number} : combine(&pool[any(i)], &pool[any(i)]);
            const bool small = pool[i].value < LARGE && pool[i].value > -LARGE;
            if (pool[i].d == IR_DIM_NONE || !small) pool[i] = pool[any(LEAVES)];
            check_sample(&pool[i], sizes);
        }
        arena_clear(memory);
    }
}
