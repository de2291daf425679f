/* json.h - what jansson does not say: whether memory was short.
 *
 * Its writer drops the text of a key, and its lexer drops a byte of a token, when a buffer cannot grow; other failed
 * allocations look like syntax errors. These functions tell the cases apart, because a file may be called damaged
 * only when its content is. */
#ifndef RT_JSON_H
#define RT_JSON_H

#include "ir/ampc_status.h"

#include <jansson.h>
#include <stdbool.h>

/* The compact text of an object or array in malloced memory with `spare` more bytes behind it, *n bytes without them;
 * NULL when memory is exhausted. */
char *rt_json_text(const json_t *value, size_t spare, size_t *n);

/* An object or array. AMPC_OK; AMPC_REJECTED with *e when the text is no JSON or has a key twice; AMPC_NO_MEMORY.
 * `ours`: the text is known to be one of rt_json_text, so that any failure is that of memory. The caller owns *out,
 * which is NULL after a failure. */
ampc_status rt_json_parse(const char *text, size_t n, bool ours, json_error_t *e, json_t **out);

#endif
