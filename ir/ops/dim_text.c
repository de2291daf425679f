/* dim_text.c - printing dimensions, and a recursive-descent parser for them.
 *
 * Both ensure that parse(print(d)) == d in any table. */
#include "ir/ops/dim_table.h"
#include "ir/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 32 };

static bool name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool name_part(char c) { return name_start(c) || (c >= '0' && c <= '9') || c == '.'; }

/* The text of a symbol. Names that are not words are quoted, as are the reserved words "floor" and "max". */
static const char *print_name(const char *name, arena *a)
{
    size_t n = 0;
    while (name_part(name[n])) n++;
    if (!name[n] && name_start(name[0]) && strcmp(name, "floor") && strcmp(name, "max")) return name;
    char *out = arena_alloc(a, 6 * strlen(name) + 3), *at = out;
    *at++ = '"';
    for (const char *c = name, *end = name + strlen(name); c < end;) {
        uint32_t code = 0;
        const size_t length = utf8_decode(c, (size_t)(end - c), &code);
        if (length && code <= 0xffff && utf8_is_control(code)) { /* read_escape knows no surrogates */
            utf8_escape(code, at, 8);
            at += strlen(at);
            c += length;
            continue;
        }
        if (*c == '"' || *c == '\\') *at++ = '\\';
        *at++ = *c++;
    }
    *at = '"';
    return out;
}

static const char *print_atom(const ir_dim_table *t, uint32_t index, arena *a)
{
    const atom *x = &t->atoms.items[index];
    if (x->kind == ATOM_SYMBOL) return print_name(x->name, a);
    if (x->kind == ATOM_MAX) return arena_printf(a, "max(0,%s)", ir_dim_print(t, x->inner, a));
    bool sum = ir_dim_expression(t, x->inner)->count > 1;
    return arena_printf(a, "floor(%s%s%s/%" PRId64 ")", sum ? "(" : "", ir_dim_print(t, x->inner, a), sum ? ")" : "",
                        x->divisor);
}

const char *ir_dim_print(const ir_dim_table *t, ir_dim d, arena *a)
{
    if (d == IR_DIM_NONE) return "?";
    if (!ir_dim_is_symbolic(d)) return arena_printf(a, "%" PRId64, d);
    const expression *e = ir_dim_expression(t, d);
    const char *text = "";
    for (int i = 0; i < e->count; i++) {
        const term *x = &e->terms[i];
        int64_t magnitude = x->factor < 0 ? -x->factor : x->factor;
        const char *times = "";
        text = arena_printf(a, "%s%s", text, x->factor < 0 ? "-" : i ? "+" : "");
        if (magnitude != 1 || !x->degree) {
            text = arena_printf(a, "%s%" PRId64, text, magnitude);
            times = "*";
        }
        for (uint32_t j = 0; j < x->degree; j++, times = "*")
            text = arena_printf(a, "%s%s%s", text, times, print_atom(t, x->atoms[j], a));
    }
    return text;
}

/* sum := ["-"] product { ("+"|"-") product }    product := factor { "*" factor }
 * factor := number | name | "floor(" sum "/" number ")" | "max(" sum "," sum ")" | "(" sum ")" */
typedef struct reader {
    ir_dim_table *table;
    const char *at;
    int nesting;
    bool failed;
} reader;

static ir_dim read_sum(reader *r);

static ir_dim read_failed(reader *r)
{
    r->failed = true;
    return IR_DIM_NONE;
}

static bool read_char(reader *r, char c)
{
    if (*r->at != c || r->failed) return false;
    r->at++;
    return true;
}

static ir_dim read_number(reader *r)
{
    int64_t n = 0;
    if (*r->at < '0' || *r->at > '9') return read_failed(r);
    for (; *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *r->at - '0', &n)) return read_failed(r);
    return n;
}

/* Decodes one character after a backslash in a quoted name as UTF-8; false if malformed. */
static bool read_escape(reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *r->at;
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
        *(*out)++ = to[found - from];
        r->at++;
        return true;
    }
    if (c != 'u') return false;
    unsigned code = 0;
    for (int i = 1; i <= 4; i++) {
        static const char hex[] = "0123456789abcdefABCDEF";
        const char *digit = r->at[i] ? strchr(hex, r->at[i]) : NULL;
        if (!digit) return false;
        code = code * 16 + (unsigned)(digit - hex < 16 ? digit - hex : digit - hex - 6);
    }
    if (code == 0 || (code >= 0xd800 && code < 0xe000)) return false;
    r->at += 5;
    if (code >= 0x800) *(*out)++ = (char)(0xe0 | code >> 12);
    if (code >= 0x80) *(*out)++ = (char)(code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6);
    *(*out)++ = (char)(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
    return true;
}

static ir_dim read_quoted(reader *r)
{
    char *name = arena_alloc(r->table->arena, strlen(r->at) + 1), *out = name;
    while (*r->at && *r->at != '"') {
        if (read_char(r, '\\')) {
            if (!read_escape(r, &out)) return read_failed(r);
        } else {
            *out++ = *r->at++;
        }
    }
    *out = 0;
    return read_char(r, '"') && out > name ? ir_dim_symbol(r->table, name) : read_failed(r);
}

static ir_dim read_floor(reader *r)
{
    ir_dim inner = read_sum(r);
    if (!read_char(r, '/')) return read_failed(r);
    int64_t divisor = read_number(r);
    if (divisor <= 0 || !read_char(r, ')')) return read_failed(r);
    return ir_dim_floordiv(r->table, inner, divisor);
}

static ir_dim read_max(reader *r)
{
    ir_dim a = read_sum(r);
    if (!read_char(r, ',')) return read_failed(r);
    ir_dim b = read_sum(r);
    return read_char(r, ')') ? ir_dim_max(r->table, a, b) : read_failed(r);
}

static ir_dim read_word(reader *r)
{
    size_t n = 0;
    while (name_part(r->at[n])) n++;
    const char *name = arena_strndup(r->table->arena, r->at, n);
    r->at += n;
    if (!strcmp(name, "floor") && read_char(r, '(')) return read_floor(r);
    if (!strcmp(name, "max") && read_char(r, '(')) return read_max(r);
    return ir_dim_symbol(r->table, name);
}

static ir_dim read_factor(reader *r)
{
    if (r->nesting == MAX_NESTING) return read_failed(r);
    r->nesting++;
    ir_dim d;
    if (read_char(r, '(')) {
        d = read_sum(r);
        if (!read_char(r, ')')) d = read_failed(r);
    } else if (read_char(r, '"')) {
        d = read_quoted(r);
    } else {
        d = name_start(*r->at) ? read_word(r) : read_number(r);
    }
    r->nesting--;
    return d;
}

static ir_dim read_product(reader *r)
{
    ir_dim product = read_factor(r);
    while (read_char(r, '*')) product = ir_dim_mul(r->table, product, read_factor(r));
    return product;
}

static ir_dim read_sum(reader *r)
{
    ir_dim sum = read_char(r, '-') ? ir_dim_sub(r->table, 0, read_product(r)) : read_product(r);
    while (!r->failed && (*r->at == '+' || *r->at == '-')) {
        bool minus = *r->at++ == '-';
        ir_dim d = read_product(r);
        sum = minus ? ir_dim_sub(r->table, sum, d) : ir_dim_add(r->table, sum, d);
    }
    return sum;
}

ir_dim ir_dim_parse(ir_dim_table *t, const char *text, const char **end)
{
    reader r = {.table = t, .at = text};
    ir_dim d = read_sum(&r);
    *end = r.at;
    return r.failed ? IR_DIM_NONE : d;
}
