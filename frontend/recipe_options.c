/* recipe_options.c - the option statements of a recipe: "option" WORD {WORD}, up to the end of the line.
 *
 * Blanks separate words, except in quotes. A word that begins with '#' is a comment. */
#include "frontend/recipe_reader.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Skips blanks; false at the end of the line or at a comment. */
static bool find_word(const char **at, const char *end)
{
    while (*at < end && is_blank(**at)) ++*at;
    return *at < end && **at != '#';
}

/* Reads a word without its quotes; NULL: one is not closed. */
static const char *read_word(const char **at, const char *end, arena *a)
{
    char *word = arena_alloc(a, (size_t)(end - *at) + 1), *to = word;
    bool quoted = false;
    for (; *at < end && (quoted || !is_blank(**at)); ++*at) {
        if (**at == '"') quoted = !quoted;
        else *to++ = **at;
    }
    return quoted ? NULL : word;
}

/* Reads the words of one line after its first word. */
static ampc_status read_words(const char *at, const char *end, diag_loc where, arena *a, diag *d, recipe_options *out)
{
    while (find_word(&at, end)) {
        const recipe_option o = {.text = read_word(&at, end, a), .line = where.line};
        if (!o.text) return diag_error(d, AMPC_REJECTED, where, "a quote is not closed");
        if (strlen(o.text) < 3 || strncmp(o.text, "--", 2) != 0)
            return diag_error(d, AMPC_REJECTED, where, "'%s' is not an option, --NAME or --NAME=VALUE", o.text);
        vec_push(a, out, o);
    }
    return AMPC_OK;
}

static const char *end_of_line(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline ? newline : end;
}

static ampc_status read_options(const char *text, size_t length, const char *path, arena *a, diag *d,
                                recipe_options *out)
{
    static const char word[] = "option";
    const size_t n = sizeof word - 1;
    diag_loc where = {.file = path, .line = 1};
    for (const char *at = text, *end = text + length; at < end; where.line++) {
        const char *stop = end_of_line(at, end);
        const bool any = find_word(&at, stop) && (size_t)(stop - at) > n && memcmp(at, word, n) == 0;
        if (any && is_blank(at[n])) TRY(read_words(at + n, stop, where, a, d, out));
        at = stop + (stop < end);
    }
    return AMPC_OK;
}

ampc_status recipe_read_options(const char *path, arena *a, diag *d, recipe_options *out)
{
    size_t length = 0;
    char *text;
    TRY(recipe_read_file(path, &text, &length, d));
    const ampc_status status = read_options(text, length, path, a, d, out);
    free(text);
    return status;
}

ampc_status recipe_skip_options(recipe *r)
{
    ir_lexer *l = &r->p.lex;
    const char *end = l->text + l->length, *at = l->text + l->token.end, *stop = end_of_line(at, end);
    recipe_options unused = {0};
    TRY(read_words(at, stop, (diag_loc){.file = r->p.file, .line = l->token.line}, r->p.scratch, r->p.diag, &unused));
    l->at = (size_t)(stop - l->text);
    ir_lexer_next(l);
    return AMPC_OK;
}
