/* atomic_file.h - atomic replacement of files: a file appears complete or not at all.
 *
 * Protocol: create a temporary file in the target's folder (O_EXCL), write it, fsync, read it back, rename it, and
 * fsync the folder. A failure before the rename removes the temporary file and leaves the target unchanged. A failed
 * fsync is never retried. The writer holds a lock on its temporary file, so rt_atomic_sweep can distinguish a file in
 * use from one that a killed process left. A target that exists and is not a regular file (/dev/null, a pipe) is
 * written directly. Symbolic links are followed. */
#ifndef RT_ATOMIC_FILE_H
#define RT_ATOMIC_FILE_H

#include "ir/base/diag.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rt_atomic_file rt_atomic_file;

/* Opens a temporary file for `path`. `path` and `d` must outlive the file. Fails with AMPC_IO or AMPC_NO_MEMORY. */
ampc_status rt_atomic_open(const char *path, diag *d, rt_atomic_file **out);
/* The same for a path that the user did not choose: an existing file is replaced, and a symbolic link is not
 * followed. */
ampc_status rt_atomic_open_new(const char *path, diag *d, rt_atomic_file **out);
/* Appends n bytes. After a failure only rt_atomic_abort may follow. */
ampc_status rt_atomic_write(rt_atomic_file *f, const void *src, size_t n);
/* Overwrites bytes written earlier, such as a header that is completed last. Requires rt_atomic_check_with. */
ampc_status rt_atomic_rewrite(rt_atomic_file *f, uint64_t offset, const void *src, size_t n);
/* Checks that the file open as `fd`, which will become `path`, has the intended content. Messages go to `d`. */
typedef ampc_status rt_atomic_check(void *user, int fd, const char *path, diag *d);
/* Replaces the check that commit makes. By default it reads the file back and compares its hash with that of the
 * bytes passed to rt_atomic_write. A file with rewritten bytes, or whose content may have been wrong before it was
 * written, needs its own check. Call this before the first write. */
void rt_atomic_check_with(rt_atomic_file *f, rt_atomic_check *check, void *user);
uint64_t rt_atomic_tell(const rt_atomic_file *f);
/* Performs everything of a commit before the rename. Only commit or abort may follow. */
ampc_status rt_atomic_prepare(rt_atomic_file *f);
/* Makes the file durable under its name and frees f, also on failure. Fails with AMPC_IO, also if reading the file
 * back yields different bytes. If only the fsync of the folder fails, AMPC_IO is returned although the new file is
 * complete and in place. */
ampc_status rt_atomic_commit(rt_atomic_file *f);
/* The same for two files that belong together: on failure neither is replaced. (A process killed between the two
 * renames leaves only the first.) `first` may be NULL. Frees both. */
ampc_status rt_atomic_commit_both(rt_atomic_file *first, rt_atomic_file *second);
/* Removes the temporary file and frees f. NULL is allowed. */
void rt_atomic_abort(rt_atomic_file *f);

/* Opens, writes and commits a file. */
ampc_status rt_atomic_save(const char *path, const void *src, size_t n, diag *d);

/* Removes the temporary files that dead writers left in `folder` for targets whose name begins with `prefix`; returns
 * their number. Never fails: files that cannot be removed are ignored. */
size_t rt_atomic_sweep(const char *folder, const char *prefix);

#endif
