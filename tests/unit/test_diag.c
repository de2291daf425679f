/* test_diag.c - the exact text of messages, their escapes and carets, counters, strict mode. */
#include "ir/base/diag.h"
#include "tests/test.h"

static char last[4096];
static diag_level last_level;
static int received;

static void keep(void *user, diag_level level, const char *message)
{
    assert_ptr_equal(user, last);
    snprintf(last, sizeof last, "%s", message);
    last_level = level;
    received++;
}

static diag *new_diag(void)
{
    received = 0;
    last[0] = 0;
    return diag_new(keep, last);
}

TEST(test_texts)
{
    const struct {
        diag_loc loc;
        const char *expected;
    } rows[] = {
        {{0}, "error: bad 7"},
        {{.file = "model.onnx"}, "model.onnx: error: bad 7"},
        {diag_node("model.onnx", "fc/MatMul", "MatMul"), "model.onnx: node 'fc/MatMul' (MatMul): error: bad 7"},
        {diag_node(NULL, "fc/MatMul", "MatMul"), "node 'fc/MatMul' (MatMul): error: bad 7"},
        {diag_node("m", "", "MatMul"), "m: node (MatMul): error: bad 7"},
        {diag_node("m", "w", NULL), "m: node 'w': error: bad 7"},
        {diag_named("m", DIAG_TENSOR, NULL), "m: error: bad 7"},
        {{.file = "a.ir", .line = 14, .column = 9}, "a.ir:14:9: error: bad 7"},
        {{.file = "a.ir", .line = 14}, "a.ir:14: error: bad 7"},
        {{.line = 14, .column = 2}, "14:2: error: bad 7"},
        {{.file = "a.ir", .line = 2, .column = 8, .text = "  %y = foo %x"},
         "a.ir:2:8: error: bad 7\n    %y = foo %x\n         ^"},
        {{.file = "a.ir", .line = 2, .column = 1, .text = "x"}, "a.ir:2:1: error: bad 7\n  x\n  ^"},
        {{.file = "a.ir", .line = 2, .column = 99, .text = "ab"}, "a.ir:2:99: error: bad 7\n  ab\n    ^"},
        {{.file = "a.ir", .line = 2, .text = "ab"}, "a.ir:2: error: bad 7\n  ab"},
        {{.file = "a.ir", .line = 1, .column = 4, .text = "\xc3\xa4=?"}, "a.ir:1:4: error: bad 7\n  \xc3\xa4=?\n    ^"},
        {{.file = "a.ir", .line = 1, .column = 2, .text = "\t?"}, "a.ir:1:2: error: bad 7\n  \\x09?\n      ^"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        diag *d = new_diag();
        assert_int_equal(diag_error(d, AMPC_UNSUPPORTED, rows[i].loc, "bad %d", 7), 3);
        assert_string_equal(last, rows[i].expected);
        assert_string_equal(diag_first_error(d), rows[i].expected);
        diag_free(d);
    }
}

TEST(test_names_have_their_kind)
{
    static const char *const words[] = {
#define WORD(kind, word) [DIAG_##kind] = (word),
        DIAG_KINDS(WORD)
#undef WORD
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        diag *d = new_diag();
        char expected[128];
        diag_error(d, AMPC_REJECTED, diag_named("m", (diag_kind)i, "x.png"), "bad");
        snprintf(expected, sizeof expected, "m: %s 'x.png': error: bad", words[i]);
        assert_string_equal(last, expected);
        diag_free(d);
    }
}

TEST(test_names_are_escaped)
{
    static const char *const rows[][2] = {
        {"a\x1b[31mb", "a\\x1b[31mb"},
        {"line\nbreak", "line\\x0abreak"},
        {"\x7f", "\\x7f"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xc3", "\\xc3"},
        {"\xc0\xaf", "\\xc0\\xaf"},                   /* overlong */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond U+10FFFF */
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"},                         /* C1 control */
        {"a\xe2\x80\xaez", "a\\xe2\\x80\\xaez"},  /* U+202E reverses the text after it */
        {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"},      /* U+2066 */
        {"\xe2\x80\x8f", "\\xe2\\x80\\x8f"},      /* U+200F */
        {"\xd8\x9c", "\\xd8\\x9c"},               /* U+061C */
        {"\xef\xbb\xbf", "\\xef\\xbb\\xbf"},      /* U+FEFF */
        {"\xd7\x90\xd7\x91", "\xd7\x90\xd7\x91"}, /* letters that are read from the right */
        {"\xff\xfe", "\\xff\\xfe"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        diag *d = new_diag();
        char expected[128];
        snprintf(expected, sizeof expected, "m: node '%s': error: x", rows[i][1]);
        diag_error(d, AMPC_REJECTED, diag_node("m", rows[i][0], NULL), "x");
        assert_string_equal(last, expected);
        snprintf(expected, sizeof expected, "error: '%s'", strchr(rows[i][0], '\n') ? rows[i][0] : rows[i][1]);
        diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "'%s'", rows[i][0]);
        assert_string_equal(last, expected);
        diag_free(d);
    }
}

TEST(test_long_names_are_cut)
{
    char name[1001], expected[1100];
    memset(name, 'n', 1000);
    name[1000] = 0;
    diag *d = new_diag();
    diag_error(d, AMPC_REJECTED, diag_node(NULL, name, NULL), "x");
    snprintf(expected, sizeof expected, "node '%.128s...': error: x", name);
    assert_string_equal(last, expected);
    name[128] = 0;
    diag_error(d, AMPC_REJECTED, diag_node(NULL, name, NULL), "x");
    snprintf(expected, sizeof expected, "node '%s': error: x", name);
    assert_string_equal(last, expected);
    diag_free(d);
}

TEST(test_long_lines_show_the_part_around_the_column)
{
    char line[2001];
    for (int i = 0; i < 2000; i++) line[i] = (char)('a' + i % 26);
    line[2000] = 0;
    line[999] = '!';
    diag *d = new_diag();
    diag_error(d, AMPC_REJECTED, (diag_loc){.file = "f", .line = 1, .column = 1000, .text = line}, "x");
    char *shown = strchr(last, '\n') + 3, *caret = strchr(shown, '^');
    assert_non_null(caret);
    char *second = strchr(shown, '\n') + 3;
    assert_int_equal(shown[caret - second], '!');
    assert_true(second - shown < 180);
    diag_free(d);
}

TEST(test_levels_and_counts)
{
    diag *d = new_diag();
    assert_int_equal(diag_status(d), AMPC_OK);
    assert_string_equal(diag_first_error(d), "");
    assert_int_equal(diag_warning(d, DIAG_FILE("m"), "w"), AMPC_OK);
    assert_string_equal(last, "m: warning: w");
    assert_int_equal(last_level, DIAG_WARNING);
    diag_remark(d, DIAG_FILE("m"), "r");
    assert_string_equal(last, "m: remark: r");
    diag_note(d, DIAG_FILE("m"), "n");
    assert_string_equal(last, "m: note: n");
    assert_int_equal(diag_status(d), AMPC_OK);
    assert_int_equal(diag_error(d, AMPC_IO, DIAG_NOWHERE, "first"), AMPC_IO);
    assert_int_equal(diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "second"), AMPC_USAGE);
    assert_int_equal(diag_status(d), AMPC_IO);
    assert_string_equal(diag_first_error(d), "error: first");
    assert_int_equal(diag_count(d, DIAG_ERROR), 2);
    assert_int_equal(diag_count(d, DIAG_WARNING), 1);
    assert_int_equal(diag_count(d, DIAG_REMARK), 1);
    assert_int_equal(diag_count(d, DIAG_NOTE), 1);
    assert_int_equal(received, 5);
    diag_clear(d);
    assert_int_equal(diag_status(d), AMPC_OK);
    assert_int_equal(diag_count(d, DIAG_ERROR), 0);
    assert_string_equal(diag_first_error(d), "");
    diag_free(d);
    diag_free(NULL);
}

TEST(test_strict_makes_warnings_errors)
{
    diag *d = new_diag();
    diag_set_strict(d, true);
    assert_int_equal(diag_warning(d, DIAG_FILE("l.amplist"), "unknown op '%s'", "Foo"), AMPC_REJECTED);
    assert_string_equal(last, "l.amplist: error: unknown op 'Foo'");
    assert_int_equal(last_level, DIAG_ERROR);
    assert_int_equal(diag_status(d), AMPC_REJECTED);
    assert_int_equal(diag_count(d, DIAG_WARNING), 0);
    diag_free(d);
}

TEST(test_without_a_sink)
{
    diag *d = diag_new(NULL, NULL);
    diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE, "kept");
    assert_string_equal(diag_first_error(d), "error: kept");
    diag_free(d);
}

TEST(test_an_error_is_repeated_as_it_is)
{
    diag *inner = diag_new(NULL, NULL), *d = new_diag();
    diag_error(inner, AMPC_IO, (diag_loc){.file = "m.ir", .line = 2, .column = 3, .text = "a \\b"}, "gone");
    assert_int_equal(diag_repeat(d, AMPC_IO, diag_first_error(inner)), AMPC_IO);
    assert_string_equal(last, diag_first_error(inner));
    assert_string_equal(diag_first_error(d), diag_first_error(inner));
    assert_int_equal(diag_status(d), AMPC_IO);
    diag_free(inner);
    diag_free(d);
}

TEST(test_long_message)
{
    diag *d = diag_new(NULL, NULL);
    char *words = malloc(100001);
    memset(words, 'w', 100000);
    words[100000] = 0;
    diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "%s", words);
    assert_int_equal(strlen(diag_first_error(d)), 100007);
    free(words);
    diag_free(d);
}

TEST(test_status_words)
{
    assert_string_equal(ampc_status_name(AMPC_OK), "AMPC_OK");
    assert_string_equal(ampc_status_name(AMPC_NO_MEMORY), "AMPC_NO_MEMORY");
    assert_string_equal(ampc_status_sentence(AMPC_NO_MEMORY), "out of memory");
    assert_string_equal(ampc_status_name((ampc_status)99), "unknown status");
    assert_string_equal(ampc_status_sentence((ampc_status)99), "unknown status");
}
