/* codebook.h - what the numbers of a data set stand for: the names of classes and categories, and the means that
 * replace missing values.
 *
 * A training derives it from its data and keeps it in checkpoints, as text, so that evaluations and predictions give
 * the same names the same numbers. */
#ifndef RT_CODEBOOK_H
#define RT_CODEBOOK_H

#include "ir/base/diag.h"
#include "runtime/data/names.h"

#include <stdint.h>

#define RT_CODE_LABEL "label" /* the entry of the classes */

typedef struct rt_code {
    char *field;
    rt_names names; /* by number, different and UTF-8; none: a mean */
    double mean;    /* of a field of numbers */
} rt_code;

/* Zero-initialise; rt_codebook_clear frees it. */
typedef struct rt_codebook {
    rt_code *items;
    size_t count;
} rt_codebook;

void rt_codebook_clear(rt_codebook *b);
const rt_code *rt_codebook_find(const rt_codebook *b, const char *field); /* NULL: none; b may be NULL */

/* Copies. Fails with AMPC_NO_MEMORY. */
ampc_status rt_codebook_add_names(rt_codebook *b, const char *field, const char *const *names, size_t n, diag *d);
/* Moves the names into the entry, which is added if there is none. */
ampc_status rt_codebook_set_names(rt_codebook *b, const char *field, rt_names *names, diag *d);
/* Adds the names of a list A+B+..; an entry that is there must be equal to them (AMPC_USAGE). */
ampc_status rt_codebook_add_list(rt_codebook *b, const char *field, const char *list, diag *d);
ampc_status rt_codebook_add_mean(rt_codebook *b, const char *field, double mean, diag *d);

/* The text is JSON: {"label": ["cat", "dog"], "age": 29.5}. Malloced; NULL if memory is exhausted. */
char *rt_codebook_print(const rt_codebook *b);
/* Fails with AMPC_REJECTED if the text is not that of a codebook, or AMPC_NO_MEMORY. The caller clears *out also then.
 */
ampc_status rt_codebook_parse(const char *text, diag *d, rt_codebook *out);

/* Finds numbers by name. rt_code_index_clear frees it; the names must outlive it. */
typedef struct rt_code_index {
    const rt_names *names;
    size_t *sorted; /* numbers, in the order of their names */
} rt_code_index;

ampc_status rt_code_index_open(const rt_names *names, diag *d, rt_code_index *out);
void rt_code_index_clear(rt_code_index *x);
int64_t rt_code_number(const rt_code_index *x, const char *name); /* -1: no such name */

#endif
