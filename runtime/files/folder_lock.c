/* folder_lock.c - acquiring and releasing the lock of a folder, and recording its owner. */
#include "runtime/files/folder_lock.h"

#include "runtime/files/io.h"
#include "runtime/backend/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWNER_BYTES = 128 };

/* False if the previous owner removed the file between our open and our lock: then we locked a deleted file. */
static bool is_still_there(const rt_folder_lock *l)
{
    struct stat ours, named;
    return fstat(l->fd, &ours) == 0 && stat(l->path, &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
}

static ampc_status refuse(const rt_folder_lock *l, const char *folder, diag *d)
{
    char owner[OWNER_BYTES] = "";
    ssize_t n = pread(l->fd, owner, sizeof owner - 1, 0);
    owner[n > 0 ? strcspn(owner, "\n") : 0] = 0;
    return diag_error(d, AMPC_USAGE, DIAG_FILE(folder), "another training uses this folder (%s)",
                      *owner ? owner : "process unknown");
}

/* The name is used only for the message above, so failures are ignored. */
static void name_owner(const rt_folder_lock *l)
{
    char owner[OWNER_BYTES], host[64] = "";
    gethostname(host, sizeof host - 1);
    int n = snprintf(owner, sizeof owner, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(l->fd, 0) == 0) rt_io_pwrite(l->fd, owner, (size_t)n, 0);
}

static ampc_status acquire(const char *folder, diag *d, rt_folder_lock *l)
{
    l->fd = rt_io_open(l->path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (l->fd < 0) return diag_errno(d, DIAG_FILE(folder), "cannot lock the folder");
    int result;
    do result = flock(l->fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result == 0) return AMPC_OK;
    if (errno == EWOULDBLOCK) return refuse(l, folder, d);
    TRY(diag_warning(d, DIAG_FILE(folder), "cannot lock the folder against a second training: %s", strerror(errno)));
    rt_io_close(l->fd);
    l->fd = -1;
    return AMPC_OK;
}

/* Leaves the file in place. */
static void release(rt_folder_lock *l)
{
    if (l->fd >= 0) rt_io_close(l->fd);
    free(l->path);
    *l = RT_NO_FOLDER_LOCK;
}

ampc_status rt_folder_lock_acquire(const char *folder, diag *d, rt_folder_lock *out)
{
    ampc_status status;
    rt_folder_lock l = RT_NO_FOLDER_LOCK;
    if (asprintf(&l.path, "%s/.ampc-lock", folder) < 0) return rt_no_memory(d);
    while ((status = acquire(folder, d, &l)) == AMPC_OK && l.fd >= 0 && !is_still_there(&l)) rt_io_close(l.fd);
    if (status != AMPC_OK) {
        release(&l);
        return status;
    }
    if (l.fd >= 0) name_owner(&l);
    *out = l;
    return AMPC_OK;
}

void rt_folder_lock_release(rt_folder_lock *l)
{
    if (l->fd >= 0) unlink(l->path); /* before unlocking: afterwards the file might belong to the next owner */
    release(l);
}
