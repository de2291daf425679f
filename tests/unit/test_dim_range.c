/* test_dim_range.c - maxima, minima and bounds of dimensions: the texts of common clamps, and random expressions
 * compared with their values. */
#include "dims.h"

static void canonical(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"max(0,N-5)", "max(0,N-5)"},
        {"max(N,5)", "max(0,N-5)+5"},
        {"max(0,5-N)", "-N+max(0,N-5)+5"},
        {"max(0,N)", "N"},
        {"max(0,-N)", "0"},
        {"max(0,N-2147483647)", "0"},
        {"max(3,7)", "7"},
        {"max(0,2*N-4)", "2*max(0,N-2)"},
        {"max(0,N*T-3*T)", "T*max(0,N-3)"},
        {"max(0,max(0,N-1)-2)", "max(0,N-3)"},
        {"max(0,max(0,N-1)-N+1)", "-N+max(0,N-1)+1"},
        {"max(0,N-max(0,N-5))", "N-max(0,N-5)"},
        {"max(0,N-max(0,N-5)-2)", "-max(0,N-5)+max(0,N-2)"},
        {"max(0,max(0,N-2)-max(0,N-5))", "-max(0,N-5)+max(0,N-2)"},
        {"max(0,T-N)", "-N+T+max(0,N-T)"},
        {"max(0,N-floor(N/2))", "N-floor(N/2)"},
        {"max(0,floor((N+1)/2)-N-1)", "0"},
        {"floor((max(0,2*N-1)+1)/2)", "N"},
        {"floor((max(0,N-1)+1)/2)", "floor(N/2)"},
        {"floor((max(0,N-1)+2)/2)", "max(0,floor((N+1)/2)-1)+1"},
        {"max*2", "2*\"max\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_dim d = dim(rows[i].text);
        assert_string_equal(print(d), rows[i].expected);
        assert_true(dim(print(d)) == d);
    }
}

static void bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text, *min, *max;
    } rows[] = {
        {"N-max(0,N-5)", "0", "5"}, {"N-floor(N/2)", "0", "1073741824"}, {"N-max(0,N-5)+max(0,N-9)", "0", "2147483643"},
        {"N*T*N*T*N*T", "0", "?"},  {"1-N*T*N*T*N*T", "?", "1"},         {"max(0,N-T)-N", "-2147483647", "0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(print(ir_dim_lower_bound(table, dim(rows[i].text))), rows[i].min);
        assert_string_equal(print(ir_dim_upper_bound(table, dim(rows[i].text))), rows[i].max);
    }
}

static void malformed(void **state)
{
    (void)state;
    static const char *const rows[] = {"max(0)", "max(0,N", "max(,N)", "max(0,N,T)", "max()"};
    const char *end;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(ir_dim_parse(table, rows[i], &end) == IR_DIM_NONE);
}

/* ---- random expressions ---- */

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

static void may_be_equal(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool expected;
    } rows[] = {{"3", "3", true},         {"3", "4", false},     {"N", "4", true},   {"N", "T", true},
                {"N+5", "4", false},      {"N+2", "N+4", false}, {"N*T", "6", true}, {"max(0,N-3)", "N+1", false},
                {"N", "max(0,N-3)", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ir_dim_may_equal(table, dim(rows[i].a), dim(rows[i].b)), rows[i].expected);
        assert_int_equal(ir_dim_may_equal(table, dim(rows[i].b), dim(rows[i].a)), rows[i].expected);
    }
}

static void random_values(void **state)
{
    (void)state;
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_table, close_table)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(canonical), TEST(bounds), TEST(may_be_equal), TEST(malformed),
                                       TEST(random_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
