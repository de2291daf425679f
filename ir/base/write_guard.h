/* write_guard.h - makes a failed write return an error instead of ending the process.
 *
 * When a file would exceed the size limit (ulimit -f) the kernel sends SIGXFSZ, and when a pipe has no reader SIGPIPE;
 * both end the process by default. A library must not change the process's signal handlers, so the guard blocks both
 * signals in the writing thread during the write and then discards those that the write caused:
 *
 *     write_guard guard = write_guard_begin();
 *     ssize_t n = write(fd, bytes, size);
 *     write_guard_end(&guard);                    errno is kept: EFBIG or EPIPE */
#ifndef AMPC_WRITE_GUARD_H
#define AMPC_WRITE_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct write_guard {
    sigset_t before;  /* the thread's previous mask */
    sigset_t pending; /* signals that were pending before; they remain pending */
} write_guard;

write_guard write_guard_begin(void);
void write_guard_end(const write_guard *guard);

/* Writes all bytes under a guard; false with errno. */
bool write_guarded(int fd, const void *bytes, size_t n);

#endif
