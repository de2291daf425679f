/* utf8.h - one character of UTF-8 at a time. */
#ifndef AMPC_UTF8_H
#define AMPC_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes (1 to 4) of the sequence that begins the n bytes at s, its code point in *code; 0 when there is
 * none. Overlong forms, surrogates and values beyond U+10FFFF are none (RFC 3629). */
static inline size_t utf8_decode(const void *s, size_t n, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
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
    return *code >= least[length] && *code <= 0x10ffff && !surrogate ? length : 0;
}

#endif
