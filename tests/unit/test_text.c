/* test_text.c - numbers as text, printing modules that only the builder can make, parsing from memory and files.
 * tests/expect/ir tests the text forms themselves. */
#include "ir/graph/ir.h"
#include "ir/ops/number.h"
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

typedef struct fixture {
    arena *arena;
    diag *diag;
    ir_module *module;
    jmp_buf guard;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->arena = arena_new(0);
    f->diag = diag_new(NULL, NULL);
    f->module = ir_module_new();
    if (setjmp(f->guard)) abort();
    arena_set_guard(f->arena, &f->guard);
    arena_set_guard(f->module->arena, &f->guard);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ir_module_free(f->module);
    diag_free(f->diag);
    arena_free(f->arena);
    free(f);
    return 0;
}

/* ---- numbers --------------------------------------------------------------------------------------------- */

TEST(test_float_texts)
{
    static const struct {
        ir_dtype type;
        double value;
        const char *want;
    } rows[] = {
        {IR_f64, 0, "0"},
        {IR_f64, -0.0, "-0"},
        {IR_f64, 2000, "2000"},
        {IR_f64, 0.1, "0.1"},
        {IR_f32, 0.1f, "0.1"},
        {IR_f64, 0.1f, "0.10000000149011612"},
        {IR_f64, 1e-5, "1e-5"},
        {IR_f64, 1e300, "1e300"},
        {IR_f64, 65536, "65536"},
        {IR_f16, 0.333251953125, "0.3333"},
        {IR_f64, -INFINITY, "-inf"},
        {IR_f64, NAN, "nan"},
        {IR_f64, 5e-324, "5e-324"},
        {IR_f32, 16777216, "16777216"},
        {IR_f64, 1e15, "1e15"},
        {IR_f64, 123456.75, "123456.75"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[IR_NUMBER_SIZE];
        ir_float_print(text, rows[i].type, rows[i].value);
        assert_string_equal(text, rows[i].want);
    }
}

/* Every pattern of both 16-bit types either round-trips or is reported as lossy. */
TEST(test_16_bit_elements)
{
    static const ir_dtype types[] = {IR_f16, IR_bf16};
    for (int t = 0; t < 2; t++) {
        int lost = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t element = (uint16_t)bits, again = 0;
            char text[IR_NUMBER_SIZE];
            bool exact = ir_element_print(text, types[t], &element);
            assert_true(ir_element_parse(text, types[t], &again));
            assert_int_equal(exact, again == element);
            assert_true(exact || isnan(ir_load_f64(types[t], &element)));
            lost += !exact;
        }
        assert_int_equal(lost, types[t] == IR_f16 ? 2 * 1023 - 1 : 2 * 127 - 1); /* NaNs, one of which is "nan" */
    }
}

TEST(test_random_doubles)
{
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double v;
        float narrow = ir_f32_bits((uint32_t)(bits >> 32));
        memcpy(&v, &bits, sizeof v);
        char text[IR_NUMBER_SIZE];
        assert_true(isnan(v) || ir_element_print(text, IR_f64, &v));
        assert_true(isnan(narrow) || ir_element_print(text, IR_f32, &narrow));
    }
}

TEST(test_numbers_refused)
{
    static const char *const floats[] = {"",         "-",  "1e", "0x10",  "1e999", "nan(1)",
                                         "infinity", " 1", "1 ", "1.2.3", "+inf"};
    static const char *const ints[] = {"",   "-",   "1.0", "9223372036854775808", "-9223372036854775809",
                                       "+1", "0x1", "1e3"};
    double d;
    int64_t n;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) assert_false(ir_float_parse(floats[i], &d));
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) assert_false(ir_int_parse(ints[i], &n));
    assert_true(ir_int_parse("-9223372036854775808", &n) && n == INT64_MIN);
}

/* ---- printing -------------------------------------------------------------------------------------------- */

/* Returns the module's text after verifying that it parses to the same module. */
static const char *text_of(fixture *f)
{
    const char *first = ir_print(f->module, f->arena);
    ir_module *again;
    assert_int_equal(ir_parse(first, strlen(first), "again.ir", f->diag, &again), AMPC_OK);
    const char *second = ir_print(again, f->arena);
    assert_string_equal(first, second);
    ir_module_free(again);
    return first;
}

#define TEST_TEXT(name) TEST_WITH(setup, teardown, fixture *f, name)

TEST_TEXT(test_built)
{
    ir_module *m = f->module;
    ir_type vector = ir_type_make(IR_f32, 1, (int64_t[]){17}), wide = ir_type_make(IR_f32, 1, (int64_t[]){16});
    float values[17] = {1, 2};
    ir_storage_set(m, ir_storage_new(m, IR_CONST, "many", &vector), values);
    ir_storage_set(m, ir_storage_new(m, IR_CONST, "few", &wide), values);
    ir_graph *g = ir_graph_new(m, "infer");
    ir_builder b = ir_builder_at_end(g, f->diag);
    b.loc = (ir_loc){.file = "dir/model.onnx", .op = "Add", .node = "a\tb"};
    ir_value *x = ir_graph_input(g, "x", &wide), *few = ir_graph_storage(g, ir_storage_find(m, "few"));
    ir_value *y = ir_binary(&b, IR_OP_add, x, few);
    y->def->note = " two\nlines ";
    b.phase = IR_UPDATE;
    ir_output(&b, "y", y);
    const char *text = text_of(f);
    assert_non_null(strstr(text, "\nconst @many : f32[17] = bytes \"0000803f00000040"));
    assert_non_null(strstr(text, "\nconst @few  : f32[16] = [1, 2, 0,"));
    assert_non_null(strstr(text, "\nsource \"dir/model.onnx\"\n"));
    assert_non_null(strstr(text, "  %add = add @x, @few : f32[16] !Add \"a\\tb\"  # two lines\nupdate:\n"));
    assert_string_equal(ir_print_node(y->def, f->arena), "%add = add @x, @few : f32[16] !Add \"a\\tb\"  # two lines");
}

/* Locations, notes and preserved names survive; nodes without a location still have the file. */
TEST_TEXT(test_locations)
{
    static const char text[] = "ampc-ir 3\nsource \"m.onnx\"\n\ngraph @g(@x : f32[N]) {\nforward:\n"
                               "  %\"a/b\" = neg @x     : f32[N] !Neg \"n\"  # note\n"
                               "  %c     = neg %\"a/b\" : f32[N]\n}\n";
    ir_module *m;
    assert_int_equal(ir_parse(text, sizeof text - 1, "t.ir", f->diag, &m), AMPC_OK);
    const ir_node *n = m->graphs.items[0]->first;
    assert_string_equal(n->loc.file, "m.onnx");
    assert_string_equal(n->loc.op, "Neg");
    assert_string_equal(n->loc.node, "n");
    assert_string_equal(n->note, "note");
    assert_string_equal(n->out[0]->name, "a/b");
    assert_string_equal(n->next->loc.file, "m.onnx");
    assert_null(n->next->loc.op);
    assert_string_equal(ir_print(m, f->arena), text);
    ir_module_free(m);
}

/* ---- parsing --------------------------------------------------------------------------------------------- */

TEST_TEXT(test_hostile)
{
    ir_module *m;
    static const char zero[] = "ampc-ir 3\nmeta \"a\0b\" \"\"";
    assert_int_equal(ir_parse(zero, sizeof zero - 1, "t.ir", f->diag, &m), AMPC_REJECTED);
    assert_null(m);
    enum { DEPTH = 100000 };
    char *deep = malloc(DEPTH + 64);
    int n = sprintf(deep, "ampc-ir 3\ngraph @g(@x : f32[");
    memset(deep + n, '(', DEPTH);
    assert_int_equal(ir_parse(deep, (size_t)n + DEPTH, "t.ir", f->diag, &m), AMPC_REJECTED);
    memset(deep + n, '#', DEPTH);
    assert_int_equal(ir_parse(deep, (size_t)n + DEPTH, "t.ir", f->diag, &m), AMPC_REJECTED);
    free(deep);
    assert_int_equal(ir_parse("", 0, "t.ir", f->diag, &m), AMPC_REJECTED);
}

/* Regions in regions: as deep as IR_MAX_NESTING, then one error. */
static char *nest(const fixture *f, int depth)
{
    char *text = arena_printf(f->arena, "ampc-ir 3\ngraph @g(@c : bool[]) {\n");
    for (int i = 0; i < depth; i++)
        text = arena_printf(f->arena, "%s%%y%d = opaque @c (body: graph(@c : bool[]) {\n", text, i);
    for (int i = 0; i < depth; i++)
        text = arena_printf(f->arena, "%soutput \"c\" = @c } captures @c) : bool[]\n", text);
    return arena_printf(f->arena, "%s}\n", text);
}

TEST_TEXT(test_nesting)
{
    for (int more = 0; more < 2; more++) {
        const char *text = nest(f, IR_MAX_NESTING + more);
        ir_module *m;
        const ampc_status status = ir_parse(text, strlen(text), "deep.ir", f->diag, &m);
        assert_int_equal(status, more ? AMPC_REJECTED : AMPC_OK);
        if (m) assert_int_equal(ir_verify(m, f->diag), AMPC_OK);
        ir_module_free(m);
    }
    assert_non_null(strstr(diag_first_error(f->diag), "regions are nested more than 256 deep"));
    assert_int_equal(diag_count(f->diag, DIAG_ERROR), 1);
}

/* A text truncated at any byte is rejected or is a shorter module; the parser never crashes. */
TEST_TEXT(test_cut)
{
    static const char text[] =
        "ampc-ir 3\nparam @w : f32[2] = [1, 2] frozen\ngraph @g(@x : f32[N,2]) {\nforward:\n"
        "  %y = matmul @x, @x {trans_b=true, out=f32} : f32[N,N] !MatMul \"m\" # note\n  output \"y\" = %y\n}\n";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, text, n);
        ir_module *m;
        ampc_status status = ir_parse(copy, n, "t.ir", f->diag, &m);
        assert_int_equal(status == AMPC_OK, m != NULL);
        ir_module_free(m);
        free(copy);
    }
}

/* A sealed text is either complete or rejected: truncation and changed bytes are detected. */
TEST_TEXT(test_sealed)
{
    static const char text[] =
        "ampc-ir 3\nparam @w : f32[2] = [1, 2] frozen  # note\n\ngraph @g(@x : f32[N,2]) {\nforward:\n"
        "  %y = matmul @x, @x {trans_b=true, out=f32} : f32[N,N] !MatMul \"m\"  # note\n  output \"y\" = %y\n}\n";
    ir_module *m;
    assert_int_equal(ir_parse(text, sizeof text - 1, "t.ir", f->diag, &m), AMPC_OK);
    char *sealed = strdup(ir_print_sealed(m, f->arena));
    const char *plain = ir_print(m, f->arena);
    size_t length = strlen(sealed);
    ir_module_free(m);
    assert_int_equal(ir_parse(sealed, length, "t.ir", f->diag, &m), AMPC_OK);
    assert_string_equal(ir_print(m, f->arena), plain);
    ir_module_free(m);
    for (size_t n = 0; n < length; n++) {
        char *copy = malloc(n + 1); /* a heap block of the exact size makes overreads detectable */
        memcpy(copy, sealed, n);
        assert_int_equal(ir_parse(copy, n, "t.ir", f->diag, &m), AMPC_REJECTED);
        free(copy);
    }
    for (size_t i = 0; i < length * 8; i++) {
        sealed[i / 8] ^= (char)(1 << i % 8);
        ampc_status s = ir_parse(sealed, length, "t.ir", f->diag, &m);
        if (s == AMPC_OK) fail_msg("bit %zu of byte %zu: '%c'", i % 8, i / 8, sealed[i / 8]);
        sealed[i / 8] ^= (char)(1 << i % 8);
    }
    free(sealed);
}

TEST_TEXT(test_files)
{
    char path[] = "/tmp/ampc-text-XXXXXX";
    ir_module *m;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "ampc-ir 3\n", 10), 10);
    close(fd);
    assert_int_equal(ir_parse_file(path, f->diag, &m), AMPC_OK);
    ir_module_free(m);
    unlink(path);
    assert_int_equal(ir_parse_file(path, f->diag, &m), AMPC_IO);
    assert_null(m);
    assert_int_equal(ir_parse_file("/tmp", f->diag, &m), AMPC_IO);
}

/* Parsing needs time and memory proportional to the length of the text. */
TEST_TEXT(test_long)
{
    enum { NODES = 20000, LINE = 64 };
    char *text = malloc((size_t)NODES * LINE + 256), *at = text;
    at += sprintf(at, "ampc-ir 3\ngraph @g(@x : f32[N]) {\n  %%v0 = neg @x : f32[N]\n");
    for (int i = 1; i < NODES; i++) at += sprintf(at, "  %%v%d = neg %%v%d : f32[N] !Neg \"n%d\"\n", i, i - 1, i);
    at += sprintf(at, "}\n");
    ir_module *m;
    assert_int_equal(ir_parse(text, (size_t)(at - text), "t.ir", f->diag, &m), AMPC_OK);
    assert_int_equal(ir_verify(m, f->diag), AMPC_OK);
    assert_true(arena_used(m->arena) < (size_t)NODES * 4096);
    ir_module_free(m);
    free(text);
}
