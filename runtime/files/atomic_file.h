/* atomic_file.h - a file appears whole or not at all.
 *
 * Protocol: temporary name in the same folder (O_EXCL), full writes, fsync, read back, rename, fsync of the folder.
 * Whatever fails before the rename removes the temporary file and leaves the target as it was; a failed
 * fsync is never retried. The writer holds a lock on its temporary file, so the sweep below can tell a
 * living writer's from one that a killed process left. A target that exists and is no regular file
 * (/dev/null, a pipe) is written directly; a symbolic link is followed. */
#ifndef RT_ATOMIC_FILE_H
#define RT_ATOMIC_FILE_H

#include "ir/diag.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rt_atomic_file rt_atomic_file;

/* AMPC_IO, AMPC_NO_MEMORY. `path` and `d` must outlive the file. */
ampc_status rt_atomic_open(const char *path, diag *d, rt_atomic_file **out);
/* The same for a name that the user did not choose: whatever stands there, a link too, is replaced and not
 * followed. */
ampc_status rt_atomic_open_new(const char *path, diag *d, rt_atomic_file **out);
/* Appends. After a failure only rt_atomic_abort may follow. */
ampc_status rt_atomic_write(rt_atomic_file *f, const void *src, size_t n);
/* Rewrites bytes written before (a header completed last). */
ampc_status rt_atomic_rewrite(rt_atomic_file *f, uint64_t offset, const void *src, size_t n);
/* Whether the file open as `fd`, which will be `path`, holds what was meant; d keeps messages only. */
typedef ampc_status rt_atomic_check(void *user, int fd, const char *path, diag *d);
/* By default commit reads the file back and compares its hash with that of the bytes given to rt_atomic_write. A file
 * with rewritten bytes, or one whose content could be wrong before it came here, has a check of its own. */
void rt_atomic_check_with(rt_atomic_file *f, rt_atomic_check *check, void *user);
uint64_t rt_atomic_tell(const rt_atomic_file *f);
/* All of a commit that comes before the rename; afterwards only commit or abort may follow. */
ampc_status rt_atomic_prepare(rt_atomic_file *f);
/* Makes the file durable under its name and frees f, also on failure. AMPC_IO also when it does not read back as
 * what was written. When only the last step, the
 * fsync of the folder, fails, the new file stands complete under its name and AMPC_IO is returned. */
ampc_status rt_atomic_commit(rt_atomic_file *f);
/* The same for two files that belong together: both stand under their names or neither does, whatever fails (a process
 * that is killed between the two renames leaves the first). `first` may be NULL. Frees both. */
ampc_status rt_atomic_commit_both(rt_atomic_file *first, rt_atomic_file *second);
/* Removes the temporary file and frees f. NULL allowed. */
void rt_atomic_abort(rt_atomic_file *f);

/* open + write + commit. */
ampc_status rt_atomic_save(const char *path, const void *src, size_t n, diag *d);

/* Removes the temporary files that dead writers left in `folder` for targets whose name begins with
 * `prefix`; returns how many. Never fails: what cannot be removed stays. */
size_t rt_atomic_sweep(const char *folder, const char *prefix);

#endif
