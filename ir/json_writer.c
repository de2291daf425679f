/* json_writer.c - see json_writer.h. */
#include "ir/json_writer.h"
#include "ir/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_quoted(FILE *f, const char *text)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    putc('"', f);
    for (size_t left = strlen(text), n; left; left -= n, text += n) {
        uint32_t code;
        n = utf8_decode(text, left, &code);
        const char *at = n == 1 ? strchr(special, *text) : NULL;
        if (n == 0) {
            fputs("\\uFFFD", f);
            n = 1;
        } else if (at) fprintf(f, "\\%c", letters[at - special]);
        else if (code < 0x20) fprintf(f, "\\u%04" PRIX32, code);
        else fwrite(text, 1, n, f);
    }
    putc('"', f);
}

/* Writes what precedes a value. */
static void start_item(json_writer *w, const char *key)
{
    if (w->has_items) fputs(w->compact ? "," : ", ", w->file);
    w->has_items = true;
    if (!key) return;
    write_quoted(w->file, key);
    fputs(w->compact ? ":" : ": ", w->file);
}

void json_begin(json_writer *w, const char *key, char bracket)
{
    start_item(w, key);
    putc(bracket, w->file);
    w->has_items = false;
}

void json_end(json_writer *w, char bracket)
{
    putc(bracket, w->file);
    w->has_items = true;
}

void json_write_string(json_writer *w, const char *key, const char *text)
{
    start_item(w, key);
    write_quoted(w->file, text);
}

void json_write_integer(json_writer *w, const char *key, int64_t value)
{
    start_item(w, key);
    fprintf(w->file, "%" PRId64, value);
}

void json_write_real(json_writer *w, const char *key, const char *format, double value)
{
    char text[DBL_MAX_10_EXP + 32];
    start_item(w, key);
    if (!isfinite(value)) {
        fputs("null", w->file);
        return;
    }
    snprintf(text, sizeof text, format, value);
    /* The host program's locale may use another decimal point, which can be several bytes. */
    const size_t integer = strspn(text, "-0123456789"), point = strcspn(text + integer, "0123456789e");
    fprintf(w->file, "%.*s%s%s", (int)integer, text, point ? "." : "", text + integer + point);
}

void json_write_bool(json_writer *w, const char *key, bool value)
{
    start_item(w, key);
    fputs(value ? "true" : "false", w->file);
}

bool json_open_text(json_writer *w)
{
    *w = (json_writer){.compact = true};
    w->file = open_memstream(&w->text, &w->size);
    return w->file != NULL;
}

char *json_close_text(json_writer *w, size_t *length)
{
    const bool failed = ferror(w->file) != 0;
    if (fclose(w->file) != 0 || failed) {
        free(w->text);
        return NULL;
    }
    *length = w->size;
    return w->text;
}
