/* beneath.c - opens files that a model or module names, restricted to its folder. */
#include "ir/base/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* O_NONBLOCK: opening a FIFO must not block; it is rejected afterwards. */
enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

const char *beneath_name_fault(const char *name)
{
    if (!*name) return "is empty";
    if (*name == '/') return "is an absolute path";
    if (strlen(name) >= PATH_MAX) return "is too long";
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return "contains a control character";
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (!strncmp(p, "..", 2) && (p[2] == '/' || !p[2])) return "leaves the model's folder through '..'";
    }
    return NULL;
}

/* Opens one path component in the fallback. A link to a folder yields ELOOP like a link to a file, not ENOTDIR. */
static int open_component(int dir_fd, const char *name, bool last)
{
    int fd;
    do fd = openat(dir_fd, name, OPEN_FLAGS | O_NOFOLLOW | (last ? 0 : O_DIRECTORY));
    while (fd < 0 && errno == EINTR);
    int error = errno;
    struct stat st;
    if (fd < 0 && !fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode)) error = ELOOP;
    errno = error;
    return fd;
}

int beneath_open_by_components(int dir_fd, const char *path)
{
    char name[NAME_MAX + 1];
    int fd = dir_fd;
    for (const char *p = path; fd >= 0;) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        bool last = !p[n + strspn(p + n, "/")];
        int next = -1;
        if (n > NAME_MAX) {
            errno = ENAMETOOLONG;
        } else {
            memcpy(name, p, n);
            name[n] = 0;
            next = open_component(fd, name, last);
        }
        int error = errno;
        if (fd != dir_fd) close(fd);
        errno = error;
        if (last || next < 0) return next;
        fd = next;
        p += n;
    }
    return fd;
}

static int open_in(int dir_fd, const char *path)
{
    struct open_how how = {.flags = (uint64_t)OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (int attempt = 0;; attempt++) {
        long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
        if (fd >= 0) return (int)fd;
        if (errno == EAGAIN && attempt < 8) continue; /* the lookup raced with a rename */
        if (errno == EINTR) continue;
        if (errno != ENOSYS && errno != EPERM) return -1;
        return beneath_open_by_components(dir_fd, path);
    }
}

/* Returns the descriptor, or -1 with errno. */
static int open_name(const char *folder, const char *name)
{
    int dir_fd;
    do dir_fd = open(folder && *folder ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (dir_fd < 0 && errno == EINTR);
    if (dir_fd < 0) return -1;
    int fd = open_in(dir_fd, name), error = errno;
    close(dir_fd);
    errno = error;
    return fd;
}

/* Describes errno, which is preserved. */
static ampc_status cannot_open(int fd, const char **why)
{
    const int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    *why = error == EXDEV || error == ELOOP ? "leaves the model's folder through a link"
           : error == ENOMEM                ? "cannot be opened: out of memory"
                                            : "cannot be opened";
    if (error == EXDEV || error == ELOOP) return AMPC_REJECTED;
    return error == ENOMEM ? AMPC_NO_MEMORY : AMPC_IO;
}

ampc_status beneath_open(const char *folder, const char *name, int *fd, int64_t *size, const char **why)
{
    struct stat st;
    *fd = -1;
    *why = beneath_name_fault(name);
    if (*why) return AMPC_REJECTED;
    const int opened = open_name(folder, name);
    if (opened < 0 || fstat(opened, &st) != 0) return cannot_open(opened, why);
    if (!S_ISREG(st.st_mode)) {
        close(opened);
        *why = "is not a regular file";
        return AMPC_REJECTED;
    }
    *size = st.st_size;
    *fd = opened;
    return AMPC_OK;
}

ampc_status beneath_find(const char *from, const char *name, arena *a, const char **path, const char **why)
{
    const char *slash = strrchr(from, '/');
    const char *folder = slash ? arena_strndup(a, from, (size_t)(slash - from) + 1) : "";
    int64_t size;
    int fd;
    const ampc_status s = beneath_open(folder, name, &fd, &size, why);
    if (s == AMPC_OK) close(fd);
    *path = arena_printf(a, "%s%s", folder, name);
    return s == AMPC_REJECTED ? s : AMPC_OK;
}
