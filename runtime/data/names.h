/* names.h - lists of paths and other names. */
#ifndef RT_NAMES_H
#define RT_NAMES_H

#include "ir/base/diag.h"

#include <stddef.h>

/* Malloced strings. Zero-initialise; rt_names_clear frees them. */
typedef struct rt_names {
    char **items;
    size_t count;
} rt_names;

/* Adds a malloced string, which the list then owns; frees it on failure. NULL counts as a failed allocation. */
ampc_status rt_names_add(rt_names *n, char *item, diag *d);
void rt_names_clear(rt_names *n);

/* Adds the entries of a folder, as paths in sorted order, without hidden ones. Fails also with AMPC_IO. */
ampc_status rt_names_list(rt_names *n, const char *folder, diag *d);
/* Adds the paths that a pattern stands for: {A..B} counts from A to B in as many digits as A has, and *, ? and [..]
 * match existing files, in sorted order. A path without these is added unchanged. Fails with AMPC_IO if no file
 * matches, AMPC_USAGE if the pattern stands for more than a million paths. */
ampc_status rt_names_expand(rt_names *n, const char *pattern, diag *d);

#endif
