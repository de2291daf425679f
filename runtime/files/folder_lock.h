/* folder_lock.h - lock that allows one writer per folder.
 *
 * The lock (flock) is on the file ".ampc-lock" in the folder, which contains the owner's PID and host name. The
 * kernel releases the lock when the process ends for any reason; the file is removed when the lock is dropped, or
 * reused by the next owner. On NFS the lock works across hosts if the server runs a lock service. */
#ifndef RT_FOLDER_LOCK_H
#define RT_FOLDER_LOCK_H

#include "ir/base/diag.h"

typedef struct rt_folder_lock {
    int fd; /* negative: not held */
    char *path;
} rt_folder_lock;

#define RT_NO_FOLDER_LOCK ((rt_folder_lock){.fd = -1})

/* Locks `folder` without waiting. Fails with AMPC_USAGE, naming the owner, if another process (or another lock of
 * this process) holds the lock; with AMPC_IO if no file can be created in the folder; with AMPC_NO_MEMORY. On a file
 * system without locks it only warns, and nothing is held. */
ampc_status rt_folder_lock_acquire(const char *folder, diag *d, rt_folder_lock *out);
void rt_folder_lock_release(rt_folder_lock *l); /* allowed if not held */

#endif
