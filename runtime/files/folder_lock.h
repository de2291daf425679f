/* folder_lock.h - one writer a folder.
 *
 * The lock (flock) is on the file ".ampc-lock" in the folder, which holds the owner's process number and host. It
 * vanishes with the process however that ends; the file itself goes when the lock is dropped, or is taken over by the
 * next owner. On NFS the lock holds between hosts where the server has its lock service. */
#ifndef RT_FOLDER_LOCK_H
#define RT_FOLDER_LOCK_H

#include "ir/diag.h"

typedef struct rt_folder_lock {
    int fd; /* negative: not held */
    char *path;
} rt_folder_lock;

#define RT_NO_FOLDER_LOCK ((rt_folder_lock){.fd = -1})

/* AMPC_USAGE, naming the owner, when another process (or another lock of this one) holds it; AMPC_IO when no file can
 * be made in the folder; AMPC_NO_MEMORY. A file system without locks is a warning, and nothing is held. */
ampc_status rt_folder_lock_take(const char *folder, diag *d, rt_folder_lock *out);
void rt_folder_lock_drop(rt_folder_lock *l); /* one that is not held allowed */

#endif
