/* test_dim.c - dimension expressions: canonical form, arithmetic, evaluation, text. */
#include "dims.h"

/* All spellings of an expression have the same canonical text. */
static void test_canonical(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"0", "0"},
        {"64", "64"},
        {"-3", "-3"},
        {"N", "N"},
        {"-N", "-N"},
        {"N-N", "0"},
        {"2+N+3", "N+5"},
        {"T*N", "N*T"},
        {"1+N*T*2", "2*N*T+1"},
        {"N*(T+1)-T*N", "N"},
        {"(N+1)*(N-1)", "N*N-1"},
        {"A+B*B+C*C*C", "C*C*C+B*B+A"},
        {"B+A", "A+B"},
        {"floor(N/2)", "floor(N/2)"},
        {"floor(N/1)", "N"},
        {"floor(4*N/2)", "2*N"},
        {"floor((4*N+6)/2)", "2*N+3"},
        {"floor((4*N+7)/2)", "2*N+3"},
        {"floor((3*N+1)/2)", "N+floor((N+1)/2)"},
        {"floor((N-1)/2)+1", "floor((N+1)/2)"},
        {"floor((N+5)/2)", "floor((N+1)/2)+2"},
        {"floor((2*N+1)/4)", "floor(N/2)"},
        {"floor((2*N+3)/4)", "floor((N+1)/2)"},
        {"floor(floor(N/2)/2)", "floor(N/4)"},
        {"floor((floor((N+1)/2)+1)/2)", "floor((N+3)/4)"},
        {"floor(-N/2)", "-N+floor(N/2)"},
        {"floor(N/2)*2+floor(N/2)", "3*floor(N/2)"},
        {"floor((N*T+T)/3)", "floor((N*T+T)/3)"},
        {"floor(7/2)", "3"},
        {"floor(-7/2)", "-4"},
        {"floor+1", "\"floor\"+1"},
        {"\"batch size\"*2", "2*\"batch size\""},
        {"\"N\"", "N"},
        {"\"2N\"", "\"2N\""},
        {"\"a\\\"b\\\\c\"", "\"a\\\"b\\\\c\""},
        {"\"\\n\"", "\"\\u000a\""},
        {"\"\\u00e9\"", "\"\xc3\xa9\""},
        {"\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
        {"\"\\udb40\\udc01\"", "\"\\udb40\\udc01\""},
        {"\"\\u20AC\"", "\"\xe2\x82\xac\""},
        {"_x.1", "_x.1"},
        {"9223372036854775807", "9223372036854775807"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_dim d = dim(rows[i].text);
        assert_string_equal(print(d), rows[i].expected);
        assert_true(dim(print(d)) == d);
    }
}

/* The order of terms and atoms is independent of the order in which symbols were created. */
static void test_order_is_stable(void **state)
{
    (void)state;
    static const char *const texts[] = {"A*B+B*C+floor(A/2)*C+A+2", "N*floor((T+1)/2)+N*T+T"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        table = ir_dim_table_new(memory);
        const char *first = print(dim(texts[i]));
        table = ir_dim_table_new(memory);
        dim("floor(T/2)+T+N+C+B+A");
        assert_string_equal(print(dim(texts[i])), first);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t stop;
    } rows[] = {
        {"", 0},           {"+N", 0},         {"N+", 2},        {"N**T", 2},        {"floor(N)", 7},
        {"floor(N/0)", 9}, {"floor(N/T)", 8}, {"floor(N/2", 9}, {"(N", 2},          {"\"N", 2},
        {"\"\"", 2},       {"\"\\x\"", 2},    {"\"\\u00\"", 2}, {"\"\\ud800\"", 2}, {"9223372036854775808", 18},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *end;
        assert_true(ir_dim_parse(table, rows[i].text, &end) == IR_DIM_NONE);
        assert_int_equal(end - rows[i].text, rows[i].stop);
    }
    char deep[200];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    const char *end;
    assert_true(ir_dim_parse(table, deep, &end) == IR_DIM_NONE);
}

static void test_stops_after_the_expression(void **state)
{
    (void)state;
    const char *end;
    assert_true(ir_dim_parse(table, "N*2,T]", &end) == dim("2*N"));
    assert_string_equal(end, ",T]");
}

static void test_arithmetic(void **state)
{
    (void)state;
    static const struct {
        char op;
        const char *a, *b, *expected;
    } rows[] = {
        {'+', "N", "2*N+1", "3*N+1"},
        {'+', "9223372036854775807", "1", "?"},
        {'+', "?", "1", "?"},
        {'-', "N*T", "N", "N*T-N"},
        {'-', "N", "N", "0"},
        {'*', "0", "N", "0"},
        {'*', "N+1", "T+2", "N*T+2*N+T+2"},
        {'*', "9223372036854775807", "2", "?"},
        {'*', "9223372036854775807*N", "2", "?"},
        {'*', "A*A*A*A*A", "A*A*A*A*A", "?"},
        {'/', "6", "3", "2"},
        {'/', "7", "3", "?"},
        {'/', "N", "0", "?"},
        {'/', "0", "N", "0"},
        {'/', "6*N*T", "3*N", "2*T"},
        {'/', "6*N*T", "4*N", "?"},
        {'/', "N", "T", "?"},
        {'/', "N*T+T", "N+1", "T"},
        {'/', "N*N-1", "N+1", "N-1"},
        {'/', "N*N", "N+1", "?"},
        {'/', "12*floor(N/2)", "floor(N/2)", "12"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_dim a = dim(rows[i].a), b = dim(rows[i].b), got;
        switch (rows[i].op) {
        case '+': got = ir_dim_add(table, a, b); break;
        case '-': got = ir_dim_sub(table, a, b); break;
        case '*': got = ir_dim_mul(table, a, b); break;
        default: got = ir_dim_div(table, a, b); break;
        }
        assert_string_equal(print(got), rows[i].expected);
    }
    assert_true(ir_dim_number(INT64_MIN) == IR_DIM_LOWEST);
    assert_true(ir_dim_floordiv(table, IR_DIM_NONE, 2) == IR_DIM_NONE);
    ir_dim dims[] = {dim("N"), 2, dim("T")};
    assert_string_equal(print(ir_dim_product(table, dims, 3)), "2*N*T");
    assert_int_equal(ir_dim_product(table, dims, 0), 1);
}

/* Too many terms, too high a degree and too deep a nesting yield "no such dimension" instead of a crash. */
static void test_bounds(void **state)
{
    (void)state;
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

static void test_minimum(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"5", "5"},
        {"-5", "-5"},
        {"N", "0"},
        {"N+3", "3"},
        {"N-3", "-3"},
        {"3-N", "-2147483644"},
        {"floor((N+5)/2)", "2"},
        {"N*T+1", "1"},
        {"floor((N+1)/2)", "0"},
        {"(N+1)*(T+2)", "2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(print(ir_dim_lower_bound(table, dim(rows[i].text))), rows[i].expected);
}

static void test_values(void **state)
{
    (void)state;
    dim("N+T+U");
    static const int64_t sizes[] = {5, 3, -1};
    static const struct {
        const char *text;
        int64_t expected;
    } rows[] = {
        {"7", 7},      {"N*T+1", 16},          {"floor((N+1)/2)*4", 12}, {"floor((N-8)/2)", -2},
        {"N*U+T", -1}, {"floor((U+N)/5)", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t got = 0;
        size_t unbound = 99;
        bool known = ir_dim_eval(table, dim(rows[i].text), sizes, &got, &unbound);
        if (!known) {
            assert_int_equal(unbound, 2);
            assert_string_equal(ir_dim_symbol_name(table, unbound), "U");
        } else {
            assert_int_equal(got, rows[i].expected);
        }
    }
    int64_t got;
    size_t unbound = 0;
    const int64_t huge[] = {INT64_MAX, 3, 1};
    assert_false(ir_dim_eval(table, dim("N*T"), huge, &got, &unbound));
    assert_true(unbound == SIZE_MAX);
    assert_false(ir_dim_eval(table, IR_DIM_NONE, sizes, &got, NULL));
    assert_int_equal(ir_dim_symbol_count(table), 3);
}

static void test_solve(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value, expected; /* -1: no solution */
    } rows[] = {
        {"U", 7, 7},
        {"128*U", 384, 3},
        {"128*U", 385, -1},
        {"3*U+2", 11, 3},
        {"N*U", 20, 4},
        {"N*U*T+1", 61, 4},
        {"U*U", 9, -1},
        {"floor((U+1)/2)", 3, -1},
        {"U-3", -1, 2},
        {"10-U", 4, 6},
        {"10-U", 11, -1},
        {"U", -1, -1},
        {"floor((U+1)/2)", 1, -1},
        {"U-max(0,U-5)", 3, -1},
        {"U+floor(N/2)", 9, 7},
        {"U+max(0,N-1)", 9, 5},
        {"N", 5, -1},
        {"U*V", 6, -1},
        {"N*N*N*U", 125, 1},
        {"N-N*U", INT64_MIN, -1},
    };
    (void)dim("N+T+U+V");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t sizes[] = {5, 3, -1, -1};
        bool solved = ir_dim_solve(table, dim(rows[i].text), rows[i].value, sizes);
        if (solved != (rows[i].expected >= 0) || sizes[2] != rows[i].expected)
            fail_msg("%s = %lld: %d, %lld", rows[i].text, (long long)rows[i].value, solved, (long long)sizes[2]);
        assert_true(sizes[0] == 5 && sizes[1] == 3 && sizes[3] == -1);
    }
    int64_t huge[] = {INT64_MAX, 3, -1, -1}; /* an overflow has no symbol to solve for */
    assert_false(ir_dim_solve(table, dim("N*T"), 6, huge));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_canonical, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_order_is_stable, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_malformed, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_stops_after_the_expression, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_arithmetic, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_bounds, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_minimum, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_values, open_table, close_table),
        cmocka_unit_test_setup_teardown(test_solve, open_table, close_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
