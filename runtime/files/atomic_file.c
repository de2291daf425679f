/* atomic_file.c - temporary file, fsync, check, rename, fsync of the folder; the header describes the protocol.
 *
 * A temporary file is named ".NAME.PID-NUMBER.ampc-tmp", is in the folder of its target and is locked (flock) by its
 * writer. The sweep removes those that it can lock. */
#include "runtime/files/atomic_file.h"
#include "runtime/files/io.h"
#include "runtime/backend/memory.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define TEMP_SUFFIX ".ampc-tmp"
enum { BUFFER_SIZE = 1 << 16, SYNC_SIZE = 8 << 20 };

struct rt_atomic_file {
    const char *path; /* as the user wrote it, for messages */
    diag *d;
    char *target; /* `path` with links resolved */
    char *temp;   /* NULL: `target` is written directly */
    int fd;
    uint64_t length;        /* bytes written, buffered ones included */
    uint64_t begun;         /* bytes passed to rt_io_begin_sync */
    size_t held;            /* bytes in `buffer` */
    rt_atomic_check *check; /* NULL: compare all bytes by `hash` */
    void *check_user;
    XXH3_state_t *hash; /* of the bytes flushed from the buffer; NULL: `target` is written directly */
    unsigned char buffer[BUFFER_SIZE];
};

static void file_free(rt_atomic_file *f)
{
    XXH3_freeState(f->hash);
    free(f->target);
    free(f->temp);
    free(f);
}

void rt_atomic_abort(rt_atomic_file *f)
{
    if (!f) return;
    if (f->fd >= 0) rt_io_close(f->fd);
    if (f->temp) unlink(f->temp);
    file_free(f);
}

static ampc_status fail(const rt_atomic_file *f, const char *what)
{
    return diag_errno(f->d, DIAG_FILE(f->path), what);
}

/* The path that is finally written: follows existing links. NULL if memory is exhausted. */
static char *resolve(const char *path, bool *direct)
{
    struct stat st;
    *direct = false;
    if (stat(path, &st) != 0) return strdup(path);
    *direct = !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    char *real = realpath(path, NULL);
    return real || errno == ENOMEM ? real : strdup(path);
}

static char *temp_name(const char *target)
{
    static atomic_uint number;
    const char *slash = strrchr(target, '/');
    const char *base = slash ? slash + 1 : target;
    char *name = NULL;
    int n = asprintf(&name, "%.*s.%s.%ld-%u" TEMP_SUFFIX, (int)(base - target), target, base, (long)getpid(),
                     atomic_fetch_add(&number, 1));
    return n < 0 ? NULL : name;
}

static ampc_status open_temp(rt_atomic_file *f)
{
    f->hash = XXH3_createState();
    if (!f->hash) return rt_no_memory(f->d);
    XXH3_64bits_reset(f->hash);
    /* The name may exist if a dead process had our PID; try the next number instead of reusing it. */
    for (int attempt = 0; attempt < 100; attempt++) {
        free(f->temp);
        f->temp = temp_name(f->target);
        if (!f->temp) return rt_no_memory(f->d);
        f->fd = rt_io_open(f->temp, O_RDWR | O_CREAT | O_EXCL, 0666);
        if (f->fd >= 0 || errno != EEXIST) break;
    }
    if (f->fd < 0) {
        int error = errno;
        free(f->temp); /* another process owns it */
        f->temp = NULL;
        errno = error;
        return fail(f, "cannot create a temporary file next to it");
    }
    /* Failure is harmless: without lock support the sweep cannot lock the file either and leaves it alone. */
    flock(f->fd, LOCK_EX | LOCK_NB);
    return AMPC_OK;
}

/* Does not wait for the reader of a FIFO. */
static ampc_status open_direct(rt_atomic_file *f)
{
    f->fd = rt_io_open(f->target, O_WRONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (f->fd < 0 && errno == ENXIO)
        return diag_error(f->d, AMPC_IO, DIAG_FILE(f->path), "cannot open for writing: no process reads this pipe");
    const bool waits = f->fd >= 0 && fcntl(f->fd, F_SETFL, O_WRONLY) == 0;
    return waits ? AMPC_OK : fail(f, "cannot open for writing");
}

static ampc_status open_file(const char *path, bool follow, diag *d, rt_atomic_file **out)
{
    bool direct = false;
    rt_atomic_file *f = malloc(sizeof *f);
    if (!f) return rt_no_memory(d);
    *f = (rt_atomic_file){.path = path, .d = d, .fd = -1};
    f->target = follow ? resolve(path, &direct) : strdup(path);
    ampc_status s = !f->target ? rt_no_memory(d) : direct ? open_direct(f) : open_temp(f);
    if (s != AMPC_OK) {
        rt_atomic_abort(f);
        return s;
    }
    *out = f;
    return AMPC_OK;
}

ampc_status rt_atomic_open(const char *path, diag *d, rt_atomic_file **out) { return open_file(path, true, d, out); }

ampc_status rt_atomic_open_new(const char *path, diag *d, rt_atomic_file **out)
{
    return open_file(path, false, d, out);
}

static ampc_status put(rt_atomic_file *f, const void *src, size_t n)
{
    if (f->hash && !f->check) XXH3_64bits_update(f->hash, src, n);
    return rt_io_write(f->fd, src, n) ? AMPC_OK : fail(f, "cannot write");
}

static ampc_status flush(rt_atomic_file *f)
{
    size_t held = f->held;
    f->held = 0;
    return put(f, f->buffer, held);
}

/* Starts writing flushed bytes to the disk while the caller produces the rest. */
static void begin_sync(rt_atomic_file *f)
{
    uint64_t written = f->length - f->held;
    if (!f->temp || written - f->begun < SYNC_SIZE) return;
    rt_io_begin_sync(f->fd, f->begun, written - f->begun);
    f->begun = written;
}

static ampc_status write_through(rt_atomic_file *f, const void *src, size_t n)
{
    TRY(put(f, src, n));
    f->length += n;
    begin_sync(f);
    return AMPC_OK;
}

ampc_status rt_atomic_write(rt_atomic_file *f, const void *src, size_t n)
{
    if (n == 0) return AMPC_OK;
    if (n > BUFFER_SIZE - f->held) {
        TRY(flush(f));
        if (n >= BUFFER_SIZE) return write_through(f, src, n);
        begin_sync(f);
    }
    f->length += n;
    memcpy(f->buffer + f->held, src, n);
    f->held += n;
    return AMPC_OK;
}

ampc_status rt_atomic_rewrite(rt_atomic_file *f, uint64_t offset, const void *src, size_t n)
{
    assert(f->check); /* a fixed call order in the writers, independent of the data */
    TRY(flush(f));
    return rt_io_pwrite(f->fd, src, n, offset) ? AMPC_OK : fail(f, "cannot write");
}

uint64_t rt_atomic_tell(const rt_atomic_file *f) { return f->length; }

void rt_atomic_check_with(rt_atomic_file *f, rt_atomic_check *check, void *user)
{
    assert(f->length == 0); /* likewise */
    f->check = check;
    f->check_user = user;
}

/* The default check; `user` is the file. */
static ampc_status check_bytes(void *user, int fd, const char *path, diag *d)
{
    rt_atomic_file *f = user;
    uint64_t size, meant = XXH3_64bits_digest(f->hash);
    XXH3_64bits_reset(f->hash);
    if (!rt_io_size(fd, &size)) return diag_errno(d, DIAG_FILE(path), "cannot read");
    for (uint64_t at = 0, n; at < size; at += n) {
        n = size - at < BUFFER_SIZE ? size - at : BUFFER_SIZE;
        if (!rt_io_pread(fd, f->buffer, n, at)) return diag_errno(d, DIAG_FILE(path), "cannot read");
        XXH3_64bits_update(f->hash, f->buffer, n);
    }
    bool same = size == f->length && XXH3_64bits_digest(f->hash) == meant;
    return same ? AMPC_OK : diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "the bytes differ from those written");
}

/* Reads the temporary file back. */
static ampc_status check(rt_atomic_file *f)
{
    diag *quiet = diag_new(NULL, NULL);
    if (!quiet) return rt_no_memory(f->d);
    ampc_status s = f->check ? f->check(f->check_user, f->fd, f->path, quiet) : check_bytes(f, f->fd, f->path, quiet);
    if (s == AMPC_NO_MEMORY) rt_no_memory(f->d);
    else if (s != AMPC_OK)
        s = diag_error(f->d, AMPC_IO, DIAG_FILE(f->path),
                       "verification of the written data failed, so the file is unchanged (%s)",
                       diag_first_error(quiet));
    diag_free(quiet);
    return s;
}

ampc_status rt_atomic_prepare(rt_atomic_file *f)
{
    if (f->fd < 0) return AMPC_OK; /* already prepared */
    TRY(flush(f));
    if (f->temp && !rt_io_fsync(f->fd)) return fail(f, "cannot flush it to disk");
    if (f->temp) TRY(check(f));
    int fd = f->fd;
    f->fd = -1;
    return rt_io_close(fd) ? AMPC_OK : fail(f, "cannot close");
}

static ampc_status put_in_place(rt_atomic_file *f)
{
    if (!f->temp) return AMPC_OK;
    if (!rt_io_rename(f->temp, f->target)) return fail(f, "cannot rename the new file into place");
    free(f->temp);
    f->temp = NULL;
    return AMPC_OK;
}

static ampc_status sync_folder(const rt_atomic_file *f, bool direct)
{
    return direct || rt_io_fsync_folder(f->target) ? AMPC_OK : fail(f, "cannot flush its folder to disk");
}

ampc_status rt_atomic_commit(rt_atomic_file *f)
{
    const bool direct = !f->temp;
    ampc_status s = rt_atomic_prepare(f);
    if (s == AMPC_OK) s = put_in_place(f);
    if (s == AMPC_OK) s = sync_folder(f, direct);
    rt_atomic_abort(f);
    return s;
}

/* ---- two files ---- */

/* Links the existing target to a second name, *old: "" if there is no target, NULL if the file system has no links. */
static ampc_status keep_old(const rt_atomic_file *f, char **old)
{
    *old = temp_name(f->target);
    if (!*old) return rt_no_memory(f->d);
    if (link(f->target, *old) == 0) return AMPC_OK;
    if (errno == ENOENT) **old = 0;
    else {
        free(*old);
        *old = NULL;
    }
    return AMPC_OK;
}

static void restore_old(const rt_atomic_file *f, const char *old)
{
    if (old && *old) rename(old, f->target);
    else if (old) unlink(f->target);
}

static ampc_status put_both_in_place(rt_atomic_file *first, rt_atomic_file *second)
{
    char *old;
    TRY(keep_old(first, &old));
    ampc_status s = put_in_place(first);
    if (s == AMPC_OK && (s = put_in_place(second)) != AMPC_OK) restore_old(first, old);
    if (old && *old) unlink(old);
    free(old);
    return s;
}

ampc_status rt_atomic_commit_both(rt_atomic_file *first, rt_atomic_file *second)
{
    if (!first) return rt_atomic_commit(second);
    const bool direct[] = {!first->temp, !second->temp};
    ampc_status s = rt_atomic_prepare(first);
    if (s == AMPC_OK) s = rt_atomic_prepare(second);
    if (s == AMPC_OK && direct[0]) s = put_in_place(second);
    else if (s == AMPC_OK) s = put_both_in_place(first, second);
    if (s == AMPC_OK) s = sync_folder(first, direct[0]);
    if (s == AMPC_OK) s = sync_folder(second, direct[1]);
    rt_atomic_abort(first);
    rt_atomic_abort(second);
    return s;
}

ampc_status rt_atomic_save(const char *path, const void *src, size_t n, diag *d)
{
    rt_atomic_file *f;
    TRY(rt_atomic_open(path, d, &f));
    ampc_status s = rt_atomic_write(f, src, n);
    if (s == AMPC_OK) return rt_atomic_commit(f);
    rt_atomic_abort(f);
    return s;
}

static bool is_temp_of(const char *name, const char *prefix)
{
    size_t n = strlen(name), suffix = sizeof TEMP_SUFFIX - 1, p = strlen(prefix);
    return name[0] == '.' && n > suffix + p + 1 && strncmp(name + 1, prefix, p) == 0 &&
           strcmp(name + n - suffix, TEMP_SUFFIX) == 0;
}

/* Returns true if the file had no living writer and was removed. */
static bool sweep_file(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool gone = flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(folder, name, 0) == 0;
    close(fd);
    return gone;
}

size_t rt_atomic_sweep(const char *folder, const char *prefix)
{
    size_t removed = 0;
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (is_temp_of(e->d_name, prefix)) removed += sweep_file(dirfd(dir), e->d_name);
    closedir(dir);
    return removed;
}
