/* json.h - jansson with reliable detection of memory exhaustion.
 *
 * When a buffer cannot grow, jansson's writer omits the text of a key and its lexer omits a byte of a token; other
 * failed allocations look like syntax errors. These functions distinguish the cases, because a file may be reported
 * as damaged only if its content is. */
#ifndef RT_JSON_H
#define RT_JSON_H

#include "ir/ampc_status.h"

#include <jansson.h>
#include <stdbool.h>

/* The compact text of an object or array in malloced memory, which has `spare` more bytes after the *n bytes of text.
 * NULL if memory is exhausted. */
char *rt_json_text(const json_t *value, size_t spare, size_t *n);

/* Parses an object or array. Returns AMPC_OK, AMPC_REJECTED with *e if the text is malformed or has a duplicate key,
 * or AMPC_NO_MEMORY. `ours`: the text is known to come from rt_json_text, so any failure is one of memory. The caller
 * owns *out, which is NULL on failure. */
ampc_status rt_json_parse(const char *text, size_t n, bool ours, json_error_t *e, json_t **out);

#endif
