/* io.c - complete transfers over POSIX calls, with fault injection.
 *
 * Every system call is preceded by fault(), which counts it and, in a test, decides whether it fails. */
#include "runtime/files/io.h"
#include "ir/base/beneath.h"
#include "ir/base/input_file.h"

#include "ir/base/write_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Thread_local struct {
    uint64_t calls, fail_at;
    int error;
    bool persistent;
} faults;

void rt_io_fail(uint64_t n, int error, bool persistent)
{
    faults.calls = 0;
    faults.fail_at = n;
    faults.error = error;
    faults.persistent = persistent;
}

uint64_t rt_io_calls(void) { return faults.calls; }

static bool fault(void)
{
    uint64_t call = ++faults.calls;
    if (!faults.fail_at) return false;
    if (faults.persistent ? call < faults.fail_at : call != faults.fail_at) return false;
    errno = faults.error;
    return true;
}

int rt_io_open(const char *path, int flags, unsigned mode)
{
    if (fault()) return -1;
    int fd;
    do fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

ampc_status rt_io_open_input(const char *path, diag *d, int *fd, uint64_t *size)
{
    *fd = -1;
    return fault() ? diag_errno(d, DIAG_FILE(path), "cannot open") : input_open(path, d, fd, size);
}

ampc_status rt_io_open_beneath(const char *folder, const char *name, int *fd, const char **why)
{
    int64_t size;
    if (!fault()) return beneath_open(folder, name, fd, &size, why);
    *fd = -1;
    *why = "cannot be opened";
    return AMPC_IO;
}

bool rt_io_close(int fd)
{
    bool failed = fault();
    int error = errno;
    if (close(fd) != 0 && errno != EINTR) return false;
    errno = error;
    return !failed;
}

bool rt_io_size(int fd, uint64_t *size)
{
    struct stat st;
    if (fault() || fstat(fd, &st) != 0) return false;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : ESPIPE;
        return false;
    }
    *size = (uint64_t)st.st_size;
    return true;
}

/* Linux transfers at most 2 GiB - 4 KiB per call; some other systems reject larger requests. */
static size_t limit_bytes(size_t n) { return n < (1u << 30) ? n : (1u << 30); }

bool rt_io_pread(int fd, void *dst, size_t n, uint64_t offset)
{
    return !n || (!fault() && input_read_at(fd, dst, n, offset));
}

/* offset < 0: write at the current position. */
static bool write_pieces(int fd, const void *src, size_t n, int64_t offset)
{
    const char *at = src;
    while (n > 0) {
        bool failed = fault();
        int error = errno;
        size_t requested = failed ? n / 2 : limit_bytes(n);
        ssize_t put = offset < 0 ? write(fd, at, requested) : pwrite(fd, at, requested, (off_t)offset);
        if (failed) return errno = error, false;
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        if (put == 0) return errno = ENOSPC, false;
        at += put;
        n -= (size_t)put;
        if (offset >= 0) offset += put;
    }
    return true;
}

static bool write_all(int fd, const void *src, size_t n, int64_t offset)
{
    write_guard guard = write_guard_begin();
    bool done = write_pieces(fd, src, n, offset);
    write_guard_end(&guard);
    return done;
}

bool rt_io_write(int fd, const void *src, size_t n) { return write_all(fd, src, n, -1); }

bool rt_io_pwrite(int fd, const void *src, size_t n, uint64_t offset) { return write_all(fd, src, n, (int64_t)offset); }

void rt_io_begin_sync(int fd, uint64_t offset, uint64_t n)
{
    int error = errno;
    sync_file_range(fd, (off_t)offset, (off_t)n, SYNC_FILE_RANGE_WRITE);
    errno = error;
}

bool rt_io_fsync(int fd)
{
    if (fault()) return false;
    int result;
    do result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

bool rt_io_truncate(int fd, uint64_t size)
{
    if (fault()) return false;
    int result;
    do result = ftruncate(fd, (off_t)size);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

bool rt_io_rename(const char *from, const char *to) { return !fault() && rename(from, to) == 0; }

bool rt_io_fsync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 1;
    if (n >= PATH_MAX) return errno = ENAMETOOLONG, false;
    snprintf(folder, sizeof folder, "%.*s", n ? n : 1, slash ? path : ".");
    int fd = rt_io_open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return false;
    /* EINVAL: the file system cannot sync a folder, so there is nothing to do. */
    bool done = rt_io_fsync(fd) || errno == EINVAL;
    int error = errno;
    bool closed = rt_io_close(fd);
    if (!done) errno = error;
    return done && closed;
}
