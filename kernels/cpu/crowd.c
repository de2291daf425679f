/* crowd.c - threads that wait for each other while other programs keep the processors busy.
 *
 * A thread that has done its part of a parallel loop spins until the others are done: 300,000 turns of libgomp, some
 * milliseconds, because waking a thread that sleeps costs more than most loops take. Where the others wait for a
 * processor, spinning takes that very processor from them, and a run takes ten times as long. What libgomp does about
 * it is documented (GOMP_SPINCOUNT in its manual): while it manages more threads than there are processors, threads
 * spin 100 turns. It counts its own threads only. So while the machine is crowded a team of idle threads stands for
 * those of the other programs, and loops of our own, whose results do not depend on it, run on one thread. Nothing of
 * the host is touched: neither its environment nor its threads.
 *
 * The machine is crowded when the thread that runs a session waits for a processor during a large part of the time that
 * it could use one. Linux counts both; where it does not, nothing happens. */
#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LOOK_MS = 20,         /* between two looks */
    CALM_LOOKS = 10,      /* in a row, until the machine counts as calm again */
    CROWDED_PART = 8,     /* a look that has seen 1/8 of the time lost is one of a crowded machine */
    THREAD_ROOM_MIB = 160 /* address space of a thread: its stack, and what malloc reserves for it */
};

typedef struct cpu_crowd {
    int64_t at_ms, ran_ns, waited_ns; /* as of the last look */
    int calm_looks;
    bool has_team;
    pthread_t leader; /* of the team */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool complete, ends; /* the team has all its threads; it is to end */
    int size;            /* members beside the leader */
} cpu_crowd;

/* ---- the team ---------------------------------------------------------------------------------------- */

/* The team lives as long as the thread that made it; its members sleep. */
static void *lead_team(void *user)
{
    cpu_crowd *c = user;
    (void)cpu_threads_available(c->size + 1); /* makes them, as many as there can be */
    pthread_mutex_lock(&c->lock);
    c->complete = true;
    pthread_cond_signal(&c->changed);
    while (!c->ends) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* With the `threads` of a session there are more than processors. A team only saves time, so none is made where memory
 * is short: it would use what cpu_has_reserve has promised to others. For the same reason this function waits until the
 * team is complete and uses no more memory. */
static void send_for_team(cpu_crowd *c, int threads)
{
    c->complete = c->ends = false;
    c->size = (int)k_max(1, omp_get_num_procs() - threads + 1);
    if (!cpu_has_room((size_t)(c->size + 1) * THREAD_ROOM_MIB << 20)) return;
    c->has_team = pthread_create(&c->leader, NULL, lead_team, c) == 0;
    pthread_mutex_lock(&c->lock);
    while (c->has_team && !c->complete) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void dismiss_team(cpu_crowd *c)
{
    if (!c->has_team) return;
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->leader, NULL);
    c->has_team = false;
}

/* ---- looking ----------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* How long the calling thread has run, and has waited for a processor. */
static bool read_times(int64_t *ran_ns, int64_t *waited_ns)
{
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    long long ran, waited;
    if (!f) return false;
    const bool known = fscanf(f, "%lld %lld", &ran, &waited) == 2;
    fclose(f);
    *ran_ns = ran;
    *waited_ns = waited;
    return known;
}

/* What the time since the last look says; another thread may have called then. */
static bool was_crowded(cpu_crowd *c, int64_t ran_ns, int64_t waited_ns)
{
    const int64_t ran = k_max(0, ran_ns - c->ran_ns), waited = k_max(0, waited_ns - c->waited_ns);
    c->ran_ns = ran_ns;
    c->waited_ns = waited_ns;
    return waited * CROWDED_PART > ran + waited;
}

void cpu_crowd_look(k_context *ctx)
{
    cpu_crowd *c = ctx->device;
    const int64_t now = now_ms();
    int64_t ran, waited;
    if (ctx->threads == 1 || now - c->at_ms < LOOK_MS || !read_times(&ran, &waited)) return;
    c->at_ms = now;
    c->calm_looks = was_crowded(c, ran, waited) ? 0 : c->calm_looks + 1;
    const bool crowded = c->calm_looks < (ctx->crowded ? CALM_LOOKS : 1);
    if (crowded == ctx->crowded) return;
    ctx->crowded = crowded;
    if (crowded)
        send_for_team(c, ctx->threads);
    else
        dismiss_team(c);
}

/* ---- opening and closing --------------------------------------------------------------------------- */

ampc_status cpu_crowd_open(k_context *ctx)
{
    cpu_crowd *c = calloc(1, sizeof *c);
    if (!c) return cpu_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->at_ms = now_ms();
    read_times(&c->ran_ns, &c->waited_ns);
    ctx->device = c;
    return AMPC_OK;
}

void cpu_crowd_close(k_context *ctx)
{
    cpu_crowd *c = ctx->device;
    if (!c) return;
    dismiss_team(c);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    ctx->device = NULL;
}
