/* json_writer.h - writes JSON to a stream, the only place that escapes strings and decides about non-finite numbers. */
#ifndef AMPC_JSON_WRITER_H
#define AMPC_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A writer is initialised as {.file = f}. */
typedef struct json_writer {
    FILE *file;
    bool compact;   /* "," and ":" instead of ", " and ": " */
    bool in_markup; /* for a script element of HTML: "<" in strings is escaped */
    bool has_items; /* an item precedes the next one in the same object or array */
    bool failed;    /* not everything could be written */
    char *text;     /* of json_open_text */
    size_t size;
} json_writer;

/* `key` is NULL for an element of an array and for the document itself. */
void json_begin(json_writer *w, const char *key, char bracket); /* '{' or '[' */
void json_end(json_writer *w, char bracket);                    /* '}' or ']' */
/* Bytes that are not UTF-8 become U+FFFD. */
void json_write_string(json_writer *w, const char *key, const char *text);
void json_write_integer(json_writer *w, const char *key, int64_t value);
/* `format` is a printf conversion of a double, such as "%.9g". JSON has no infinity and no NaN: they become null. */
void json_write_real(json_writer *w, const char *key, const char *format, double value);
void json_write_bool(json_writer *w, const char *key, bool value);
void json_write_blank(json_writer *w, char blank); /* after a document */

/* Starts a compact document in memory; false if memory is exhausted. json_close_text returns the text, which the caller
 * frees, and its length; NULL if memory was exhausted. */
bool json_open_text(json_writer *w);
char *json_close_text(json_writer *w, size_t *length);

#endif
