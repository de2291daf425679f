/* parse_tokens.c - shared by all parts of the parser: errors with positions, single tokens, types. */
#include "ir/text/parser.h"

#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------------------- */

diag_loc ir_place(const ir_parser *p, const ir_token *t)
{
    const char *line = p->lex.text + t->line_start;
    size_t rest = p->lex.length - t->line_start, length = 0;
    while (length < rest && line[length] != '\n' && line[length] != '\r') length++;
    return (diag_loc){.file = p->file,
                      .line = t->line,
                      .column = (int)(t->start - t->line_start) + 1,
                      .text = arena_strndup(p->scratch, line, length)};
}

const char *ir_describe(const ir_parser *p, const ir_token *t)
{
    static const char *const formats[] = {[IR_TOKEN_END] = "the end of the text%s",
                                          [IR_TOKEN_WORD] = "'%s'",
                                          [IR_TOKEN_NUMBER] = "'%s'",
                                          [IR_TOKEN_STRING] = "\"%s\"",
                                          [IR_TOKEN_RESULT] = "'%%%s'",
                                          [IR_TOKEN_GLOBAL] = "'@%s'",
                                          [IR_TOKEN_MARK] = "'%s'",
                                          [IR_TOKEN_BAD] = "%s"};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return arena_printf(p->scratch, formats[t->kind], t->text);
#pragma GCC diagnostic pop
}

ampc_status ir_fail_expected(ir_parser *p, const char *what)
{
    const ir_token *t = &p->lex.token;
    if (t->kind == IR_TOKEN_BAD) return FAIL(p, "%s", t->text);
    return FAIL(p, "expected %s, found %s", what, ir_describe(p, t));
}

/* ---- single tokens --------------------------------------------------------------------------------------- */

static bool is(const ir_parser *p, ir_token_kind kind, const char *text)
{
    return p->lex.token.kind == kind && strcmp(p->lex.token.text, text) == 0;
}

bool ir_is_mark(const ir_parser *p, const char *mark) { return is(p, IR_TOKEN_MARK, mark); }

bool ir_is_word(const ir_parser *p, const char *word) { return is(p, IR_TOKEN_WORD, word); }

bool ir_accept_mark(ir_parser *p, const char *mark)
{
    if (!ir_is_mark(p, mark)) return false;
    ir_lexer_next(&p->lex);
    return true;
}

bool ir_accept_word(ir_parser *p, const char *word)
{
    if (!ir_is_word(p, word)) return false;
    ir_lexer_next(&p->lex);
    return true;
}

ampc_status ir_need_mark(ir_parser *p, const char *mark)
{
    if (ir_accept_mark(p, mark)) return AMPC_OK;
    return ir_fail_expected(p, arena_printf(p->scratch, "'%s'", mark));
}

ampc_status ir_need(ir_parser *p, ir_token_kind kind, const char *what, const char **out)
{
    *out = p->lex.token.text;
    if (p->lex.token.kind != kind) return ir_fail_expected(p, what);
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

ampc_status ir_need_int(ir_parser *p, int64_t *out)
{
    if (p->lex.token.kind != IR_TOKEN_NUMBER) return ir_fail_expected(p, "an integer");
    if (!ir_int_parse(p->lex.token.text, out)) return FAIL(p, "'%s' is not a 64-bit integer", p->lex.token.text);
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

const char *ir_parser_strdup(ir_parser *p, const char *s) { return arena_intern(p->module->arena, s); }

/* A copy of the comment after the last token, or NULL. */
const char *ir_accept_note(ir_parser *p) { return p->lex.note ? arena_strdup(p->module->arena, p->lex.note) : NULL; }

/* ---- types ----------------------------------------------------------------------------------------------- */

/* Parses "[N,784]"; the current token is '['. */
ampc_status ir_parse_dims(ir_parser *p, ir_int_list *out, size_t max)
{
    ir_lexer_next_dim(&p->lex);
    bool empty = p->lex.token.kind == IR_TOKEN_WORD && !*p->lex.token.text;
    while (!empty) {
        const ir_token t = p->lex.token;
        if (t.kind == IR_TOKEN_BAD) return FAIL(p, "%s", t.text);
        const char *end;
        ir_dim d = ir_dim_parse(p->module->dims, t.text, &end);
        if (d == IR_DIM_NONE || *end) return FAIL(p, "'%s' is not a dimension", t.text);
        if (out->count == max) return FAIL(p, "more than %zu dimensions", max);
        vec_push(p->scratch, out, d);
        ir_lexer_next(&p->lex);
        if (!ir_is_mark(p, ",")) return ir_need_mark(p, "]");
        ir_lexer_next_dim(&p->lex);
    }
    ir_lexer_next(&p->lex);
    return ir_need_mark(p, "]");
}

/* Parses "f32[N,784]", or "_" for the type of an unused result. */
ampc_status ir_parse_type(ir_parser *p, ir_type *out)
{
    *out = (ir_type){0};
    if (ir_accept_word(p, "_")) return AMPC_OK;
    if (p->lex.token.kind != IR_TOKEN_WORD) return ir_fail_expected(p, "a type");
    out->dtype = ir_dtype_parse(p->lex.token.text);
    if (out->dtype == IR_NO_DTYPE) return FAIL(p, "unknown element type '%s'", p->lex.token.text);
    ir_lexer_next(&p->lex);
    if (!ir_is_mark(p, "[")) return ir_fail_expected(p, "'['");
    ir_int_list dims = {0};
    TRY(ir_parse_dims(p, &dims, IR_MAX_RANK));
    *out = ir_type_make(out->dtype, (int)dims.count, dims.items);
    return AMPC_OK;
}

/* Parses the type of a storage or graph input. */
ampc_status ir_parse_declared_type(ir_parser *p, bool symbols, ir_type *out)
{
    TRY(ir_need_mark(p, ":"));
    const ir_token t = p->lex.token;
    TRY(ir_parse_type(p, out));
    if (out->dtype == IR_NO_DTYPE) return FAIL_AT(p, &t, "expected a type, found '_'");
    for (int i = 0; i < out->rank; i++) {
        if (ir_dim_is_symbolic(out->dims[i]) && !symbols)
            return FAIL_AT(p, &t, "the shape of a storage cannot be symbolic");
        if (!ir_dim_is_symbolic(out->dims[i]) && out->dims[i] < 0) return FAIL_AT(p, &t, "a dimension is negative");
    }
    return AMPC_OK;
}

ampc_status ir_parse_role(ir_parser *p, const char *const *words, int count, int *role)
{
    const char *expected = "";
    *role = 0;
    if (p->version == 1 || !ir_accept_word(p, "as")) return AMPC_OK;
    for (int i = 1; i < count; i++) {
        if (ir_accept_word(p, words[ *role = i])) return AMPC_OK;
        expected = arena_printf(p->scratch, "%s%s%s", expected, i == 1 ? "" : i + 1 < count ? ", " : " or ", words[i]);
    }
    return ir_fail_expected(p, expected);
}
