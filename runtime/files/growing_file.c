/* growing_file.c - stops at the first failed write. */
#include "runtime/files/growing_file.h"

#include "runtime/files/io.h"

#include <errno.h>
#include <fcntl.h>

bool rt_growing_create(rt_growing_file *f)
{
    f->fd = rt_io_open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666);
    return f->fd >= 0;
}

ampc_status rt_growing_continue(rt_growing_file *f)
{
    f->fd = rt_io_open(f->path, O_RDWR | O_APPEND | O_CREAT, 0666);
    const int error = errno;
    if (f->fd < 0) f->fd = rt_io_open(f->path, O_WRONLY | O_APPEND, 0666); /* a pipe */
    if (f->fd < 0) errno = error; /* why it could not be created, not that it does not exist */
    return f->fd < 0 ? rt_growing_fail(f, "cannot open") : AMPC_OK;
}

ampc_status rt_growing_fail(const rt_growing_file *f, const char *what)
{
    return diag_errno(f->d, DIAG_FILE(f->path), what);
}

ampc_status rt_growing_write(rt_growing_file *f, const void *record, size_t n)
{
    if (f->broken) return AMPC_IO;
    if (rt_io_write(f->fd, record, n)) return AMPC_OK;
    f->broken = true;
    return rt_growing_fail(f, "cannot write");
}

ampc_status rt_growing_sync(const rt_growing_file *f)
{
    /* EINVAL, EROFS: a pipe or a terminal */
    const bool done = rt_io_fsync(f->fd) || errno == EINVAL || errno == EROFS;
    return done ? AMPC_OK : rt_growing_fail(f, "cannot flush it to disk");
}

ampc_status rt_growing_close(rt_growing_file *f)
{
    const bool done = f->fd < 0 || rt_io_close(f->fd);
    f->fd = -1;
    return done ? AMPC_OK : rt_growing_fail(f, "cannot close");
}
