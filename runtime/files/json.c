/* json.c - jansson with its losses found: text is made in memory of its full size, and parsed behind a string that
 * takes the losses. */
#include "runtime/files/json.h"

#include <stdlib.h>
#include <string.h>

char *rt_json_text(const json_t *value, size_t spare, size_t *n)
{
    *n = json_dumpb(value, NULL, 0, JSON_COMPACT); /* into memory of ours nothing has to grow */
    char *text = *n ? malloc(*n + spare) : NULL;
    if (text && json_dumpb(value, text, *n, JSON_COMPACT) == *n) return text;
    free(text);
    return NULL;
}

/* ---- reading ---- */

/* Jansson's lexer keeps its buffer from token to token and forgets bytes when it cannot grow. So the text is parsed as
 * element 1 of an array whose element 0 is a string longer than any token of the text: whatever is lost is missing
 * there, where it does no harm. */
enum { MARGIN = 16 };

/* No token is longer than what lies between two quotation marks. */
static size_t longest_token(const char *text, size_t n)
{
    size_t longest = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\') i++;
        if (i >= n || text[i] != '"') continue;
        if (i - from > longest) longest = i - from;
        from = i;
    }
    return n - from > longest ? n - from : longest;
}

/* Of the token with its quotation marks; no power of two, where the buffer grows: the closing mark must not be what is
 * lost, as the lexer looks for it in the buffer. */
static size_t primer_length(const char *text, size_t n)
{
    size_t length = longest_token(text, n) + MARGIN;
    return length + ((length & (length - 1)) == 0);
}

/* ["xxx",text]; NULL when memory is exhausted. */
static char *primed_text(const char *text, size_t n, size_t primer, size_t *length)
{
    *length = primer + n + 3;
    char *primed = malloc(*length);
    if (!primed) return NULL;
    char *at = primed;
    *at++ = '[';
    memset(at, 'x', primer);
    at[0] = at[primer - 1] = '"';
    at[primer] = ',';
    memcpy(at + primer + 1, text, n);
    primed[*length - 1] = ']';
    return primed;
}

/* The value, or NULL when the text is malformed or something was lost. */
static json_t *parse_primed(const char *text, size_t n)
{
    size_t length, primer = primer_length(text, n);
    char *primed = primed_text(text, n, primer, &length);
    json_t *pair = primed ? json_loadb(primed, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(primed);
    const bool whole = json_array_size(pair) == 2 && json_string_length(json_array_get(pair, 0)) == primer - 2;
    json_t *value = whole ? json_incref(json_array_get(pair, 1)) : NULL;
    json_decref(pair);
    return value;
}

ampc_status rt_json_parse(const char *text, size_t n, bool ours, json_error_t *e, json_t **out)
{
    *e = (json_error_t){0}; /* jansson leaves the code as it was when it sets none */
    *out = parse_primed(text, n);
    if (*out) return AMPC_OK;
    if (ours) return AMPC_NO_MEMORY;
    /* Malformed text is so a second time; its error is about the text alone. */
    json_t *again = json_loadb(text, n, JSON_REJECT_DUPLICATES, e);
    const bool wrong = !again && *e->text && json_error_code(e) != json_error_out_of_memory;
    json_decref(again);
    return wrong ? AMPC_REJECTED : AMPC_NO_MEMORY;
}
