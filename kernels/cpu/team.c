/* team.c - avoids spinning while other processes compete for the processors.
 *
 * A thread that has finished its share of a parallel loop spins until the others have finished: libgomp spins 300,000
 * iterations, a few milliseconds, because waking a sleeping thread costs more than most loops. If the others are
 * waiting for a processor, spinning keeps it from them and a run can become ten times slower. libgomp's manual
 * documents a remedy (GOMP_SPINCOUNT): while it manages more threads than there are processors, threads spin only 100
 * iterations. It counts only its own threads, however. So while the machine is oversubscribed, a team of idle threads
 * represents the threads of other processes, and our loops whose results do not depend on the number of threads run
 * on one thread. The environment and the threads of the host program are not changed.
 *
 * The machine is oversubscribed if the thread that runs a session spends a large part of its runnable time waiting for
 * a processor. Linux reports both times; on other systems nothing is detected. */
#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    CHECK_MS = 20,           /* minimum time between two measurements */
    CALM_CHECKS = 10,        /* consecutive calm measurements that end an oversubscribed period */
    LOST_PART = 8,           /* oversubscribed: at least 1/8 of the runnable time is lost */
    THREAD_RESERVE_MIB = 160 /* address space per thread: its stack and its malloc arena */
};

typedef struct cpu_team {
    int64_t at_ms, ran_ns, waited_ns; /* of the last measurement */
    int calm_checks;
    bool has_team;
    pthread_t leader; /* of the team */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool complete, ends; /* the team has all its threads; the team must exit */
    int size;            /* members in addition to the leader */
} cpu_team;

/* ---- the team ---------------------------------------------------------------------------------------- */

/* The team exists as long as the thread that created it; its members sleep. */
static void *lead_team(void *user)
{
    cpu_team *c = user;
    (void)cpu_threads_available(c->size + 1); /* creates as many of them as possible */
    pthread_mutex_lock(&c->lock);
    c->complete = true;
    pthread_cond_signal(&c->changed);
    while (!c->ends) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Together with the `threads` of the session, the team exceeds the number of processors. It only saves time, so it is
 * not created if memory is short, because it would use memory that cpu_has_reserve has promised to others. For the same
 * reason this function waits until the team is complete and will not allocate any more. */
static void create_team(cpu_team *c, int threads)
{
    c->complete = c->ends = false;
    c->size = (int)k_max(1, omp_get_num_procs() - threads + 1);
    if (!cpu_has_memory((size_t)(c->size + 1) * THREAD_RESERVE_MIB << 20)) return;
    c->has_team = pthread_create(&c->leader, NULL, lead_team, c) == 0;
    pthread_mutex_lock(&c->lock);
    while (c->has_team && !c->complete) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void end_team(cpu_team *c)
{
    if (!c->has_team) return;
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->leader, NULL);
    c->has_team = false;
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* How long the calling thread has run and has waited for a processor. False if this is unknown. */
static bool read_times(int64_t *ran_ns, int64_t *waited_ns)
{
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    long long ran, waited;
    if (!f) return false;
    const bool found = fscanf(f, "%lld %lld", &ran, &waited) == 2;
    fclose(f);
    *ran_ns = ran;
    *waited_ns = waited;
    return found;
}

/* Evaluates the time since the last measurement. The times can decrease because another thread may have made that
 * one. */
static bool was_oversubscribed(cpu_team *c, int64_t ran_ns, int64_t waited_ns)
{
    const int64_t ran = k_max(0, ran_ns - c->ran_ns), waited = k_max(0, waited_ns - c->waited_ns);
    c->ran_ns = ran_ns;
    c->waited_ns = waited_ns;
    return waited * LOST_PART > ran + waited;
}

void cpu_team_check(k_context *ctx)
{
    cpu_team *c = ctx->device;
    const int64_t now = now_ms();
    int64_t ran, waited;
    if (ctx->threads == 1 || now - c->at_ms < CHECK_MS || !read_times(&ran, &waited)) return;
    c->at_ms = now;
    c->calm_checks = was_oversubscribed(c, ran, waited) ? 0 : c->calm_checks + 1;
    const bool oversubscribed = c->calm_checks < (ctx->oversubscribed ? CALM_CHECKS : 1);
    if (oversubscribed == ctx->oversubscribed) return;
    ctx->oversubscribed = oversubscribed;
    if (oversubscribed) create_team(c, ctx->threads);
    else end_team(c);
}

/* ---- opening and closing --------------------------------------------------------------------------- */

ampc_status cpu_team_open(k_context *ctx)
{
    cpu_team *c = calloc(1, sizeof *c);
    if (!c) return cpu_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->at_ms = now_ms();
    read_times(&c->ran_ns, &c->waited_ns);
    ctx->device = c;
    return AMPC_OK;
}

void cpu_team_close(k_context *ctx)
{
    cpu_team *c = ctx->device;
    if (!c) return;
    end_team(c);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    ctx->device = NULL;
}
