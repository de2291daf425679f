/* test_json_writer.c - the text of documents: separators, escapes, numbers and failing streams. */
#include "ir/base/json_writer.h"
#include "tests/unit/scratch.h"

#include <jansson.h>
#include <math.h>

/* Closes the document and compares its text. */
static void expect(json_writer *w, const char *text)
{
    size_t n;
    char *actual = json_close_text(w, &n);
    assert_non_null(actual);
    assert_string_equal(actual, text);
    assert_int_equal(n, strlen(text));
    free(actual);
}

static void write_document(json_writer *w)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "name", "conv1");
    json_begin(w, "shape", '[');
    json_write_integer(w, NULL, 2);
    json_write_integer(w, NULL, INT64_MIN);
    json_end(w, ']');
    json_begin(w, "empty", '{');
    json_end(w, '}');
    json_write_bool(w, "trained", true);
    json_write_bool(w, "frozen", false);
    json_end(w, '}');
}

TEST(test_separators)
{
    json_writer w;
    assert_true(json_open_text(&w));
    write_document(&w);
    expect(&w,
           "{\"name\":\"conv1\",\"shape\":[2,-9223372036854775808],\"empty\":{},\"trained\":true,\"frozen\":false}");
    assert_true(json_open_text(&w));
    w.compact = false;
    write_document(&w);
    expect(&w, "{\"name\": \"conv1\", \"shape\": [2, -9223372036854775808], \"empty\": {}, \"trained\": true, "
               "\"frozen\": false}");
}

TEST(test_strings)
{
    static const struct {
        const char *text, *json;
    } rows[] = {
        {"", "\"\""},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\""},
        {"\b\f\n\r\t\x01\x1f\x7f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\""},
        {"gr\xc3\xb6\xc3\x9f"
         "e \xe2\x82\xac \xf0\x9f\x98\x80",
         "\"gr\xc3\xb6\xc3\x9f"
         "e \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {"\xff"
         "a\xc3",
         "\"\\uFFFDa\\uFFFD\""}, /* not UTF-8 */
        {"a\xe2\x80\xae"
         "b\xf3\xa0\x81\x81",
         "\"a\\u202eb\\udb40\\udc41\""},               /* reversed, a tag */
        {"\xed\xa0\x80", "\"\\uFFFD\\uFFFD\\uFFFD\""}, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_writer w;
        assert_true(json_open_text(&w));
        json_write_string(&w, NULL, rows[i].text);
        json_t *parsed = json_loads(rows[i].json, JSON_DECODE_ANY, NULL);
        assert_non_null(parsed);
        json_decref(parsed);
        expect(&w, rows[i].json);
    }
}

static void write_numbers(json_writer *w)
{
    json_begin(w, NULL, '[');
    json_write_real(w, NULL, "%.9g", 0.25);
    json_write_real(w, NULL, "%.9g", 65536);
    json_write_real(w, NULL, "%.17g", -1e-300);
    json_write_real(w, NULL, "%.3f", 1234.5);
    json_write_real(w, NULL, "%.9g", NAN);
    json_write_real(w, NULL, "%.9g", -INFINITY);
    json_end(w, ']');
}

TEST(test_numbers)
{
    json_writer w;
    assert_true(json_open_text(&w));
    write_numbers(&w);
    expect(&w, "[0.25,65536,-1e-300,1234.500,null,null]");
    assert_true(json_open_text(&w));
    json_write_real(&w, NULL, "%.3f", 1.7976931348623157e308);
    size_t n;
    char *longest = json_close_text(&w, &n);
    assert_int_equal(n, 313);
    free(longest);
}

TEST(test_full_stream)
{
    char buffer[8];
    json_writer w = {.file = fmemopen(buffer, sizeof buffer, "w")};
    assert_non_null(w.file);
    setbuf(w.file, NULL);
    write_numbers(&w);
    assert_true(w.failed);
    fclose(w.file);
}
