/* Waiting threads on a crowded machine (kernels/cpu/team.c): the library detects crowding and stops spinning.
 *
 * How crowded the machine seems to be is decided here: the library's clock and the times that Linux reports for its thread
 * are those of `machine`. So it does not matter how fast the machine is, and what else it does. */
#include "kernels/kernel.h"
#include "tests/test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64, ROUNDS = 20 };

/* ---- the machine as the library sees it ------------------------------------------------------------------------------ */

/* How long the thread that runs the session has run and has waited for a processor. Their sum is the time. */
static struct {
    int64_t ran_ms, waited_ms;
} machine;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int64_t ms = machine.ran_ms + machine.waited_ms;
    if (clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, t);
    *t = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    return 0;
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    char text[64];
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    if (strcmp(path, "/proc/thread-self/schedstat") != 0) return next(path, mode);
    const int n = snprintf(text, sizeof text, "%lld %lld 1\n", (long long)machine.ran_ms * 1000000,
                           (long long)machine.waited_ms * 1000000);
    FILE *f = fmemopen(NULL, sizeof text, "w+");
    if (!f) return NULL;
    fwrite(text, 1, (size_t)n, f);
    rewind(f);
    return f;
}

/* The library looks at the machine when the thread has run and waited for so long. */
static void look_after(k_context *ctx, int ran_ms, int waited_ms)
{
    machine.ran_ms += ran_ms;
    machine.waited_ms += waited_ms;
    cpu_team_check(ctx);
}

/* ---- threads ----------------------------------------------------------------------------------------------------------- */

/* Reads a small file of /proc without allocating memory, which may be short. */
static void read_status(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
}

static int count_threads(void)
{
    char text[4096];
    read_status("/proc/self/status", text, sizeof text);
    const char *found = strstr(text, "\nThreads:");
    return found ? (int)strtol(found + strlen("\nThreads:"), NULL, 10) : 0;
}

/* libgomp's threads end some time after the thread that created them: milliseconds; five minutes are for one that never
 * ends. */
static bool others_end(int left)
{
    for (int i = 0; i < 300000 && count_threads() > left; i++) usleep(1000);
    return count_threads() == left;
}

/* A thread that has nothing left to do in a parallel loop. */
typedef struct waiter {
    atomic_bool arrived;
    long id;
    clockid_t clock; /* of its processor time */
    double before;
} waiter;

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void arrive(waiter *w)
{
    w->id = syscall(SYS_gettid);
    pthread_getcpuclockid(pthread_self(), &w->clock);
    w->before = seconds(w->clock);
    w->arrived = true;
}

/* Waits until the thread sleeps. Returns the processor time that it has spent since it arrived. */
static double spent_until_asleep(waiter *w)
{
    char path[64], text[1024];
    while (!w->arrived) usleep(100);
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", w->id);
    for (;;) {
        read_status(path, text, sizeof text);
        const char *name_end = strrchr(text, ')');
        if (name_end && strncmp(name_end, ") S", 3) == 0) return seconds(w->clock) - w->before;
        usleep(100);
    }
}

/* The processor time that the threads of a loop spend waiting for its slowest thread, before they sleep. The least of some
 * rounds, because a machine may do something else in a thread's time. */
static double waiting_seconds(int threads)
{
    double least = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        waiter all[MAX_THREADS] = {0};
        double spent = 0;
#pragma omp parallel num_threads(threads)
        {
            if (omp_get_thread_num() > 0) arrive(&all[omp_get_thread_num()]);
            else
                for (int i = 1; i < omp_get_num_threads(); i++) spent += spent_until_asleep(&all[i]);
        }
        if (spent < least) least = spent;
    }
    return least;
}

static void *have_team(void *available)
{
    *(int *)available = cpu_threads_available(3);
    return NULL;
}

static rlim_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Ends a thread that had a team, with a limit in bytes on further address space. Returns the size of the team. */
static int end_leader(rlim_t room)
{
    const pid_t child = fork();
    int status, available = 0;
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {address_space() + room, RLIM_INFINITY};
        pthread_t leader;
        setrlimit(RLIMIT_AS, &limit);
        if (pthread_create(&leader, NULL, have_team, &available) == 0) pthread_join(leader, NULL);
        _exit(others_end(1) ? available : -1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* libgomp ends threads with a call that loads libgcc_s, and aborts the process if that fails. The first test: no thread
 * of this process has ended yet. */
TEST(test_too_little_memory)
{
    int most = 0;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* needs terabytes of address space */
#endif
    for (rlim_t room = 0; room < (rlim_t)64 << 20; room += (rlim_t)128 << 10) {
        const int n = end_leader(room);
        if (n > most) most = n;
    }
    assert_int_equal(most, 3);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------- */

TEST(test_detection)
{
    k_context ctx = {.threads = omp_get_num_procs() > 2 ? omp_get_num_procs() : 2};
    assert_int_equal(cpu_team_open(&ctx), AMPC_OK);
    const int before = count_threads();
    look_after(&ctx, 1, 18); /* too early to tell */
    assert_false(ctx.oversubscribed);
    look_after(&ctx, 200, 0);
    assert_false(ctx.oversubscribed);
    look_after(&ctx, 70, 10); /* an eighth of the time, exactly */
    assert_false(ctx.oversubscribed);
    assert_int_equal(count_threads(), before);
    look_after(&ctx, 70, 11);
    assert_true(ctx.oversubscribed);
    assert_int_equal(count_threads(), before + 2); /* together with those of a session, more than processors */
    for (int i = 0; i < 9; i++) look_after(&ctx, 20, 0);
    look_after(&ctx, 10, 10); /* not calm for long enough */
    for (int i = 0; i < 9; i++) look_after(&ctx, 20, 0);
    assert_true(ctx.oversubscribed);
    machine.ran_ms -= 1; /* measured in another thread */
    look_after(&ctx, 0, 21);
    assert_true(ctx.oversubscribed);
    for (int i = 0; i < 10; i++) look_after(&ctx, 20, 0);
    assert_false(ctx.oversubscribed);
    assert_true(others_end(before));
    cpu_team_close(&ctx);
}

/* Threads that wait spin, or sleep at once while the library believes that the machine is crowded. Spinning needs a thousand
 * times the processor time of falling asleep. */
TEST(test_crowded)
{
    const int threads = omp_get_num_procs();
    k_context ctx = {.threads = threads};
    if (threads < 2 || threads > MAX_THREADS) skip();
    assert_int_equal(cpu_team_open(&ctx), AMPC_OK);
    const double spinning = waiting_seconds(threads);
    const int before = count_threads();
    look_after(&ctx, 0, 100);
    assert_true(ctx.oversubscribed);
    assert_true(count_threads() > before);
    const double sleeping = waiting_seconds(threads);
    if (sleeping * 4 > spinning) fail_msg("%g s of spinning, %g s on a crowded machine", spinning, sleeping);
    cpu_team_close(&ctx);
    assert_true(others_end(before));
}

TEST(test_calm)
{
    k_context ctx = {.threads = 1}; /* has no other thread to wait for */
    assert_int_equal(cpu_team_open(&ctx), AMPC_OK);
    for (int i = 0; i < 5; i++) look_after(&ctx, 0, 25);
    assert_false(ctx.oversubscribed);
    cpu_team_close(&ctx);
}

/* The child has no team, which libgomp does not know. The last test: the team stays. */
TEST(test_forked)
{
    int status;
    assert_int_equal(cpu_threads_available(3), 3);
    assert_string_equal(cpu_threads_reason(), "");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pthread_t other;
        int available = 0;
        const bool told = cpu_threads_available(3) == 1 && strstr(cpu_threads_reason(), "forked");
        if (pthread_create(&other, NULL, have_team, &available) == 0) pthread_join(other, NULL);
        _exit(told ? available : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) { /* tests the default; libgomp has already read them */
        unsetenv("OMP_WAIT_POLICY");
        unsetenv("GOMP_SPINCOUNT");
        execv("/proc/self/exe", argv);
    }
    return test_run();
}
