/* test_list.c - list files: precedence, the effective list; tests/expect/passes/amp_list.rows has the errors. */
#include "passes/amp/list.h"
#include "tests/unit/scratch.h"

/* Loads a list given as text into the caller's arena. */
static ampc_status load(scratch *t, const char *text, arena *a, diag *d, amp_list **out)
{
    scratch_write(t, "x.amplist", text, strlen(text));
    const char *path = scratch_path(t, "x.amplist");
    compile_options o = compile_options_default();
    o.lists = (pass_strings){&path, 1};
    return amp_list_load(&o, a, d, out);
}

/* ---- precedence ---- */

TEST_SCRATCH(test_globs_and_pins)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    amp_list *l;
    static const char text[] = "[nodes]\n/a/?/x = fp16\n/a/* = fp32\n[tensors]\nw\n"
                               "[rules]\npins = MyNorm(scale), Other(b)\n";
    assert_int_equal(load(t, text, a, d, &l), AMPC_OK);
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

TEST_SCRATCH(test_scaling_comes_from_the_command_line_then_files_then_the_profile)
{
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

/* ---- regular expressions ---- */

TEST_SCRATCH(test_regular_expressions_match_from_the_start)
{
    static const struct {
        const char *expression, *name;
        bool matches;
    } rows[] = {
        {"/layer", "/layer.0/MatMul", true},
        {"layer", "/layer.0", false},
        {".*layer", "/layer.0", true},
        {"/a$", "/a", true},
        {"/a$", "/ab", false},
        {"^/a", "/ab", true},
        {"a.c", "abc", true},
        {"a\\.c", "abc", false},
        {"a\\.c", "a.c", true},
        {"(ab|c)+$", "abcab", true},
        {"(?:ab|c)+$", "abca", false},
        {"a{2}$", "aa", true},
        {"a{2,}$", "aaaaa", true},
        {"a{,2}$", "aaa", false},
        {"a{1,3}$", "aaaa", false},
        {"layers\\.\\d+\\.", "layers.12.x", true},
        {"\\D", "1", false},
        {"\\w+$", "a_1", true},
        {"[a-c]+$", "abc", true},
        {"[^a-c]", "b", false},
        {"[]x]+$", "x]", true},
        {"[\\d.]+$", "1.2", true},
        {"[a\\]]+$", "a]", true},
        {"[-a]+$", "a-", true},
        {"x?y$", "y", true},
        {".*?b$", "aab", true},
        {"\\s", " ", true},
        {"a||b", "", true},
        {"()", "x", true},
        {"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaac", false},
        {"\xc3\xbc", "\xc3\xbc", true},
        {"(a|aa)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", false},
    };
    (void)t;
    arena *a = arena_new(0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why;
        size_t at;
        const regex *r = regex_compile(rows[i].expression, a, &why, &at);
        if (!r || regex_match(r, rows[i].name) != rows[i].matches)
            fail_msg("'%s' and '%s'", rows[i].expression, rows[i].name);
    }
    arena_free(a);
}

TEST_SCRATCH(test_the_first_of_globs_and_regular_expressions_decides)
{
    arena *a = arena_new(0);
    amp_list *l;
    static const char text[] = "[nodes]\nre:/a/\\d+$ = fp16\n\"re:/a #[0-9]\" = fp16\n/a/* = fp32\n\\re:x = fp32\n";
    assert_int_equal(load(t, text, a, t->d, &l), AMPC_OK);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "/a/12"})->place.line, 2);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "/a #1b"})->place.line, 3);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "/a/12b"})->place.line, 4);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "re:x"})->place.line, 5);
    arena_free(a);
}

TEST_SCRATCH(test_low_nodes_precede_fp32_nodes)
{
    arena *a = arena_new(0);
    const char *low[] = {"re:head/[12]$"}, *fp32[] = {"head/*"}, *rules[] = {"depth = 9", "init_max=0.5"};
    compile_options o = compile_options_default();
    o.low_nodes = (pass_strings){low, 1};
    o.fp32_nodes = (pass_strings){fp32, 1};
    o.rules = (pass_strings){rules, 2};
    amp_list *l;
    assert_int_equal(amp_list_load(&o, a, t->d, &l), AMPC_OK);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "head/1"})->dtype, IR_f16);
    assert_int_equal(amp_list_find_node(l, &(ir_loc){.node = "head/3"})->dtype, IR_f32);
    assert_int_equal(l->rule.depth, 9);
    assert_true(l->rule.init_max > 0.4 && l->rule.init_max < 0.6);
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

TEST_SCRATCH(test_effective_list_reads_back)
{
    arena *a = arena_new(0);
    compile_options o = compile_options_default();
    const char *black[] = {"Conv"}, *nodes[] = {"/head/*"};
    o.black = (pass_strings){black, 1};
    o.fp32_nodes = (pass_strings){nodes, 1};
    static const char text[] = "[gray]\nPow if rank(A)==2\nPow\n-Tanh\n[black]\nPow if scalar(B)\n[tensors]\nw\n"
                               "[operands]\nFoo = fp16 , keep -> fp32 # c\na.b::Bar = keep\n";
    const char *first = printed(t, "a", text, &o, a);
    assert_non_null(first);
    assert_non_null(strstr(first, "base    = empty\n\n[gray]\nPow if rank(A)==2\n\n[black]\nPow if scalar(B)\n"
                                  "Mod if dtype==bf16"));
    assert_non_null(strstr(first, "[nodes]\n/head/* = fp32\n"));
    assert_non_null(strstr(first, "[tensors]\nw\n"));
    assert_non_null(strstr(first, "[operands]\nFoo = fp16 , keep -> fp32\na.b::Bar = keep\n"));
    assert_non_null(strstr(first, "\nConv\n"));
    assert_true(strstr(first, "\nConv\n") > strstr(strstr(first, "[white]"), "[black]"));
    assert_null(strstr(first, "\nTanh\n"));
    const compile_options plain = compile_options_default();
    const char *second = printed(t, "b", first, &plain, a);
    assert_non_null(second);
    assert_string_equal(first, second);
    arena_free(a);
}

/* ---- names ---- */

/* Loads the line of every name alone, and of all of them in one list. */
TEST_SCRATCH(test_a_written_line_means_that_name_and_no_other)
{
    static const char *const names[] = {"plain",      "/encoder/layer.0/MatMul",
                                        "a b",        " a",
                                        "a ",         "a  # b",
                                        "#a",         "a#b",
                                        "\"a\"",      "a\"b",
                                        "[a]",        "[nodes]",
                                        "a[bc]d",     "a*",
                                        "a?c",        "\\",
                                        "a\\",        "a\\*",
                                        "\\\\",       "\\x41",
                                        "a=b",        "a = fp32",
                                        "=",          "re:a.*",
                                        "re:",        "a\nb",
                                        "a\r",        "\t",
                                        "\x01\x7f",   "a\x1b[0m",
                                        "f\xc3\xbcr", "\xff",
                                        "ab",         "ac",
                                        "a",          "A",
                                        "+a",         "-a",
                                        "a # = fp32", "'a'",
                                        "{a,b}",      "!(a)",
                                        "^a$",        "a.c",
                                        "a,b"};
    enum { COUNT = sizeof names / sizeof *names };
    arena *a = arena_new(0);
    const char *all = "[nodes]\n";
    for (size_t i = 0; i < COUNT; i++) {
        const char *reason = "largest value\n 7e4 # \"x\"";
        const char *node = amp_list_node_line(names[i], IR_f32, i % 2 ? reason : NULL, a);
        const char *tensor = amp_list_tensor_line(names[i], i % 2 ? reason : NULL, a);
        all = arena_printf(a, "%s%s\n", all, amp_list_node_line(names[i], i % 3 ? IR_f32 : IR_f16, reason, a));
        amp_list *l;
        assert_int_equal(load(t, arena_printf(a, "[nodes]\n%s\n[tensors]\n%s\n", node, tensor), a, t->d, &l), AMPC_OK);
        for (size_t k = 0; k < COUNT; k++)
            if ((amp_list_find_node(l, &(ir_loc){.node = names[k]}) != NULL) != (i == k) ||
                (amp_list_find_tensor(l, names[k]) != NULL) != (i == k))
                fail_msg("'%s' as %s, %s and the name '%s'", names[i], node, tensor, names[k]);
    }
    amp_list *l;
    assert_int_equal(load(t, all, a, t->d, &l), AMPC_OK);
    for (int i = 0; i < COUNT; i++) {
        const list_pattern *p = amp_list_find_node(l, &(ir_loc){.node = names[i]});
        assert_int_equal(p->place.line, i + 2);
        assert_int_equal(p->dtype, i % 3 ? IR_f32 : IR_f16);
    }
    arena_free(a);
}

TEST_SCRATCH(test_the_effective_list_quotes_patterns)
{
    arena *a = arena_new(0);
    const char *nodes[] = {"/a #1/*", "[ab]", "tab\there", "\\*", "a b"};
    compile_options o = compile_options_default();
    o.fp32_nodes = (pass_strings){nodes, 5};
    const char *first = printed(t, "a", "[tensors]\n\"a\\x0ab\"\n", &o, a);
    assert_non_null(first);
    assert_non_null(
        strstr(first, "\"/a #1/*\" = fp32\n\"[ab]\" = fp32\n\"tab\\x09here\" = fp32\n\\* = fp32\na b = fp32\n"));
    assert_non_null(strstr(first, "[tensors]\n\"a\\x0ab\"\n"));
    const compile_options plain = compile_options_default();
    assert_string_equal(printed(t, "b", first, &plain, a), first);
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

TEST_SCRATCH(test_the_reference_has_the_rules)
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
#define REAL NUMBER
#define TEXT(key, check, values, meaning) {#key, meaning, values ", "},
#include "passes/amp/rules.def"
    };
    static const char heading[] = "\n| rule | values | meaning |\n|---|---|---|\n";
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

TEST_SCRATCH(test_the_manual_page_has_the_rules)
{
    arena *a = arena_new(0);
    const char *text = strstr(read_page("ampc.amplist.5", a), "\n.B [rules]\n");
    assert_non_null(text);
    for (rule_id i = 0; i < RULE_COUNT; i++) {
        const char *key = arena_printf(a, ".BR %s %c\n", rules_rows[i].key, i + 1 < RULE_COUNT ? ',' : '.');
        text = strstr(text, key);
        if (!text) fail_msg("docs/ampc.amplist.5: '%s' is not in the list of rules, or out of order", key);
        text += strlen(key);
    }
    assert_ptr_equal(strstr(text, ".PP\n"), text);
    arena_free(a);
}
