/* rows.h - runs all or selected tests of a program. A runner of many programs (tests/gpu) uses it to list their rows
 * and to run a row in a separate process. The environment selects:
 *   OPS_LIST=1              print the names of the selected rows, one per line, and run none
 *   OPS_ONLY=PATTERN[,..]   rows whose name matches one of these shell patterns
 *   OPS_SHARD=I/N           of those, every N-th row, starting with row I (from 0) */
#ifndef TESTS_ROWS_H
#define TESTS_ROWS_H

#include "tests/test.h"

#include <fnmatch.h>

static inline bool row_matches(const char *name, const char *patterns)
{
    char pattern[128];
    while (patterns && *patterns) {
        size_t length = strcspn(patterns, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)length, patterns);
        if (fnmatch(pattern, name, 0) == 0) return true;
        patterns += length + (patterns[length] == ',');
    }
    return false;
}

/* Returns the number of failed rows. Output is flushed line by line, so it survives a crash of the program. */
static inline int rows_run(const char *group, const struct CMUnitTest *tests, size_t n)
{
    const char *only = getenv("OPS_ONLY"), *shard = getenv("OPS_SHARD");
    const bool is_listing = getenv("OPS_LIST") != NULL;
    size_t first = 0, every = 1, seen = 0, count = 0;
    struct CMUnitTest *chosen = calloc(n + 1, sizeof *chosen);
    if (!chosen) return 1;
    if (shard && (sscanf(shard, "%zu/%zu", &first, &every) != 2 || first >= every)) {
        fprintf(stderr, "OPS_SHARD=%s: expected I/N with I < N\n", shard);
        exit(2);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < n; i++) {
        if (only && !row_matches(tests[i].name, only)) continue;
        if (seen++ % every != first) continue;
        if (is_listing) puts(tests[i].name);
        else chosen[count++] = tests[i];
    }
    int failed = is_listing ? 0 : _cmocka_run_group_tests(group, chosen, count, NULL, NULL);
    free(chosen);
    return failed;
}

#endif
