/* crowd.c - preloaded; tells a session that the machine is crowded (kernels/cpu/team.c): each look at the clock is CHECK_MS
 * later than the one before, and the thread has only waited for a processor. Creates the file AMPC_CROWD when a session looks. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHECK_MS = 20 };
static atomic_llong now_ms;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, t);
    const long long ms = now_ms += CHECK_MS;
    t->tv_sec = ms / 1000;
    t->tv_nsec = ms % 1000 * 1000000;
    return 0;
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    if (strcmp(path, "/proc/thread-self/schedstat") != 0) return next(path, mode);
    const char *looked = getenv("AMPC_CROWD");
    if (looked) close(open(looked, O_WRONLY | O_CREAT, 0666));
    FILE *f = fmemopen(NULL, 64, "w+");
    if (!f) return NULL;
    fprintf(f, "0 %lld 1\n", now_ms * 1000000);
    rewind(f);
    return f;
}
