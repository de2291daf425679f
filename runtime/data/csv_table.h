/* csv_table.h - reads the chosen columns of a CSV file into memory. */
#ifndef RT_CSV_TABLE_H
#define RT_CSV_TABLE_H

#include "ir/diag.h"

#include <stdint.h>

/* The caller sets the first three members and zeroes the others. */
typedef struct rt_csv {
    const char *path;
    bool header; /* the first line has the names of the columns; otherwise they are column1, column2, .. */
    char delimiter;
    char **names; /* of all columns in the file, different and not empty */
    size_t columns;
    size_t label;     /* a column; `columns`: none */
    size_t *features; /* columns, an array of `columns` elements */
    size_t n_features;
    int64_t rows;   /* 1 .. INT32_MAX */
    double *values; /* [rows, n_features], finite */
    double *labels; /* [rows], finite; to be set by the caller if there are `texts` */
    char **texts;   /* [rows], what the label says; NULL if its first value is a number */
    int *lines;     /* [rows], where each begins in the file */
} rt_csv;

/* Sets label (before: none) and features (before: none) from the names of the columns. */
typedef ampc_status rt_csv_choose(void *user, rt_csv *t, diag *d);

/* Reads the file. Fails with AMPC_REJECTED, naming the line, for malformed quotes, a line with another number of fields
 * than the first one and a value that is not a finite number, and for a file that has no rows or changes while it is
 * read; with AMPC_IO, AMPC_NO_MEMORY, or like `choose`. The caller clears the table in any case. */
ampc_status rt_csv_read(rt_csv *t, rt_csv_choose *choose, void *user, diag *d);
void rt_csv_clear(rt_csv *t);

#endif
