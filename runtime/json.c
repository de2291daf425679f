/* json.c - jansson with its losses found: text is made in memory of its full size, and what was parsed is written
 * again and compared. */
#include "runtime/json.h"

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

typedef struct cursor {
    const char *at, *end;
    bool same;
} cursor;

/* Sticky, as jansson goes on after a callback that failed. */
static int compare_piece(const char *piece, size_t n, void *user)
{
    cursor *c = user;
    c->same = c->same && n <= (size_t)(c->end - c->at) && memcmp(c->at, piece, n) == 0;
    if (c->same) c->at += n;
    return c->same ? 0 : -1;
}

/* Whether jansson would write this value as this text. */
static bool is_text_of(const char *text, size_t n, const json_t *value)
{
    cursor c = {text, text + n, true};
    if (json_dump_callback(value, compare_piece, &c, JSON_COMPACT) != 0 || !c.same) return false;
    while (c.at < c.end && *c.at == ' ') c.at++;
    return c.at == c.end;
}

static bool same_error(const json_error_t *a, const json_error_t *b)
{
    return a->position == b->position && strcmp(a->text, b->text) == 0 && *a->text &&
           json_error_code(a) != json_error_out_of_memory;
}

ampc_status rt_json_parse(const char *text, size_t n, bool ours, json_error_t *e, json_t **out)
{
    *e = (json_error_t){0}; /* jansson leaves the code as it was when it sets none */
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, e);
    *out = root;
    if (root && is_text_of(text, n, root)) return AMPC_OK;
    /* Somebody else's text, or an accident of memory, which does not strike twice at the same place. */
    json_error_t second = {0};
    json_t *again = ours ? NULL : json_loadb(text, n, JSON_REJECT_DUPLICATES, &second);
    bool same = root && again && json_equal(root, again), wrong = !ours && !root && !again && same_error(e, &second);
    json_decref(again);
    if (same) return AMPC_OK;
    json_decref(root);
    *out = NULL;
    return wrong ? AMPC_REJECTED : AMPC_NO_MEMORY;
}
