/* number.c - numbers are printed as the shortest text that reads back as the same bits.
 *
 * Printing tries 1, 2, 3 ... significant digits until the text reads back as the same value; 17 are always enough. The
 * C locale is set around each conversion because the host program may use another decimal point. */
#include "ir/ops/number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t enter_c_locale(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a static object that need not be freed */
    return c ? uselocale(c) : (locale_t)0;
}

static void leave_c_locale(locale_t before)
{
    if (before) uselocale(before);
}

/* 1e-05 -> 1e-5, 1e+20 -> 1e20 */
static void shorten_exponent(char *text)
{
    char *from = strchr(text, 'e');
    if (!from) return;
    char *to = ++from;
    if (*from == '-') to++;
    if (*from == '-' || *from == '+') from++;
    while (*from == '0' && from[1]) from++;
    memmove(to, from, strlen(from) + 1);
}

static bool reads_back(const char *text, ir_dtype t, double v)
{
    unsigned char expected[8] = {0}, got[8] = {0};
    ir_store_f64(t, expected, v);
    ir_store_f64(t, got, strtod(text, NULL));
    return memcmp(expected, got, sizeof expected) == 0;
}

void ir_float_print(char out[IR_NUMBER_SIZE], ir_dtype t, double v)
{
    if (isnan(v) || isinf(v)) {
        snprintf(out, IR_NUMBER_SIZE, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    locale_t before = enter_c_locale();
    if (fabs(v) < 1e15 && v == floor(v)) { /* prints 2000 rather than 2e3 */
        snprintf(out, IR_NUMBER_SIZE, "%.0f", v);
    } else {
        int digits = 1;
        do snprintf(out, IR_NUMBER_SIZE, "%.*g", digits, v);
        while (digits++ < 17 && !reads_back(out, t, v));
        shorten_exponent(out);
    }
    leave_c_locale(before);
}

bool ir_element_print(char out[IR_NUMBER_SIZE], ir_dtype t, const void *p)
{
    if (ir_dtype_is_float(t)) ir_float_print(out, t, ir_load_f64(t, p));
    else if (t == IR_bool) snprintf(out, IR_NUMBER_SIZE, "%s", *(const uint8_t *)p ? "true" : "false");
    else if (t == IR_u64) snprintf(out, IR_NUMBER_SIZE, "%llu", (unsigned long long)ir_load_i64(t, p));
    else snprintf(out, IR_NUMBER_SIZE, "%lld", (long long)ir_load_i64(t, p));
    unsigned char again[8] = {0};
    return ir_element_parse(out, t, again) && memcmp(again, p, ir_dtype_size(t)) == 0;
}

/* Accepts only the characters of decimal numbers, because strtod also parses blanks, hexadecimal, infinity and
 * nan(...). */
static bool is_decimal(const char *text)
{
    size_t n = strspn(text, "+-0123456789.eE");
    return n > 0 && text[n] == 0;
}

bool ir_float_parse(const char *text, double *out)
{
    static const struct {
        const char *text;
        double value;
    } spelled[] = {{"nan", (double)NAN}, {"inf", (double)INFINITY}, {"-inf", -(double)INFINITY}};
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++)
        if (strcmp(text, spelled[i].text) == 0) {
            *out = spelled[i].value;
            return true;
        }
    if (!is_decimal(text)) return false;
    locale_t before = enter_c_locale();
    char *end;
    *out = strtod(text, &end);
    leave_c_locale(before);
    return *end == 0 && !isinf(*out);
}

bool ir_int_parse(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    *out = v;
    return errno == 0;
}

static bool parse_unsigned(const char *text, uint64_t *out)
{
    if (!*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0;
}

bool ir_element_parse(const char *text, ir_dtype t, void *p)
{
    if (t == IR_bool) {
        *(uint8_t *)p = strcmp(text, "true") == 0;
        return *(uint8_t *)p || strcmp(text, "false") == 0;
    }
    if (ir_dtype_is_float(t)) {
        double v;
        if (!ir_float_parse(text, &v)) return false;
        ir_store_f64(t, p, v);
        return true;
    }
    int64_t v;
    if (t == IR_u64) return parse_unsigned(text, p);
    if (!ir_int_parse(text, &v)) return false;
    ir_store_i64(t, p, v);
    return ir_load_i64(t, p) == v;
}
