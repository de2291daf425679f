/* tier.h - how much of its work a test does. tools/check sets in the environment:
 *   AMPC_TIER   quick, default or full; without it, everything runs, as with full
 *   AMPC_SEED   a number that changes with each commit: below the full tier, tests rotate by it, so that one commit always
 *               runs the same tests and consecutive commits run consecutive parts
 * tests/tier.sh and tests/tier.py are the same for scripts. */
#ifndef TESTS_TIER_H
#define TESTS_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool tier_is_reduced(void)
{
    const char *tier = getenv("AMPC_TIER");
    return tier && strcmp(tier, "full") != 0;
}

static inline size_t tier_seed(void)
{
    const char *seed = getenv("AMPC_SEED");
    return seed ? (size_t)strtoull(seed, NULL, 10) : 0;
}

/* Returns whether test number i is due if n consecutive runs share the tests evenly; true in the full tier. */
static inline bool tier_is_due(size_t i, size_t n) { return !tier_is_reduced() || (i + tier_seed()) % n == 0; }

/* Prints "part 2 of 4: WHAT" if only the tests that are due run, so that a part is not mistaken for the whole. */
static inline void tier_print_part(const char *what, size_t n)
{
    if (!tier_is_reduced()) return;
    printf("part %zu of %zu: %s\n", tier_seed() % n + 1, n, what);
    fflush(stdout);
}

/* Drawings beyond these parts have open findings (CHANGES.md, "Known gaps") and are run by hand. */
enum { RANDOM_PARTS = 16 };
/* Returns the first number of `count` consecutive ones that a random test draws: 0 in the full tier, and below it that of
 * one of RANDOM_PARTS in turn. */
static inline size_t tier_first(size_t count) { return tier_is_reduced() ? count * (tier_seed() % RANDOM_PARTS) : 0; }

#endif
