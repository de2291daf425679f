/* Waiting threads on a crowded machine (kernels/cpu/team.c): the library detects crowding and stops spinning. */
#include "kernels/kernel.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_PROCESSORS = 64, WAIT_MS = 30 };

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = -2; /* "." and ".." */
    if (!d) return 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* Runs a loop in which one thread sleeps for WAIT_MS. Returns the CPU time that the others spend waiting for it. */
static double spun_ms(int threads)
{
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
#pragma omp parallel num_threads(threads)
    if (omp_get_thread_num() == 0) usleep(WAIT_MS * 1000);
    return (seconds(CLOCK_PROCESS_CPUTIME_ID) - before) * 1e3;
}

static void work(int threads)
{
    volatile double sums[MAX_PROCESSORS];
#pragma omp parallel num_threads(threads)
    {
        const int i = omp_get_thread_num();
        sums[i] = 0;
        for (int k = 0; k < 1000000; k++) sums[i] += k;
    }
}

static void spin(pid_t *spinners, int n)
{
    for (int i = 0; i < n; i++) {
        spinners[i] = fork();
        assert_true(spinners[i] >= 0);
        while (spinners[i] == 0) {}
    }
}

static void stop(const pid_t *spinners, int n)
{
    for (int i = 0; i < n; i++) {
        kill(spinners[i], SIGKILL);
        waitpid(spinners[i], NULL, 0);
    }
}

static void test_crowded(void **state)
{
    (void)state;
    const int threads = omp_get_num_procs();
    pid_t spinners[4 * MAX_PROCESSORS];
    k_context ctx = {.threads = threads};
    if (threads < 2 || threads > MAX_PROCESSORS || access("/proc/thread-self/schedstat", R_OK) != 0) skip();
    assert_int_equal(cpu_team_open(&ctx), AMPC_OK);
    assert_false(ctx.oversubscribed);
    work(threads);
    const int before = count_threads();
    spin(spinners, 4 * threads);
    for (double end = seconds(CLOCK_MONOTONIC) + 20; !ctx.oversubscribed && seconds(CLOCK_MONOTONIC) < end;) {
        work(threads);
        cpu_team_check(&ctx);
    }
    double least = WAIT_MS;
    for (int i = 0; i < 20; i++) { /* the team may still be starting, and this thread has waits of its own */
        const double ms = spun_ms(threads);
        if (ms < least) least = ms;
    }
    stop(spinners, 4 * threads);
    assert_true(ctx.oversubscribed);
    assert_true(least < 0.5);
    assert_true(count_threads() > before);
    cpu_team_close(&ctx);
    for (int i = 0; i < 1000 && count_threads() > before; i++)
        usleep(10000); /* libgomp does not wait for its threads */
    assert_int_equal(count_threads(), before);
}

static void test_calm(void **state)
{
    (void)state;
    k_context ctx = {.threads = 1}; /* has no other thread to wait for */
    assert_int_equal(cpu_team_open(&ctx), AMPC_OK);
    for (int i = 0; i < 5; i++) {
        usleep(25000);
        cpu_team_check(&ctx);
    }
    assert_false(ctx.oversubscribed);
    cpu_team_close(&ctx);
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
        usleep(10000); /* its threads end after it */
        _exit(available);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* libgomp ends threads with a call that loads libgcc_s, and aborts the process if that fails. */
static void test_too_little_memory(void **state)
{
    (void)state;
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_too_little_memory), /* before any thread has ended */
                                       cmocka_unit_test(test_crowded), cmocka_unit_test(test_calm)};
    (void)argc;
    if (getenv("OMP_WAIT_POLICY")) { /* tests the default; libgomp has already read the variable */
        unsetenv("OMP_WAIT_POLICY");
        execv("/proc/self/exe", argv);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
