/* markup.c - escapes and saves text of SVG, HTML and CSV. */
#include "tools/markup.h"

#include "ir/base/utf8.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"

#include <stdlib.h>
#include <string.h>

void markup_escape(text_buffer *t, const char *s)
{
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        uint32_t code;
        n = utf8_decode(s, left, &code);
        if (!n || code < 0x20 || code == 0x7f) text_put(t, "?");
        else if (code == '&') text_put(t, "&amp;");
        else if (code == '<') text_put(t, "&lt;");
        else if (code == '>') text_put(t, "&gt;");
        else if (code == '"') text_put(t, "&quot;");
        else text_add_bytes(t, s, n);
        if (!n) n = 1;
    }
}

void markup_quote(text_buffer *t, const char *s)
{
    if (!strpbrk(s, ",\"\r\n")) {
        text_put(t, s);
        return;
    }
    text_put(t, "\"");
    for (; *s; s++) text_add(t, *s == '"' ? "\"\"" : "%c", *s);
    text_put(t, "\"");
}

ampc_status markup_save(text_buffer *t, const char *path, diag *d)
{
    char *bytes = text_finish(t);
    if (!bytes) return rt_no_memory(d);
    const ampc_status status = rt_atomic_save(path, bytes, strlen(bytes), d);
    free(bytes);
    return status;
}
