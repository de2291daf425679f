/* quote.c - strings and names as the text of a module shows them. */
#include "ir/base/utf8.h"
#include "ir/text/text.h"

#include <stdio.h>
#include <string.h>

size_t ir_show_character(const char *s, size_t left, char *shown, size_t size)
{
    uint32_t code = 0;
    size_t n = utf8_decode(s, left, &code), length = n ? n : 1;
    if (n && utf8_is_control(code)) utf8_escape(code, shown, size);
    else snprintf(shown, size, "%.*s", (int)length, s);
    return length;
}

typedef VEC(char) text;

static void append(text *t, arena *a, const char *s)
{
    while (*s) vec_push(a, t, *s++);
}

const char *ir_print_string(const char *s, arena *a)
{
    static const char escapes[][2] = {{'"', '"'},  {'\\', '\\'}, {'\n', 'n'}, {'\t', 't'},
                                      {'\r', 'r'}, {'\b', 'b'},  {'\f', 'f'}};
    text t = {0};
    append(&t, a, "\"");
    for (size_t left = strlen(s), n; left; left -= n, s += n) {
        char code[16];
        n = ir_show_character(s, left, code, sizeof code);
        for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
            if (*s == escapes[i][0]) snprintf(code, sizeof code, "\\%c", escapes[i][1]);
        append(&t, a, code);
    }
    append(&t, a, "\"");
    vec_push(a, &t, 0);
    return t.items;
}

bool ir_name_is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    return *name && !name[strspn(name, plain)];
}

const char *ir_print_name(const char *sigil, const char *name, arena *a)
{
    return arena_printf(a, "%s%s", sigil, ir_name_is_plain(name) ? name : ir_print_string(name, a));
}
