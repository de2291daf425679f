/* utf8.h - decodes UTF-8; which characters a terminal does not show as they are. */
#ifndef AMPC_UTF8_H
#define AMPC_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

/* Control characters (C0, DEL, C1) and those of Unicode's classes Cf, Zl and Zp, which are not visible and may reorder
 * the text around them. */
static inline bool utf8_is_control(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
        {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x180e, 0x180e},
        {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
        {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
        {0xe0000, 0xe007f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && code >= ranges[i][0]; i++)
        if (code <= ranges[i][1]) return true;
    return false;
}

/* Writes the character as \uNNNN, as JSON and the text form have it; above U+FFFF as a pair of surrogates. */
static inline void utf8_escape(uint32_t code, char *out, size_t size)
{
    if (code <= 0xffff) snprintf(out, size, "\\u%04x", (unsigned)code);
    else snprintf(out, size, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (code >> 10)), (unsigned)(0xdc00 + (code & 0x3ff)));
}

#endif
