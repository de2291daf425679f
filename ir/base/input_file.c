/* input_file.c - opening without waiting, and reading texts up to a limit. */
#include "ir/base/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIPES 0x50495045 /* the type of the file system of anonymous pipes, PIPEFS_MAGIC; named FIFOs are in others */

static bool is_anonymous_pipe(int fd, const struct stat *st)
{
    struct statfs fs;
    return S_ISFIFO(st->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type == PIPES;
}

/* A socket cannot even be opened. */
static ampc_status refuse(const char *path, const struct stat *st, diag *d)
{
    const char *what = S_ISDIR(st->st_mode)    ? "a directory; name a file in it"
                       : S_ISFIFO(st->st_mode) ? "not a regular file, but a pipe, which might never end"
                                               : "not a regular file, but a device";
    const ampc_status s = diag_error(d, AMPC_IO, DIAG_FILE(path), "%s", what);
    errno = 0;
    return s;
}

/* Reports errno, which is preserved. */
static ampc_status failed(const char *path, const char *what, diag *d)
{
    const int error = errno;
    const ampc_status s = diag_errno(d, DIAG_FILE(path), what);
    errno = error;
    return s;
}

static ampc_status open_kind(const char *path, bool pipes, diag *d, int *fd, uint64_t *size)
{
    struct stat st;
    int opened;
    *fd = -1;
    do opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (opened < 0 && errno == EINTR);
    if (opened < 0) return failed(path, "cannot open", d);
    ampc_status s = AMPC_OK;
    if (fstat(opened, &st) != 0) s = failed(path, "cannot read", d);
    else if (!S_ISREG(st.st_mode) && !(pipes && is_anonymous_pipe(opened, &st))) s = refuse(path, &st, d);
    /* The description is not shared with the shell. */
    else if (!S_ISREG(st.st_mode) && fcntl(opened, F_SETFL, O_RDONLY) != 0) s = failed(path, "cannot read", d);
    if (s != AMPC_OK) {
        const int error = errno;
        close(opened);
        errno = error;
        return s;
    }
    *fd = opened;
    *size = (uint64_t)st.st_size;
    return AMPC_OK;
}

ampc_status input_open(const char *path, diag *d, int *fd, uint64_t *size)
{
    return open_kind(path, false, d, fd, size);
}

ampc_status input_read_stream(FILE *f, const char *name, size_t most, diag *d, char **text, size_t *length)
{
    enum { FIRST = 1 << 14 };
    size_t capacity = most < FIRST ? most + 1 : FIRST, n;
    char *all = malloc(capacity + 1);
    *length = 0;
    while (all && (n = fread(all + *length, 1, capacity - *length, f)) > 0) {
        *length += n;
        if (*length < capacity) continue;
        if (*length > most) break;
        capacity = capacity > most / 2 ? most + 1 : 2 * capacity;
        char *larger = realloc(all, capacity + 1);
        if (!larger) free(all);
        all = larger;
    }
    if (!all) errno = ENOMEM;
    if (!all || ferror(f)) {
        const ampc_status s = failed(name, "cannot read", d);
        free(all);
        return s;
    }
    all[*length] = '\0';
    *text = all;
    return AMPC_OK;
}

bool input_read_at(int fd, void *dst, size_t n, uint64_t offset)
{
    enum { PIECE = 1 << 30 }; /* Linux transfers at most 2 GiB - 4 KiB per call; some other systems reject more */
    for (char *at = dst; n > 0;) {
        const ssize_t got = pread(fd, at, n < PIECE ? n : PIECE, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) return errno = ENODATA, false;
        at += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

ampc_status input_read(const char *path, size_t most, const char *refusal, diag *d, char **text, size_t *length)
{
    int fd;
    uint64_t size;
    TRY(open_kind(path, true, d, &fd, &size));
    FILE *f = fdopen(fd, "rb");
    if (!f) {
        const ampc_status s = failed(path, "cannot read", d);
        close(fd);
        return s;
    }
    const ampc_status s = input_read_stream(f, path, most, d, text, length);
    fclose(f);
    if (s != AMPC_OK || !refusal || *length <= most) return s;
    free(*text);
    *text = NULL;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "%s", refusal);
}
