/* suggest.c - the closest of several words by edit distance. */
#include "ir/base/suggest.h"

#include <string.h>

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Levenshtein distance; words longer than MAX_LENGTH count as far apart. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { MAX_LENGTH = 64 };
    size_t n = strlen(a), m = strlen(b), row[MAX_LENGTH + 1];
    if (n > MAX_LENGTH || m > MAX_LENGTH) return MAX_LENGTH;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t changed = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smaller(changed, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

suggestion suggest_for(const char *word)
{
    return (suggestion){.word = word, .limit = smaller(3, strlen(word) / 2) + 1};
}

void suggest_candidate(suggestion *s, const char *candidate)
{
    size_t distance = edit_distance(s->word, candidate);
    if (distance >= s->limit) return;
    s->best = candidate;
    s->limit = distance;
}

const char *suggestion_hint(const suggestion *s, const char *dashes, arena *a)
{
    return s->best ? arena_printf(a, "; did you mean %s%s?", dashes, s->best) : "";
}
