/* json.h - parsing JSON with reliable detection of memory exhaustion.
 *
 * When a buffer cannot grow, jansson's lexer omits a byte of a token; other failed allocations look like syntax errors.
 * This function distinguishes the cases, because a file may be reported as damaged only if its content is. JSON is
 * written by ir/base/json_writer.h. */
#ifndef RT_JSON_H
#define RT_JSON_H

#include "ir/base/ampc_status.h"

#include <jansson.h>
#include <stdbool.h>

/* Parses an object or array. Returns AMPC_OK, AMPC_REJECTED with *e if the text is malformed or has a duplicate key,
 * or AMPC_NO_MEMORY. `ours`: the text is known to be valid, so any failure is one of memory. The caller
 * owns *out, which is NULL on failure. */
ampc_status rt_json_parse(const char *text, size_t n, bool ours, json_error_t *e, json_t **out);

#endif
