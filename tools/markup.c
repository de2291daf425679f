/* markup.c - text that grows, for SVG and HTML. */
#include "tools/markup.h"

#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void markup_add(markup *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t n = (size_t)vsnprintf(NULL, 0, format, args);
    if (!t->failed && t->n + n + 1 > t->capacity) {
        size_t capacity = 2 * t->capacity + n + 4096;
        char *bytes = realloc(t->bytes, capacity);
        t->failed = !bytes;
        if (bytes) t->bytes = bytes, t->capacity = capacity;
    }
    if (!t->failed) t->n += (size_t)vsnprintf(t->bytes + t->n, n + 1, format, again);
    va_end(again);
    va_end(args);
}

void markup_escape(markup *t, const char *s)
{
    while (*s) {
        unsigned char c = (unsigned char)*s;
        size_t n = c < 0x80 ? 1 : c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
        for (size_t i = 1; i < n; i++)
            if (((unsigned char)s[i] & 0xc0) != 0x80) n = 0;
        if (c == '&') markup_add(t, "&amp;");
        else if (c == '<') markup_add(t, "&lt;");
        else if (c == '>') markup_add(t, "&gt;");
        else if (c == '"') markup_add(t, "&quot;");
        else if (n == 0 || c >= 0xf5 || c < 0x20 || c == 0x7f) markup_add(t, "?");
        else markup_add(t, "%.*s", (int)n, s);
        s += n && c < 0xf5 ? n : 1;
    }
}

void markup_quote(markup *t, const char *s)
{
    if (!strpbrk(s, ",\"\r\n")) {
        markup_add(t, "%s", s);
        return;
    }
    markup_add(t, "\"");
    for (; *s; s++) markup_add(t, *s == '"' ? "\"\"" : "%c", *s);
    markup_add(t, "\"");
}

char *markup_take(markup *t)
{
    char *bytes = t->failed ? NULL : t->bytes;
    if (t->failed) free(t->bytes);
    *t = (markup){.bytes = NULL};
    return bytes;
}

ampc_status markup_save(markup *t, const char *path, diag *d)
{
    char *bytes = markup_take(t);
    if (!bytes) return rt_no_memory(d);
    const ampc_status status = rt_atomic_save(path, bytes, strlen(bytes), d);
    free(bytes);
    return status;
}
