/* test_list.c - list files: errors and their messages, precedence, the effective list. */
#include "passes/amp/list.h"
#include "tests/unit/scratch.h"

typedef struct row {
    const char *text, *message; /* NULL: accepted */
    ampc_status status;
    int line, column;
} row;

static const row rows[] = {
    {"", NULL, AMPC_OK, 0, 0},
    {"# nothing\n\n  # but comments\n", NULL, AMPC_OK, 0, 0},
    {"[white]\nExp\n  +Log # why\n- Tanh\n\tGelu  \n", NULL, AMPC_OK, 0, 0},
    {"[meta]\nversion=1\nbase=ampc\n", NULL, AMPC_OK, 0, 0},
    {"[black]\nPow if scalar(B)\nConv if depthwise and not rank(A)==5\nSplit if outputs==2\nMod if dtype==fp16\n"
     "MatMul if param(B)\n",
     NULL, AMPC_OK, 0, 0},
    {"[white]\nExp\n[white]\nExp\n", NULL, AMPC_OK, 0, 0},
    {"[white]\nExp\n[black]\nExp if depthwise\n-Exp\n", NULL, AMPC_OK, 0, 0},
    {"[nodes]\na=b/* = fp32\n/x = fp16\n", NULL, AMPC_OK, 0, 0},
    {"[tensors]\na b\n-c\n\"[x] #\"\n", NULL, AMPC_OK, 0, 0},
    {"[nodes]\n[ab]/* = fp32\nx#1 = fp16 # one\n\"#\\\"\\\\\" = fp32\n", NULL, AMPC_OK, 0, 0},
    {"[white]\nGemm if transB == 1 and alpha!=0.5\nMaxPool if kernel>=3\nPad if mode==constant\n", NULL, AMPC_OK, 0, 0},
    {"[rules]\nscaling = 1,1,1,1.5,0.5\ncounters = n\n", NULL, AMPC_OK, 0, 0},

    {"Exp\n", "'Exp' precedes the first section", AMPC_REJECTED, 1, 1},
    {"\n[whit]\n", "unknown section 'whit'", AMPC_REJECTED, 2, 1},
    {"[white\n", "malformed section '[white'", AMPC_REJECTED, 1, 1},
    {"[white]x\n", "malformed section '[white]x'", AMPC_REJECTED, 1, 1},
    {"[]\n", "unknown section ''", AMPC_REJECTED, 1, 1},
    {"[white]\nExp, Log\n", "'Exp, Log' is not an operator name", AMPC_REJECTED, 2, 1},
    {"[white]\n+\n", "'' is not an operator name", AMPC_REJECTED, 2, 1},
    {"[white]\n++Exp\n", "'+Exp' is not an operator name", AMPC_REJECTED, 2, 1},
    {"[white]\nExp = yes\n", "'Exp = yes' is not an operator name", AMPC_REJECTED, 2, 1},
    {"[white]\nExp if\n", "'Exp if' is not an operator name", AMPC_REJECTED, 2, 1},
    {"[white]\n  Exp if depthwize\n", "'depthwize' is not a condition", AMPC_REJECTED, 2, 10},
    {"[white]\nExp if not\n", "'not' is not a condition", AMPC_REJECTED, 2, 8},
    {"[white]\nExp if rank(I)\n", "'rank(I)' is not a condition", AMPC_REJECTED, 2, 8},
    {"[white]\nExp if scalar(A) and \n", "'scalar(A) and' is not a condition", AMPC_REJECTED, 2, 8},
    {"[white]\nExp if kernel = 3\n", "'kernel = 3' is not a condition", AMPC_REJECTED, 2, 8},
    {"[white]\nExp if kernel <= big\n", "'kernel <= big' is not a condition", AMPC_REJECTED, 2, 8},
    {"[nodes]\n\"/x = fp32\n", "unterminated name in quotes", AMPC_REJECTED, 2, 1},
    {"[tensors]\n\"a\" b\n", "unterminated name in quotes", AMPC_REJECTED, 2, 1},
    {"[white]\nExp if not same(A,I)\n", "'not same(A,I)' is not a condition", AMPC_REJECTED, 2, 8},
    {"[white]\n-Exp if depthwise\n", "-Exp cannot have a condition", AMPC_REJECTED, 2, 1},
    {"[white]\nExp\n\n[gray]\nLog\nExp\n", "operator 'Exp' is gray here and white in line 2", AMPC_REJECTED, 6, 1},
    {"[nodes]\n/x\n", "expected 'key = value', found '/x'", AMPC_REJECTED, 2, 1},
    {"[nodes]\n/x = float\n", "'float' is not a precision: expected fp32, fp16 or bf16", AMPC_REJECTED, 2, 6},
    {"[nodes]\n/x = bf16\n", "precision 'bf16' differs from --dtype", AMPC_UNSUPPORTED, 2, 6},
    {"[nodes]\n = fp32\n", "a node name or glob is missing before '= fp32'", AMPC_REJECTED, 2, 1},
    {"[meta]\nversion = 3\n", "unknown list version '3'", AMPC_REJECTED, 2, 1},
    {"[meta]\nauthor = me\n", "unknown key 'author' in [meta]", AMPC_REJECTED, 2, 1},
    {"[meta]\nbase = torch\n", "unknown base 'torch'", AMPC_REJECTED, 2, 8},
    {"[meta]\nbase = ampc\nbase = empty\n", "base 'empty' differs from the profile 'ampc' in use", AMPC_USAGE, 3, 8},
    {"[rules]\ncolour = red\n", "unknown rule 'colour'", AMPC_REJECTED, 2, 1},
    {"[rules]\ngray\n", "expected 'key = value', found 'gray'", AMPC_REJECTED, 2, 1},
    {"[rules]\norphan = high\n", "'high' is not a value of this rule: expected keep, neutral or low", AMPC_REJECTED, 2,
     10},
    {"[rules]\nuser_cast = grey\n", "'grey' is not a value of this rule: expected honoured or gray", AMPC_REJECTED, 2,
     13},
    {"[rules]\nunsupported = t4.txt\n", "t4.txt': No such file or directory", AMPC_IO, 2, 15},
    {"[rules]\nscaling = 1,2,3,4\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
    {"[rules]\nscaling = 1,1,1,2,0.5,6\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
    {"[rules]\nscaling = 3e38,1,1,2,0.5\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
    {"[rules]\nscaling = nan,1,1,2,0.5\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
    {"[rules]\nscaling = 1,1e300,1,2,0.5\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
    {"[rules]\nscaling = 1,1,1,1,0.5\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
    {"[rules]\nscaling = 1,1,1,2,1\n", "expected init from 1e-30 to 1e+32", AMPC_REJECTED, 2, 11},
};

/* Loads a list given as text into the caller's arena. */
static ampc_status load(scratch *t, const char *text, arena *a, diag *d, amp_list **out)
{
    scratch_write(t, "x.amplist", text, strlen(text));
    const char *path = scratch_path(t, "x.amplist");
    compile_options o = compile_options_default();
    o.lists = (pass_strings){&path, 1};
    return amp_list_load(&o, a, d, out);
}

static void test_rows(void **state)
{
    scratch *t = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        arena *a = arena_new(0);
        diag *d = diag_new(NULL, NULL);
        amp_list *list;
        ampc_status status = load(t, r->text, a, d, &list);
        const char *message = diag_first_error(d);
        char place[300];
        snprintf(place, sizeof place, "%s:%d:%d: error: ", scratch_path(t, "x.amplist"), r->line, r->column);
        if (status != r->status || (r->message && !strstr(message, r->message)))
            fail_msg("row %zu: %d, '%s'", i, (int)status, message);
        if (r->line && strncmp(message, place, strlen(place)) != 0) fail_msg("row %zu: %s", i, message);
        diag_free(d);
        arena_free(a);
    }
}

static void test_all_errors_are_listed(void **state)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    amp_list *list;
    static const char text[] = "x\n[white]\n1\nExp\n[black]\nExp\n[rules]\ngray = no\n[y]\n";
    assert_int_equal(load(*state, text, a, d, &list), AMPC_REJECTED);
    assert_int_equal(diag_count(d, DIAG_ERROR), 5);
    diag_free(d);
    arena_free(a);
}

/* ---- precedence ---- */

static void test_globs_and_pins(void **state)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    amp_list *l;
    static const char text[] = "[nodes]\n/a/?/x = fp16\n/a/* = fp32\n[tensors]\nw\n"
                               "[rules]\npins = MyNorm(scale), Other(b)\n";
    assert_int_equal(load(*state, text, a, d, &l), AMPC_OK);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "/a/b/x"})->dtype, IR_f16);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "/a/b/c/x"})->dtype, IR_f32);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "/a/b/c/x"})->place.line, 3);
    assert_null(amp_list_find_node(l, &(ir_loc){.node = "/b"}));
    assert_non_null(amp_list_find_tensor(l, "w"));
    assert_null(amp_list_find_tensor(l, "w2"));
    assert_true(amp_list_fp32_operands(l, "MyNorm"));
    assert_true(amp_list_fp32_operands(l, "Other"));
    assert_false(amp_list_fp32_operands(l, "Norm"));
    assert_false(amp_list_fp32_operands(l, "MyNor"));
    assert_false(amp_list_fp32_operands(l, "BatchNormalization"));
    diag_free(d);
    arena_free(a);
}

static scaling_rules load_scaling(const compile_options *o, arena *a, diag *d)
{
    compile *c;
    assert_int_equal(compile_load(o, a, d, &c), AMPC_OK);
    return c->scaling;
}

static void test_scaling_comes_from_the_command_line_then_files_then_the_profile(void **state)
{
    scratch *t = *state;
    arena *a = arena_new(0);
    compile_options o = compile_options_default();
    scaling_rules r = load_scaling(&o, a, t->d);
    assert_true(r.init == 65536 && r.incr_every == 2000 && r.decr_every == 1);
    assert_true(r.incr_ratio == 2 && r.decr_ratio == 0.5 && r.min == 1 && !r.late);
    static const char text[] = "[rules]\nscaling = 32768, 1000, 2, 2, 0.8\ncounters = n+1\n";
    scratch_write(t, "x.amplist", text, strlen(text));
    const char *path = scratch_path(t, "x.amplist");
    o.lists = (pass_strings){&path, 1};
    o.init_scale = 16;
    o.min_scale = 0.25;
    r = load_scaling(&o, a, t->d);
    assert_true(r.init == 16 && r.incr_every == 1000 && r.decr_every == 2 && r.decr_ratio == 0.8);
    assert_true(r.min == 0.25 && r.late);
    arena_free(a);
}

/* ---- the effective list ---- */

static const char *printed(scratch *t, const char *name, const char *text, const compile_options *with, arena *a)
{
    scratch_write(t, name, text, strlen(text));
    const char *path = scratch_path(t, name);
    compile_options o = *with;
    o.lists = (pass_strings){&path, 1};
    compile *c;
    return compile_load(&o, a, t->d, &c) == AMPC_OK ? pass_print_list(c, a) : NULL;
}

static void test_effective_list_reads_back(void **state)
{
    scratch *t = *state;
    arena *a = arena_new(0);
    compile_options o = compile_options_default();
    const char *black[] = {"Conv"}, *nodes[] = {"/head/*"};
    o.black = (pass_strings){black, 1};
    o.fp32_nodes = (pass_strings){nodes, 1};
    static const char text[] = "[gray]\nPow if rank(A)==2\nPow\n-Tanh\n[black]\nPow if scalar(B)\n[tensors]\nw\n";
    const char *first = printed(t, "a", text, &o, a);
    assert_non_null(first);
    assert_non_null(strstr(first, "base    = empty\n\n[gray]\nPow if rank(A)==2\n\n[black]\nPow if scalar(B)\n"
                                  "Mod if dtype==bf16"));
    assert_non_null(strstr(first, "[nodes]\n/head/* = fp32\n"));
    assert_non_null(strstr(first, "[tensors]\nw\n"));
    assert_non_null(strstr(first, "\nConv\n"));
    assert_true(strstr(first, "\nConv\n") > strstr(strstr(first, "[white]"), "[black]"));
    assert_null(strstr(first, "\nTanh\n"));
    const compile_options plain = compile_options_default();
    const char *second = printed(t, "b", first, &plain, a);
    assert_non_null(second);
    assert_string_equal(first, second);
    arena_free(a);
}

/* ---- the reference ---- */

static char *read_page(const char *name, arena *a)
{
    FILE *f = fopen(arena_printf(a, AMPC_SOURCE_DIR "/docs/%s", name), "re");
    assert_non_null(f);
    char *text = arena_alloc(a, 1 << 17);
    assert_in_range(fread(text, 1, 1 << 17, f), 1, (1 << 17) - 1);
    fclose(f);
    return text;
}

static void test_the_reference_has_the_rules(void **state)
{
    static const struct {
        const char *key, *meaning, *values; /* each value followed by ", " */
    } rules[] = {
#define CHOICE(key, meaning) {#key, meaning, ""
#define WORD(name, word) "`" word "`, "
#define END \
    } \
    ,
#define NUMBER(key, meaning) {#key, meaning, "`off`, a number above 0, "},
#define TEXT(key, check, values, meaning) {#key, meaning, values ", "},
#include "passes/amp/rules.def"
    };
    static const char heading[] = "\n| rule | values | meaning |\n|---|---|---|\n";
    (void)state;
    arena *a = arena_new(0);
    const char *text = strstr(read_page("lists.md", a), heading);
    assert_non_null(text);
    text += strlen(heading);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *values = arena_strndup(a, rules[i].values, strlen(rules[i].values) - 2);
        const char *line = arena_printf(a, "| `%s` | %s | %s |\n", rules[i].key, values, rules[i].meaning);
        if (strncmp(text, line, strlen(line)) != 0)
            fail_msg("docs/lists.md: the next row of the table has to be\n%s", line);
        text += strlen(line);
    }
    assert_int_equal(*text, '\n');
    arena_free(a);
}

static void test_the_manual_page_has_the_rules(void **state)
{
    (void)state;
    arena *a = arena_new(0);
    const char *text = strstr(read_page("ampc.amplist.5", a), "\n.B [rules]\n");
    assert_non_null(text);
    for (rule_id i = 0; i < RULE_COUNT; i++) {
        const char *key = arena_printf(a, ".BR %s %c\n", rules_key(i), i + 1 < RULE_COUNT ? ',' : '.');
        text = strstr(text, key);
        if (!text) fail_msg("docs/ampc.amplist.5: '%s' is not in the list of rules, or out of order", key);
        text += strlen(key);
    }
    assert_ptr_equal(strstr(text, ".PP\n"), text);
    arena_free(a);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_rows),
        TEST(test_all_errors_are_listed),
        TEST(test_globs_and_pins),
        TEST(test_scaling_comes_from_the_command_line_then_files_then_the_profile),
        TEST(test_effective_list_reads_back),
        TEST(test_the_reference_has_the_rules),
        TEST(test_the_manual_page_has_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
