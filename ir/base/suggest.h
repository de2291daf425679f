/* suggest.h - "did you mean": the known word closest to an unknown one. */
#ifndef AMPC_SUGGEST_H
#define AMPC_SUGGEST_H

#include "ir/base/arena.h"

typedef struct suggestion {
    const char *word; /* as the user wrote it */
    const char *best; /* NULL while no candidate is close */
    size_t limit;     /* edit distance that the next candidate must beat */
} suggestion;

suggestion suggest_for(const char *word);
void suggest_candidate(suggestion *s, const char *candidate);
/* "; did you mean WORD?", or "" if no candidate is close. */
const char *suggestion_hint(const suggestion *s, const char *dashes, arena *a);

#endif
