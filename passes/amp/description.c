/* description.c - the line reader of descriptions. */
#include "passes/amp/description.h"

#include "ir/base/input_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 20 };

static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1])) text[--n] = '\0';
    return text;
}

static ampc_status read_line(const description *of, char *line, diag_loc loc, diag *d)
{
    line[strcspn(line, "#")] = '\0';
    char *key = trim(line), *equals = strchr(key, '=');
    if (!*key) return AMPC_OK;
    if (!equals) return diag_error(d, AMPC_REJECTED, loc, "expected 'KEY = VALUE', found '%s'", key);
    *equals = '\0';
    const char *name = trim(key), *value = trim(equals + 1);
    if (of->set(of->user, name, value, loc.line)) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, loc, "'%s = %s' is not a valid line of a %s description", name, value,
                      of->what);
}

ampc_status description_read(const char *file, const char *text, const description *of, diag *d)
{
    char refusal[80], *copy, *rest, *line;
    size_t length;
    snprintf(refusal, sizeof refusal, "not a %s description: 1 MiB or more", of->what);
    if (!text) TRY(input_read(file, LONGEST, refusal, d, &copy, &length));
    else if (!(copy = strdup(text))) return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    if (!text && memchr(copy, '\0', length)) {
        free(copy);
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(file), "not a %s description: it has a zero byte", of->what);
    }
    rest = copy;
    for (int number = 1; (line = strsep(&rest, "\n")); number++)
        read_line(of, line, (diag_loc){.file = file, .line = number, .column = 1}, d);
    free(copy);
    return diag_status(d);
}
