/* json.c - works around jansson's silent errors on memory exhaustion: text is parsed after a string that makes the
 * lexer's buffer large enough. */
#include "runtime/files/json.h"

#include <stdlib.h>
#include <string.h>

/* Jansson's lexer reuses one buffer for all tokens and loses bytes if the buffer cannot grow. Therefore the text is
 * parsed as element 1 of an array whose element 0 is a string longer than any token of the text. Bytes can be lost
 * only from that string, which is discarded. */
enum { MARGIN = 16 };

/* An upper bound: no token is longer than the text between two quotation marks. */
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

/* Length of the token including its quotation marks. Not a power of two, where the buffer grows: the byte lost must
 * not be the closing quotation mark, which the lexer looks for in the buffer. */
static size_t primer_length(const char *text, size_t n)
{
    size_t length = longest_token(text, n) + MARGIN;
    return length + ((length & (length - 1)) == 0);
}

/* Builds ["xxx",text]; NULL if memory is exhausted. */
static char *primed_text(const char *text, size_t n, size_t preload, size_t *length)
{
    *length = preload + n + 3;
    char *primed = malloc(*length);
    if (!primed) return NULL;
    char *at = primed;
    *at++ = '[';
    memset(at, 'x', preload);
    at[0] = at[preload - 1] = '"';
    at[preload] = ',';
    memcpy(at + preload + 1, text, n);
    primed[*length - 1] = ']';
    return primed;
}

/* The parsed value; NULL if the text is malformed or bytes were lost. */
static json_t *parse_primed(const char *text, size_t n)
{
    size_t length, preload = primer_length(text, n);
    char *primed = primed_text(text, n, preload, &length);
    json_t *pair = primed ? json_loadb(primed, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(primed);
    const bool intact = json_array_size(pair) == 2 && json_string_length(json_array_get(pair, 0)) == preload - 2;
    json_t *value = intact ? json_incref(json_array_get(pair, 1)) : NULL;
    json_decref(pair);
    return value;
}

ampc_status rt_json_parse(const char *text, size_t n, bool ours, json_error_t *e, json_t **out)
{
    *e = (json_error_t){0}; /* jansson does not always set the code */
    *out = parse_primed(text, n);
    if (*out) return AMPC_OK;
    if (ours) return AMPC_NO_MEMORY;
    /* Malformed text fails again, now with an error that refers to the text alone. */
    json_t *again = json_loadb(text, n, JSON_REJECT_DUPLICATES, e);
    const bool wrong = !again && *e->text && json_error_code(e) != json_error_out_of_memory;
    json_decref(again);
    return wrong ? AMPC_REJECTED : AMPC_NO_MEMORY;
}
