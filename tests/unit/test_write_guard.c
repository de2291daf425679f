/* test_write_guard.c - the guard consumes the signals of its own failed writes and leaves all others pending. */
#include "runtime/files/io.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_pending(int number)
{
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, number) == 1;
}

static bool is_blocked(int number)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    return sigismember(&set, number) == 1;
}

static void block(int how, int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(how, &set, NULL);
}

static int broken_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    return ends[1];
}

TEST(test_nobody_reads)
{
    int fd = broken_pipe();
    assert_false(rt_io_write(fd, "text", 4));
    assert_int_equal(errno, EPIPE);
    assert_false(is_pending(SIGPIPE) || is_blocked(SIGPIPE));
    close(fd);
}

TEST(test_past_the_limit)
{
    char path[] = "/tmp/ampc-guard-XXXXXX", bytes[8192] = {0};
    struct rlimit before, little;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    bool written = rt_io_write(fd, bytes, sizeof bytes);
    int error = errno;
    bool placed = rt_io_pwrite(fd, bytes, 1, 5000);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_false(written || placed || is_pending(SIGXFSZ) || is_blocked(SIGXFSZ));
    assert_int_equal(error, EFBIG);
    close(fd);
}

/* A host that blocks the signal and has one pending finds both unchanged. */
TEST(test_waiting_signal_stays)
{
    int fd = broken_pipe();
    block(SIG_BLOCK, SIGPIPE);
    assert_false(rt_io_write(fd, "text", 4));
    assert_false(is_pending(SIGPIPE));
    assert_true(is_blocked(SIGPIPE));
    raise(SIGPIPE);
    assert_false(rt_io_write(fd, "text", 4));
    assert_true(is_pending(SIGPIPE) && is_blocked(SIGPIPE));
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigwait(&set, &number);
    block(SIG_UNBLOCK, SIGPIPE);
    close(fd);
}
