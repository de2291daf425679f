/* dim_text.c - printing dimensions, and a recursive-descent parser for them.
 *
 * Both ensure that parse(print(d)) == d in any table. */
#include "ir/base/text_buffer.h"
#include "ir/base/utf8.h"
#include "ir/ops/dim_table.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_NESTING = 32 };

static bool name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool name_part(char c) { return name_start(c) || (c >= '0' && c <= '9') || c == '.'; }

/* The text of a symbol. Names that are not words are quoted, as are the reserved words "floor" and "max". */
static void add_name(text_buffer *t, const char *name)
{
    size_t n = 0;
    while (name_part(name[n])) n++;
    if (!name[n] && name_start(name[0]) && strcmp(name, "floor") && strcmp(name, "max")) {
        text_put(t, name);
        return;
    }
    text_put(t, "\"");
    for (const char *c = name, *end = name + strlen(name); c < end; c += n) {
        uint32_t code = 0;
        char escape[UTF8_ESCAPE];
        n = utf8_decode(c, (size_t)(end - c), &code);
        if (n && utf8_is_control(code)) {
            utf8_escape(code, escape, sizeof escape);
            text_put(t, escape);
            continue;
        }
        if (!n) n = 1;
        if (*c == '"' || *c == '\\') text_put(t, "\\");
        text_add_bytes(t, c, n);
    }
    text_put(t, "\"");
}

static void add_atom(text_buffer *t, const ir_dim_table *table, uint32_t index)
{
    const atom *x = &table->atoms.items[index];
    if (x->kind == ATOM_SYMBOL) {
        add_name(t, x->name);
        return;
    }
    const bool is_max = x->kind == ATOM_MAX, sum = !is_max && ir_dim_expression(table, x->inner)->count > 1;
    text_put(t, is_max ? "max(0," : sum ? "floor((" : "floor(");
    ir_dim_add_text(t, table, x->inner);
    if (sum) text_put(t, ")");
    if (!is_max) text_add(t, "/%" PRId64, x->divisor);
    text_put(t, ")");
}

void ir_dim_add_text(text_buffer *t, const ir_dim_table *table, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) {
        if (d == IR_DIM_NONE) text_put(t, "?");
        else text_add(t, "%" PRId64, d);
        return;
    }
    const expression *e = ir_dim_expression(table, d);
    for (int i = 0; i < e->count; i++) {
        const term *x = &e->terms[i];
        const int64_t magnitude = x->factor < 0 ? -x->factor : x->factor;
        const bool shown = magnitude != 1 || !x->degree;
        if (x->factor < 0 || i) text_put(t, x->factor < 0 ? "-" : "+");
        if (shown) text_add(t, "%" PRId64, magnitude);
        for (uint32_t j = 0; j < x->degree; j++) {
            if (shown || j) text_put(t, "*");
            add_atom(t, table, x->atoms[j]);
        }
    }
}

const char *ir_dim_print(const ir_dim_table *t, ir_dim d, arena *a)
{
    text_buffer text = {.arena = a};
    ir_dim_add_text(&text, t, d);
    return text_finish(&text);
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

static ir_dim read_quoted(reader *r)
{
    char *name = arena_alloc(r->table->arena, strlen(r->at) + 1), *out = name;
    while (*r->at && *r->at != '"') {
        if (*r->at != '\\') {
            *out++ = *r->at++;
            continue;
        }
        const char *at = r->at++;
        const size_t n = utf8_unescape(&at, at + strnlen(at, UTF8_ESCAPE), out);
        if (!n) return read_failed(r);
        out += n;
        r->at = at;
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
