/* write_guard.h - a write that fails is an error of the call, never the end of the process.
 *
 * Past the limit of file sizes (ulimit -f) the kernel answers a write with SIGXFSZ, into a pipe that nobody reads with
 * SIGPIPE, and both end a process that says nothing about them. What a process does with its signals is not a
 * library's to decide, so they are blocked in the writing thread for the length of the write, and the one that this
 * write has caused is taken back:
 *
 *     write_guard guard = write_guard_begin();
 *     ssize_t n = write(fd, bytes, size);
 *     write_guard_end(&guard);                    errno is kept: EFBIG or EPIPE
 */
#ifndef AMPC_WRITE_GUARD_H
#define AMPC_WRITE_GUARD_H

#include <signal.h>

typedef struct write_guard {
    sigset_t before;  /* the thread's mask */
    sigset_t pending; /* signals that were waiting before: somebody else's, they stay */
} write_guard;

write_guard write_guard_begin(void);
void write_guard_end(const write_guard *guard);

#endif
