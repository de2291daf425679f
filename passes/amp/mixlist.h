/* mixlist.h - lists of operators in the formats of other compilers: ATC's --modify_mixlist (JSON) and the variables of
 * TensorFlow's grappler (NAME=Op,Op). */
#ifndef AMPC_MIXLIST_H
#define AMPC_MIXLIST_H

#include "ir/base/arena.h"
#include "ir/ops/ops.h"

typedef struct mixlist_line {
    const char *op; /* ONNX's name, or the other's if none is known */
    ir_colour colour;
    bool remove;
    int line;
} mixlist_line;

typedef struct mixlist {
    VEC(mixlist_line) lines;
    const char *error; /* NULL: the file could be read */
    int error_line;
} mixlist;

/* Whether the text is in one of the formats, by its first word. */
bool mixlist_is(const char *text);
void mixlist_read(const char *text, arena *a, mixlist *out);
/* The names of an ONNX operator in a list for ATC, by index; NULL past the last. */
const char *mixlist_name(const char *op, int index);

#endif
