/* rows.h - what the files of program `rows` share (rows.c). */
#ifndef TESTS_EXPECT_ROWS_H
#define TESTS_EXPECT_ROWS_H

#include "ir/graph/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern arena *memory; /* of the row */

_Noreturn void stop(const char *what, const char *text);
/* Returns the next blank-separated word and advances `text`. NULL at the end. */
char *next_word(const char **text);

/* Kinds of rows in rows_onnx.c and rows_emit.c. */
const char *rows_import(const char *input);
const char *rows_types(const char *input);
const char *rows_emit(const char *input);

#endif
