/* json_writer.c - see json_writer.h. */
#include "ir/base/json_writer.h"
#include "ir/base/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(json_writer *w, const char *text, size_t n)
{
    if (fwrite(text, 1, n, w->file) != n) w->failed = true; /* glibc's memory streams do not set ferror */
}

static void put_text(json_writer *w, const char *text) { put(w, text, strlen(text)); }

static void put_quoted(json_writer *w, const char *text)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char escape[16];
    put_text(w, "\"");
    for (size_t left = strlen(text), n; left; left -= n, text += n) {
        uint32_t code;
        n = utf8_decode(text, left, &code);
        const char *at = n == 1 ? strchr(special, *text) : NULL;
        if (n == 0) {
            put_text(w, "\\uFFFD");
            n = 1;
        } else if (at) put(w, (char[]){'\\', letters[at - special]}, 2);
        else if (utf8_is_control(code) || (code == '<' && w->in_markup)) {
            utf8_escape(code, escape, sizeof escape);
            put_text(w, escape);
        } else put(w, text, n);
    }
    put_text(w, "\"");
}

/* Writes what precedes a value. */
static void start_item(json_writer *w, const char *key)
{
    if (w->has_items) put_text(w, w->compact ? "," : ", ");
    w->has_items = true;
    if (!key) return;
    put_quoted(w, key);
    put_text(w, w->compact ? ":" : ": ");
}

void json_begin(json_writer *w, const char *key, char bracket)
{
    start_item(w, key);
    put(w, &bracket, 1);
    w->has_items = false;
}

void json_end(json_writer *w, char bracket)
{
    put(w, &bracket, 1);
    w->has_items = true;
}

void json_write_string(json_writer *w, const char *key, const char *text)
{
    start_item(w, key);
    put_quoted(w, text);
}

void json_write_integer(json_writer *w, const char *key, int64_t value)
{
    start_item(w, key);
    char text[24];
    put(w, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void json_write_real(json_writer *w, const char *key, const char *format, double value)
{
    char text[DBL_MAX_10_EXP + 32];
    start_item(w, key);
    if (!isfinite(value)) {
        put_text(w, "null");
        return;
    }
    snprintf(text, sizeof text, format, value);
    /* The host program's locale may use another decimal point, which can be several bytes. */
    const size_t integer = strspn(text, "-0123456789"), point = strcspn(text + integer, "0123456789e");
    put(w, text, integer);
    if (point) put_text(w, ".");
    put_text(w, text + integer + point);
}

void json_write_bool(json_writer *w, const char *key, bool value)
{
    start_item(w, key);
    put_text(w, value ? "true" : "false");
}

void json_write_blank(json_writer *w, char blank) { put(w, &blank, 1); }

bool json_open_text(json_writer *w)
{
    *w = (json_writer){.compact = true};
    w->file = open_memstream(&w->text, &w->size);
    return w->file != NULL;
}

char *json_close_text(json_writer *w, size_t *length)
{
    const bool closed = fclose(w->file) == 0; /* w->text is NULL if memory is exhausted */
    if (closed && !w->failed) {
        *length = w->size;
        return w->text;
    }
    free(w->text);
    return NULL;
}
