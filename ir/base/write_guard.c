/* write_guard.c - blocks and discards SIGXFSZ and SIGPIPE, which the kernel sends to the writing thread. */
#include "ir/base/write_guard.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static sigset_t signals_of_writes(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    sigaddset(&set, SIGPIPE);
    return set;
}

write_guard write_guard_begin(void)
{
    const sigset_t set = signals_of_writes();
    write_guard guard;
    int error = errno;
    sigpending(&guard.pending);
    pthread_sigmask(SIG_BLOCK, &set, &guard.before);
    errno = error;
    return guard;
}

void write_guard_end(const write_guard *guard)
{
    const struct timespec no_wait = {0, 0};
    sigset_t ours = signals_of_writes();
    int error = errno;
    if (sigismember(&guard->pending, SIGXFSZ)) sigdelset(&ours, SIGXFSZ);
    if (sigismember(&guard->pending, SIGPIPE)) sigdelset(&ours, SIGPIPE);
    while (sigtimedwait(&ours, NULL, &no_wait) > 0 || errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    errno = error;
}

bool write_guarded(int fd, const void *bytes, size_t n)
{
    const write_guard guard = write_guard_begin();
    ssize_t written = 0;
    for (const char *at = bytes; n > 0 && (written >= 0 || errno == EINTR);) {
        written = write(fd, at, n);
        if (written == 0) break;
        if (written < 0) continue;
        at += written;
        n -= (size_t)written;
    }
    write_guard_end(&guard);
    return n == 0;
}
