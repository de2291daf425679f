/* growing_file.h - files to which a run adds one record after another: step logs and event files.
 *
 * A record that was written only in part ends the file: nothing is written after it, so readers find at most one
 * unfinished record, the last one. */
#ifndef RT_GROWING_FILE_H
#define RT_GROWING_FILE_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rt_growing_file {
    const char *path; /* of the owner */
    diag *d;
    int fd;      /* -1 if not open */
    bool broken; /* a write failed */
} rt_growing_file;

/* Creates a file that does not exist yet. False with errno if it cannot be created; EEXIST: it exists. */
bool rt_growing_create(rt_growing_file *f);
/* Opens a file to continue it, or creates it. Its end can be read and cut unless it is a pipe. Fails with AMPC_IO. */
ampc_status rt_growing_continue(rt_growing_file *f);
/* Reports AMPC_IO with the path, errno and `what`, for example "cannot create". */
ampc_status rt_growing_fail(const rt_growing_file *f, const char *what);
/* Writes a record with as few calls as possible. After a failed write, this and all later ones return AMPC_IO; only
 * the first is reported. */
ampc_status rt_growing_write(rt_growing_file *f, const void *record, size_t n);
/* Flushes the file to the disk; does nothing for pipes and terminals. */
ampc_status rt_growing_sync(const rt_growing_file *f);
/* Closes the file if it is open. */
ampc_status rt_growing_close(rt_growing_file *f);

#endif
