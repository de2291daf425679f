/* markup.h - text of SVG, HTML and CSV. */
#ifndef AMPC_TOOLS_MARKUP_H
#define AMPC_TOOLS_MARKUP_H

#include "ir/base/diag.h"
#include "ir/base/text_buffer.h"

/* Appends XML text; invalid UTF-8 and characters that XML does not allow become '?'. */
void markup_escape(text_buffer *t, const char *s);
/* Appends a field of CSV, quoted if needed. */
void markup_quote(text_buffer *t, const char *s);
/* Writes the text to a file, atomically, and empties t. */
ampc_status markup_save(text_buffer *t, const char *path, diag *d);

#endif
