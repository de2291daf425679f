/* fuzz_regex.c - a regular expression, and after its line a name. What matches does not change in a group, in a choice
 * with itself, or counted once. */
#include "passes/amp/regex.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 1: it matches; 0: it does not; -1: it cannot be read. */
static int match(const char *text, const char *name, arena *a)
{
    const char *why = NULL;
    size_t at;
    const regex *r = regex_compile(text, a, &why, &at);
    if ((r != NULL) != (why == NULL) || at > strlen(text)) abort();
    return r ? regex_match(r, name) : -1;
}

static void compare(const char *text, const char *name, arena *a)
{
    static const char *const forms[] = {"(%s)", "(?:%s)|(%s)", "(%s){1}", "(%s){1,3}"};
    const int found = match(text, name, a);
    for (size_t i = 0; found >= 0 && strlen(text) < 100 && i < sizeof forms / sizeof *forms; i++) {
        const int again = match(arena_printf(a, forms[i], text, text), name, a);
        if (again >= 0 && again != found) abort();
    }
}

static void run(const uint8_t *data, size_t size, arena *a)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    const size_t n = line ? (size_t)(line - data) : size;
    const char *name = line ? arena_strndup(a, (const char *)line + 1, size - n - 1) : "";
    compare(arena_strndup(a, (const char *)data, n), name, a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = arena_new(0);
    jmp_buf guard;
    if (a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        run(data, size, a);
    }
    arena_free(a);
    return 0;
}
