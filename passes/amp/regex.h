/* regex.h - regular expressions over names, as Python's re.match and POSIX write them.
 *
 * regcomp would not do: what it allocates is outside the arena, it crashes or hangs on some short expressions, and it
 * reads \d as the letter d. An expression is a set of states here, of which a name is read through once. */
#ifndef AMPC_REGEX_H
#define AMPC_REGEX_H

#include "ir/base/arena.h"

typedef struct regex regex;

/* Returns NULL and sets *why, with *at bytes in front of the fault, if the expression cannot be read. */
const regex *regex_compile(const char *text, arena *a, const char **why, size_t *at);
/* Whether the expression matches the name from its start; the rest of the name does not matter. */
bool regex_match(const regex *r, const char *name);

#endif
