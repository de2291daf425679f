/* csv_table.h - reads the chosen columns of a CSV file into memory. */
#ifndef RT_CSV_TABLE_H
#define RT_CSV_TABLE_H

#include "ir/base/diag.h"

#include <stdint.h>

typedef enum rt_csv_use { RT_CSV_FEATURE, RT_CSV_LABEL, RT_CSV_FILE } rt_csv_use;
typedef enum rt_csv_kind { RT_CSV_UNDECIDED, RT_CSV_NUMBERS, RT_CSV_TEXTS } rt_csv_kind;

/* A column that is read. Its kind is that of its first value, unless it was chosen before. */
typedef struct rt_csv_column {
    size_t index; /* in the file */
    rt_csv_use use;
    rt_csv_kind kind; /* undecided after reading: all values are missing */
    double *values;   /* [rows] of numbers, finite; NaN: missing */
    char **texts;     /* [rows] of texts, UTF-8 if it is not a file; NULL: missing */
} rt_csv_column;

/* The caller sets the first four members and zeroes the others. */
typedef struct rt_csv {
    const char *path;
    bool header; /* the first line has the names of the columns; otherwise they are column1, column2, .. */
    char delimiter;
    bool missing; /* a field may be empty, NA, N/A, NaN, null or ?, in any case: its value is missing */
    char **names; /* of all columns in the file, different and not empty */
    size_t columns;
    rt_csv_column *chosen; /* an array of `columns` + 3 elements */
    size_t n_chosen;
    int64_t rows; /* 1 .. INT32_MAX */
    int *lines;   /* [rows], where each begins in the file */
} rt_csv;

/* Adds to the chosen columns (before: none) by their names. */
typedef ampc_status rt_csv_choose(void *user, rt_csv *t, diag *d);

/* Reads the file. Fails with AMPC_REJECTED, naming the line, for malformed quotes, a line with another number of fields
 * than the first one, a missing value without permission, and a value in a column of numbers that is not finite; also
 * for a file that has no rows or changes while it is read; with AMPC_IO, AMPC_NO_MEMORY, or like `choose`. The caller
 * clears the table in any case. */
ampc_status rt_csv_read(rt_csv *t, rt_csv_choose *choose, void *user, diag *d);
void rt_csv_clear(rt_csv *t);

bool rt_csv_parse_number(const char *text, double *out); /* false if it is not a finite number */

#endif
