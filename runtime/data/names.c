/* names.c - lists of paths: the entries of a folder, and those that a pattern stands for. */
#include "runtime/data/names.h"

#include "runtime/backend/memory.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 1000000, MAX_DIGITS = 9 };

void rt_names_clear(rt_names *n)
{
    for (size_t i = 0; i < n->count; i++) free(n->items[i]);
    free(n->items);
    *n = (rt_names){0};
}

ampc_status rt_names_add(rt_names *n, char *item, diag *d)
{
    const bool full = !(n->count & (n->count - 1)); /* capacities are powers of two */
    char **more = item && full ? realloc(n->items, (n->count ? 2 * n->count : 1) * sizeof *more) : n->items;
    if (!item || !more) {
        free(item);
        return rt_no_memory(d);
    }
    n->items = more;
    more[n->count++] = item;
    return AMPC_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char *join(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

ampc_status rt_names_list(rt_names *n, const char *folder, diag *d)
{
    const size_t before = n->count;
    ampc_status s = AMPC_OK;
    DIR *dir = opendir(folder);
    if (!dir) return diag_errno(d, DIAG_FILE(folder), "cannot open the folder");
    while (s == AMPC_OK) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e && errno) s = diag_errno(d, DIAG_FILE(folder), "cannot read the folder");
        if (!e) break;
        if (e->d_name[0] != '.') s = rt_names_add(n, join(folder, e->d_name), d);
    }
    closedir(dir);
    if (n->count > before) qsort(n->items + before, n->count - before, sizeof *n->items, by_name);
    return s;
}

/* ---- patterns ---- */

/* {A..B} in a pattern. */
typedef struct range {
    const char *begin, *end; /* the brace, and what follows it */
    long from, to;
    int digits; /* of A */
} range;

static bool find_range(const char *pattern, range *r)
{
    for (const char *at = pattern; (at = strchr(at, '{')); at++) {
        const size_t digits = strspn(at + 1, "0123456789");
        if (!digits || digits > MAX_DIGITS || strncmp(at + 1 + digits, "..", 2) != 0) continue;
        const size_t more = strspn(at + 3 + digits, "0123456789");
        if (!more || more > MAX_DIGITS || at[3 + digits + more] != '}') continue;
        *r = (range){at, at + digits + more + 4, strtol(at + 1, NULL, 10), strtol(at + 3 + digits, NULL, 10),
                     (int)digits};
        return true;
    }
    return false;
}

static ampc_status add_matches(rt_names *n, const char *pattern, diag *d)
{
    glob_t found = {0};
    ampc_status s = AMPC_OK;
    const int code = glob(pattern, GLOB_ERR, NULL, &found);
    if (code == GLOB_NOSPACE) s = rt_no_memory(d);
    else if (code == GLOB_NOMATCH) s = diag_error(d, AMPC_IO, DIAG_FILE(pattern), "no file matches");
    else if (code) s = diag_errno(d, DIAG_FILE(pattern), "cannot read the folder");
    for (size_t i = 0; s == AMPC_OK && i < found.gl_pathc; i++) s = rt_names_add(n, strdup(found.gl_pathv[i]), d);
    globfree(&found);
    return s;
}

static ampc_status expand_wildcards(rt_names *n, const char *pattern, diag *d)
{
    if (strpbrk(pattern, "*?[")) return add_matches(n, pattern, d);
    return rt_names_add(n, strdup(pattern), d);
}

/* Adds the text to *open once per number of the range. */
static ampc_status add_numbers(rt_names *open, const char *text, const range *r, diag *d)
{
    for (long k = r->from; k <= r->to; k++) {
        char *path;
        const int length = asprintf(&path, "%.*s%0*ld%s", (int)(r->begin - text), text, r->digits, k, r->end);
        TRY(rt_names_add(open, length < 0 ? NULL : path, d));
        if (open->count > MAX_NAMES)
            return diag_error(d, AMPC_USAGE, DIAG_FILE(open->items[0]), "the pattern stands for too many files");
    }
    return AMPC_OK;
}

/* Replaces the first range of each name by its numbers, until no name has one. */
ampc_status rt_names_expand(rt_names *n, const char *pattern, diag *d)
{
    rt_names open = {0};
    range r;
    ampc_status s = rt_names_add(&open, strdup(pattern), d);
    for (size_t i = 0; s == AMPC_OK && i < open.count; i++) {
        const char *text = open.items[i];
        s = find_range(text, &r) ? add_numbers(&open, text, &r, d) : expand_wildcards(n, text, d);
    }
    rt_names_clear(&open);
    return s;
}
