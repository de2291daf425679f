/* utf8.h - UTF-8, the escapes of JSON strings, and which characters a terminal does not show as they are. */
#ifndef AMPC_UTF8_H
#define AMPC_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the first character of the n bytes at s. Returns its length, 1 to 4 bytes, with the code point in *code, or 0
 * if malformed. Overlong forms, surrogates and values beyond U+10FFFF are malformed (RFC 3629). */
static inline size_t utf8_decode(const void *s, size_t n, uint32_t *code)
{
    static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = s;
    if (n == 0) return 0;
    size_t length = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    if (length == 0 || length > n) return 0;
    *code = length == 1 ? p[0] : p[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (p[i] >> 6 != 2) return 0;
        *code = *code << 6 | (p[i] & 0x3fu);
    }
    int surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code >= lowest[length] && *code <= 0x10ffff && !surrogate ? length : 0;
}

bool utf8_is_valid(const char *text);

/* Control characters (C0, DEL, C1) and those of Unicode's classes Cf, Zl and Zp, which are not visible and may reorder
 * the text around them. */
bool utf8_is_control(uint32_t code);

/* Writes the character as \uNNNN, as JSON and the text form have it; above U+FFFF as a pair of surrogates. */
enum { UTF8_ESCAPE = 13 };
void utf8_escape(uint32_t code, char *out, size_t size);
/* Decodes the escape that begins with the backslash at *at, and skips it. Returns the number of bytes written to `out`,
 * at most 4 and fewer than the escape has; 0: malformed, or NUL. */
size_t utf8_unescape(const char **at, const char *end, char *out);

#endif
