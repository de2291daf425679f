/* markup.h - text that grows, for SVG, HTML and CSV. */
#ifndef AMPC_TOOLS_MARKUP_H
#define AMPC_TOOLS_MARKUP_H

#include "ir/base/diag.h"

/* Zero before the first call. After a failed allocation calls do nothing. */
typedef struct markup {
    char *bytes;
    size_t n, capacity;
    bool failed;
} markup;

void markup_add(markup *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends XML text; invalid UTF-8 and characters that XML does not allow become '?'. */
void markup_escape(markup *t, const char *s);
/* Appends a field of CSV, quoted if needed. */
void markup_quote(markup *t, const char *s);
/* Returns the malloced text and empties t; NULL: memory was exhausted, or nothing was added. */
char *markup_take(markup *t);
/* Writes the text to a file, atomically, and empties t. */
ampc_status markup_save(markup *t, const char *path, diag *d);

#endif
