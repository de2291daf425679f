/* write_guard.c - blocks and discards SIGXFSZ and SIGPIPE, which the kernel sends to the writing thread. */
#include "ir/base/write_guard.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

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
