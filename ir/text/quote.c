/* quote.c - strings and names as the text of a module shows them. Runs of plain ASCII, nearly all of a text, are copied
 * at once. */
#include "ir/base/utf8.h"
#include "ir/text/text.h"

#include <stdio.h>
#include <string.h>

/* The length of the run at s, of at most n bytes, that is shown as it is, in quotes or not. */
static size_t count_plain(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\') i++;
    return i;
}

/* Adds the character at s, escaped if it is a control character. Returns its length at s. */
static size_t add_character(text_buffer *t, const char *s, size_t left)
{
    uint32_t code = 0;
    char escape[16];
    const size_t n = utf8_decode(s, left, &code), length = n ? n : 1;
    if (n && utf8_is_control(code)) {
        utf8_escape(code, escape, sizeof escape);
        text_put(t, escape);
    } else {
        text_add_bytes(t, s, length);
    }
    return length;
}

void ir_add_string(text_buffer *t, const char *s)
{
    static const char escaped[] = "\"\\\n\t\r\b\f", letters[] = "\"\\ntrbf";
    const char *end = s + strlen(s), *found;
    text_put(t, "\"");
    while (s < end) {
        const size_t plain = count_plain(s, (size_t)(end - s));
        text_add_bytes(t, s, plain);
        s += plain;
        if (s == end) break;
        if ((found = strchr(escaped, *s))) text_add_bytes(t, (char[]){'\\', letters[found - escaped]}, 2), s++;
        else s += add_character(t, s, (size_t)(end - s));
    }
    text_put(t, "\"");
}

void ir_add_note(text_buffer *t, const char *s, size_t n)
{
    for (size_t i = 0, shown; i < n; i += shown) {
        shown = count_plain(s + i, n - i);
        if (shown) text_add_bytes(t, s + i, shown);
        else if ((unsigned char)s[i] < ' ') text_put(t, " "), shown = 1;
        else shown = add_character(t, s + i, n - i);
    }
}

bool ir_name_is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    return *name && !name[strspn(name, plain)];
}

void ir_add_name(text_buffer *t, const char *sigil, const char *name)
{
    text_put(t, sigil);
    if (ir_name_is_plain(name)) text_put(t, name);
    else ir_add_string(t, name);
}
