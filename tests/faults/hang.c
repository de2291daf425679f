/* hang.c - a preloaded library: a file system that answers no more.
 *
 * AMPC_HANG=NAME,N: the N-th read of a file whose path contains NAME, and all later ones, never return. "hangs" is written
 * to the file AMPC_HANG_RECORD when that begins. Signal handlers run meanwhile, as with a network file system. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long reads;

static void hang(int fd)
{
    char link[64], path[PATH_MAX], name[PATH_MAX] = "";
    const char *spec = getenv("AMPC_HANG"), *record = getenv("AMPC_HANG_RECORD");
    if (!spec || !record || strlen(spec) >= sizeof name) return;
    strcpy(name, spec);
    char *comma = strrchr(name, ',');
    if (!comma) return;
    *comma = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    if (!strstr(path, name) || atomic_fetch_add(&reads, 1) + 1 < atol(comma + 1)) return;
    const int to = open(record, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (to >= 0 && write(to, "hangs\n", 6) != 6) abort();
    for (;;) pause();
}

#define READING(name, parameters, arguments) \
    __attribute__((visibility("default"))) ssize_t name parameters \
    { \
        static __typeof__(&name) next; \
        if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, #name); \
        hang(fd); \
        return next arguments; \
    }
READING(read, (int fd, void *p, size_t n), (fd, p, n))
READING(pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
READING(pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at))
