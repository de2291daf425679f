/* lex.c - splits IR text into tokens, one at a time.
 *
 * Blanks, line ends and comments only separate tokens, except that a comment after the last token of a line is kept as
 * the note of the statement that ends there. Strings are JSON strings whose decoded value is valid UTF-8 without NUL,
 * so names are C strings. The source is untrusted: nothing is read beyond its length. */
#include "ir/text/text.h"
#include "ir/base/utf8.h"

#include <string.h>

static bool at_end(const ir_lexer *l) { return l->at >= l->length; }

static char here(const ir_lexer *l) { return at_end(l) ? 0 : l->text[l->at]; }

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static bool is_name(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

static void newline(ir_lexer *l)
{
    l->line++;
    l->line_start = ++l->at;
}

/* The text from `start` to the end of the line, trimmed. */
static const char *comment_text(const ir_lexer *l, size_t start, size_t end)
{
    while (start < end && is_blank(l->text[start])) start++;
    while (end > start && is_blank(l->text[end - 1])) end--;
    return end > start ? arena_strndup(l->arena, l->text + start, end - start) : NULL;
}

static void skip_blanks(ir_lexer *l)
{
    int line = l->line;
    l->note = NULL;
    while (!at_end(l)) {
        if (here(l) == '\n') {
            newline(l);
        } else if (is_blank(here(l))) {
            l->at++;
        } else if (here(l) == '#') {
            size_t start = l->at + 1;
            while (!at_end(l) && here(l) != '\n') l->at++;
            if (l->line == line && !l->note) l->note = comment_text(l, start, l->at);
        } else {
            return;
        }
    }
}

static void bad(ir_lexer *l, const char *what)
{
    l->token.kind = IR_TOKEN_BAD;
    l->token.text = what;
}

/* ---- strings --------------------------------------------------------------------------------------------- */

/* Decodes the string at the cursor into the token's text. The decoded string is never longer than its source. */
static void lex_string(ir_lexer *l)
{
    size_t end = ++l->at;
    while (end < l->length && l->text[end] != '"' && l->text[end] != '\n')
        end += l->text[end] == '\\' && end + 1 < l->length && l->text[end + 1] != '\n' ? 2 : 1;
    if (end >= l->length || l->text[end] != '"') {
        bad(l, "unterminated string");
        return;
    }
    char *text = arena_alloc(l->arena, end - l->at + 1), *out = text;
    while (l->at < end) {
        uint32_t code;
        size_t length = utf8_decode(l->text + l->at, end - l->at, &code);
        if (!length || (unsigned char)here(l) < ' ') {
            bad(l, length ? "control character in a string" : "invalid UTF-8 in a string");
            return;
        }
        if (here(l) == '\\') {
            const char *at = l->text + l->at;
            const size_t n = utf8_unescape(&at, l->text + end, out);
            if (!n) {
                bad(l, "unknown escape in a string");
                return;
            }
            out += n;
            l->at = (size_t)(at - l->text);
            continue;
        }
        memcpy(out, l->text + l->at, length);
        out += length;
        l->at += length;
    }
    l->at = end + 1;
    l->token.text = text;
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

static const char *cut(const ir_lexer *l, size_t start)
{
    return arena_strndup(l->arena, l->text + start, l->at - start);
}

/* Reads the name after '%' or '@'. */
static void lex_name(ir_lexer *l)
{
    size_t start = ++l->at;
    if (here(l) == '"') {
        lex_string(l);
    } else {
        while (is_name(here(l))) l->at++;
        l->token.text = cut(l, start);
    }
    if (l->token.kind != IR_TOKEN_BAD && !*l->token.text) bad(l, "missing name");
}

static void lex_number(ir_lexer *l)
{
    size_t start = l->at++;
    while (is_name(here(l)) || ((here(l) == '-' || here(l) == '+') && (l->text[l->at - 1] | 0x20) == 'e')) l->at++;
    l->token.text = cut(l, start);
}

static void lex_word(ir_lexer *l)
{
    size_t start = l->at;
    while (is_name(here(l)) || here(l) == '-') l->at++;
    l->token.text = cut(l, start);
}

static ir_token_kind kind_of(char c)
{
    if (c == '"') return IR_TOKEN_STRING;
    if (c == '%') return IR_TOKEN_RESULT;
    if (c == '@') return IR_TOKEN_GLOBAL;
    if ((c >= '0' && c <= '9') || c == '-' || c == '+') return IR_TOKEN_NUMBER;
    if (is_name(c)) return IR_TOKEN_WORD;
    return c && strchr("{}()[]=:,!*", c) ? IR_TOKEN_MARK : IR_TOKEN_BAD;
}

static void begin_token(ir_lexer *l)
{
    l->token = (ir_token){.start = l->at, .line = l->line, .line_start = l->line_start, .text = ""};
}

void ir_lexer_next(ir_lexer *l)
{
    skip_blanks(l);
    begin_token(l);
    l->token.kind = at_end(l) ? IR_TOKEN_END : kind_of(here(l));
    size_t start = l->at;
    switch (l->token.kind) {
    case IR_TOKEN_END: break;
    case IR_TOKEN_STRING: lex_string(l); break;
    case IR_TOKEN_RESULT:
    case IR_TOKEN_GLOBAL: lex_name(l); break;
    case IR_TOKEN_NUMBER: lex_number(l); break;
    case IR_TOKEN_WORD: lex_word(l); break;
    case IR_TOKEN_MARK:
        l->at++;
        l->token.text = cut(l, start);
        break;
    case IR_TOKEN_BAD:
        l->at++;
        bad(l, "unexpected character");
        break;
    }
    l->token.end = l->at;
}

ir_lexer ir_lexer_start(const char *text, size_t length, arena *a)
{
    ir_lexer l = {.arena = a, .text = text, .length = length, .line = 1};
    ir_lexer_next(&l);
    return l;
}

/* Whether the cursor is at the end of a dimension, inside `depth` parentheses. */
static bool dim_ends(const ir_lexer *l, int depth, bool quoted)
{
    if (at_end(l) || here(l) == '#') return !quoted || at_end(l);
    return !quoted && depth <= 0 && (here(l) == ',' || here(l) == ']');
}

void ir_lexer_next_dim(ir_lexer *l)
{
    enum { LONGEST = 4096 };
    skip_blanks(l);
    begin_token(l);
    l->token.kind = IR_TOKEN_WORD;
    char buffer[LONGEST + 1];
    size_t n = 0;
    int depth = 0;
    for (bool quoted = false; !dim_ends(l, depth, quoted) && n < LONGEST;) {
        char c = here(l);
        if (c == '\n') {
            newline(l);
            continue;
        }
        if (c == '"') quoted = !quoted;
        if (c == '\\' && quoted) buffer[n++] = c, l->at++, c = here(l);
        if (!quoted) depth += (c == '(') - (c == ')');
        if (quoted || !is_blank(c)) buffer[n++] = c;
        if (!at_end(l)) l->at++;
    }
    buffer[n < LONGEST ? n : LONGEST] = 0;
    l->token.text = arena_strndup(l->arena, buffer, LONGEST);
    l->token.end = l->at;
    if (n >= LONGEST) bad(l, "a dimension is too long");
}
