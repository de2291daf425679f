/* beneath.h - opens files named by a model or a module, which must be in its folder or below.
 *
 * The name is untrusted because it comes from the file, so it must not lead outside the folder: absolute paths, ".."
 * and symbolic links that leave the folder are rejected. The kernel enforces this (openat2 with RESOLVE_BENEATH); where
 * openat2 is not available, each path component is opened separately without following any link. Only regular files are
 * opened, and opening never blocks. */
#ifndef AMPC_BENEATH_H
#define AMPC_BENEATH_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdint.h>

/* What is wrong with the name itself ("is an absolute path"), or NULL. */
const char *beneath_name_fault(const char *name);

/* Opens `name` for reading in `folder` (NULL or "": the working directory). On failure *fd is -1 and *why completes a
 * sentence that begins with the name. Returns AMPC_REJECTED if the name leads outside the folder or is not a regular
 * file, AMPC_IO or AMPC_NO_MEMORY with errno if the file cannot be opened. */
ampc_status beneath_open(const char *folder, const char *name, int *fd, int64_t *size, const char **why);

/* Finds a file that the file `from` names, which must be in its folder or below; *path is allocated in `a`. Whether it
 * exists is left to the opening. AMPC_REJECTED with *why as above. */
ampc_status beneath_find(const char *from, const char *name, arena *a, const char **path, const char **why);

/* The fallback without openat2: opens a path relative to `dir_fd` without following links. Returns the descriptor, or
 * -1 with errno. */
int beneath_open_by_components(int dir_fd, const char *name);

#endif
