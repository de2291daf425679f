/* utf8.c - encoding, control characters and escapes. */
#include "ir/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a character as 1 to 4 bytes and returns their number. */
static size_t encode(uint32_t code, char *out)
{
    static const unsigned char marks[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(marks[length] | code);
    return length;
}

bool utf8_is_valid(const char *text)
{
    uint32_t code;
    for (size_t left = strlen(text), n; left; text += n, left -= n)
        if (!(n = utf8_decode(text, left, &code))) return false;
    return true;
}

bool utf8_is_control(uint32_t code)
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

void utf8_escape(uint32_t code, char *out, size_t size)
{
    if (code <= 0xffff) snprintf(out, size, "\\u%04x", (unsigned)code);
    else snprintf(out, size, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (code >> 10)), (unsigned)(0xdc00 + (code & 0x3ff)));
}

/* Reads \uNNNN and skips it; 0 if malformed. */
static uint32_t read_unit(const char **at, const char *end)
{
    char digits[5] = {0};
    if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return 0;
    memcpy(digits, *at + 2, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4) return 0;
    *at += 6;
    return (uint32_t)strtoul(digits, NULL, 16);
}

size_t utf8_unescape(const char **at, const char *end, char *out)
{
    static const char names[] = "\"\\/ntrbf", values[] = "\"\\/\n\t\r\b\f";
    const char *found = end - *at > 1 && (*at)[1] ? strchr(names, (*at)[1]) : NULL;
    if (found) {
        *out = values[found - names];
        *at += 2;
        return 1;
    }
    const uint32_t code = read_unit(at, end);
    if (code >= 0xd800 && code < 0xdc00) {
        const uint32_t low = read_unit(at, end);
        if (low < 0xdc00 || low > 0xdfff) return 0;
        return encode(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), out);
    }
    return code && (code < 0xdc00 || code > 0xdfff) ? encode(code, out) : 0;
}
