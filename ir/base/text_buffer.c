/* text_buffer.c - growing by doubling. */
#include "ir/base/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

text_buffer text_in(char *array, size_t size)
{
    *array = '\0';
    return (text_buffer){.data = array, .capacity = size, .fixed = true};
}

/* Reserves n bytes and the zero byte. */
static bool reserve(text_buffer *t, size_t n)
{
    if (t->failed || n < t->capacity - t->length) return !t->failed;
    const size_t capacity = (t->length + n + 1) * 2;
    char *data = t->fixed ? NULL : t->arena ? arena_alloc(t->arena, capacity) : realloc(t->data, capacity);
    if (t->arena && t->length) memcpy(data, t->data, t->length + 1);
    t->failed = !data;
    if (data) {
        t->data = data;
        t->capacity = capacity;
    }
    return !t->failed;
}

void text_add_bytes(text_buffer *t, const void *bytes, size_t n)
{
    const size_t room = t->capacity - t->length;
    if (n < room && !t->failed) { /* nearly always */
        memcpy(t->data + t->length, bytes, n);
        t->length += n;
        t->data[t->length] = '\0';
        return;
    }
    if (t->fixed && n >= room && !t->failed) {
        text_add_bytes(t, bytes, room - 1);
        t->failed = true;
    }
    if (!reserve(t, n)) return;
    if (n) memcpy(t->data + t->length, bytes, n);
    t->length += n;
    t->data[t->length] = '\0';
}

void text_put(text_buffer *t, const char *text) { text_add_bytes(t, text, strlen(text)); }

void text_add(text_buffer *t, const char *format, ...)
{
    va_list args, again;
    if (t->failed) return;
    va_start(args, format);
    va_copy(again, args);
    const size_t room = t->capacity - t->length;
    const int length = vsnprintf(room ? t->data + t->length : NULL, room, format, args);
    if (length >= 0 && t->fixed && (size_t)length >= room) t->length = t->capacity - 1;
    if (length < 0) t->failed = true;
    else if ((size_t)length < room) t->length += (size_t)length;
    else if (reserve(t, (size_t)length))
        t->length += (size_t)vsnprintf(t->data + t->length, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
}

void text_add_item(text_buffer *t, const char *separator, const char *item)
{
    if (t->length) text_put(t, separator);
    text_put(t, item);
}

char *text_finish(text_buffer *t)
{
    char *text = t->failed ? NULL : t->data;
    if (t->failed) free(t->data); /* not in an arena, where nothing fails */
    *t = (text_buffer){0};
    return text;
}
