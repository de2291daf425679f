/* threads.c - makes sure that libgomp can create its threads.
 *
 * libgomp terminates the process if it cannot create a thread (ulimit -u, a cgroup's pids.max, no address space for the
 * stack). So we first create the threads ourselves, with the stack size that libgomp would use. If that succeeds,
 * libgomp creates its own immediately, and the calling thread keeps them. One failure cannot be excluded: libgomp may
 * release some of them for a region with fewer threads and hit the limit when it needs them again.
 *
 * fork copies libgomp's record of a team but not the threads, so the next region of that size would wait forever. The
 * calling thread has one thread from then on; others get teams of their own. */
#include "kernels/kernel.h"

#include <ctype.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Host threads that tried concurrently would mistake each other's threads for a limit, and their teams could use up
 * what the other has just tried. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

typedef struct trial {
    pthread_mutex_t hold; /* locked until all threads have been created */
    struct trial_thread {
        struct trial *trial;
        pthread_t thread;
        pid_t id; /* kernel thread id */
    } threads[];
} trial;

static void *wait_for_the_others(void *argument)
{
    struct trial_thread *t = argument;
    t->id = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&t->trial->hold);
    pthread_mutex_unlock(&t->trial->hold);
    return NULL;
}

/* Parses a stack size as libgomp does: a number with unit B, K (the default), M or G. 0: use the default size. */
static size_t stack_size_of(const char *text)
{
    static const char units[] = "bkmg";
    char *end;
    if (!text) return 0;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (end == text || errno) return 0;
    while (isspace((unsigned char)*end)) end++;
    unsigned shift = 10;
    for (unsigned i = 0; units[i]; i++)
        if (tolower((unsigned char)*end) == units[i]) shift = 10 * i;
    return n > SIZE_MAX >> shift ? 0 : (size_t)n << shift;
}

static void set_stack(pthread_attr_t *attributes)
{
    size_t size = stack_size_of(getenv("OMP_STACKSIZE"));
    if (!size) size = stack_size_of(getenv("GOMP_STACKSIZE"));
    if (size) pthread_attr_setstacksize(attributes, size);
}

/* A joined thread counts against the limit until the kernel has released it, a moment later. */
static void wait_until_gone(pid_t id)
{
    const struct timespec moment = {0, 20000};
    for (int i = 0; i < 5000 && syscall(SYS_tgkill, getpid(), id, 0) == 0; i++) nanosleep(&moment, NULL);
}

/* How many of n threads can exist at the same time. */
static int make_threads(int n)
{
    int made = 0;
    pthread_attr_t attributes;
    trial *t = calloc(1, sizeof *t + (size_t)n * sizeof *t->threads);
    if (!t || pthread_attr_init(&attributes) != 0) {
        free(t);
        return 0;
    }
    set_stack(&attributes);
    pthread_mutex_init(&t->hold, NULL);
    pthread_mutex_lock(&t->hold);
    for (; made < n; made++) {
        t->threads[made].trial = t;
        if (pthread_create(&t->threads[made].thread, &attributes, wait_for_the_others, &t->threads[made]) != 0) break;
    }
    pthread_mutex_unlock(&t->hold);
    for (int i = 0; i < made; i++) pthread_join(t->threads[i].thread, NULL);
    for (int i = 0; i < made; i++) wait_until_gone(t->threads[i].id);
    pthread_mutex_destroy(&t->hold);
    pthread_attr_destroy(&attributes);
    free(t);
    return made;
}

/* Creates the team, which stays with the calling thread. The first allocation of a thread reserves 64 MiB of address
 * space for its malloc arena; this must not happen between a check of the available memory (cpu_has_reserve) and its
 * use. */
static void start_team(int n)
{
#pragma omp parallel num_threads(n)
    {
        void *volatile first = malloc(1);
        free(first);
    }
}

/* libgomp ends threads by pthread_exit, for which glibc loads libgcc_s.so.1; it terminates the process if it cannot.
 * backtrace loads the same library but reports a failure. glibc keeps the library loaded. */
static bool can_end_threads(void)
{
    void *frame;
    return backtrace(&frame, 1) > 0;
}

static _Thread_local int there = 1; /* the largest team that this thread has had */
static _Thread_local bool lost;     /* libgomp waits for a team that only the parent of this process has */

static void forked(void)
{
    lost |= there > 1;
    there = 1;
    pthread_mutex_init(&one_at_a_time, NULL); /* its owner may be a thread of the parent */
}

static void notice_forks(void) { pthread_atfork(NULL, NULL, forked); }

const char *cpu_threads_reason(void) { return lost ? "; this process was forked by a thread that had used more" : ""; }

int cpu_threads_available(int requested)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (requested <= there) return requested;
    if (lost || !can_end_threads()) return there;
    pthread_once(&once, notice_forks);
    pthread_mutex_lock(&one_at_a_time);
    int n = 1 + make_threads(requested - 1);
    if (n > there) start_team(n);
    pthread_mutex_unlock(&one_at_a_time);
    if (n > there) there = n;
    return n;
}
