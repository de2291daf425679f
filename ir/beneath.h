/* beneath.h - files that a model or a module names: they lie in its folder, or below.
 *
 * Whoever wrote the file chose the name, so it may not lead elsewhere: no absolute path, no "..", no symbolic link
 * that leaves the folder. The kernel enforces that (openat2 with RESOLVE_BENEATH); where it cannot, each component is
 * opened by itself and no link is followed at all. Only regular files are opened, and opening never waits. */
#ifndef AMPC_BENEATH_H
#define AMPC_BENEATH_H

#include "ir/diag.h"

#include <stdint.h>

/* What is wrong with the name itself ("is an absolute path"), or NULL. */
const char *beneath_name_fault(const char *name);

/* Opens `name` for reading in `folder` (NULL or "": the working directory). On failure *fd is -1 and *why ends a
 * sentence that begins with the name: AMPC_REJECTED: it leads elsewhere or is not a regular file; AMPC_IO or
 * AMPC_NO_MEMORY, with errno: it cannot be opened. */
ampc_status beneath_open(const char *folder, const char *name, int *fd, int64_t *size, const char **why);

/* The fallback: opens the relative path under the folder `dir_fd` without following any link; a descriptor or -1 with
 * errno. */
int beneath_open_by_components(int dir_fd, const char *name);

#endif
