/* prefetch.c - a queue of slots with one mutex; a slot is filled outside of it. */
#include "runtime/data/prefetch.h"

#include "runtime/backend/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

typedef enum slot_state { IDLE, QUEUED, FILLING, FILLED, FAILED } slot_state;

struct rt_prefetch {
    rt_prefetch_fill *fill;
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t queued, filled;
    bool stop;
    const volatile sig_atomic_t *stops; /* of the program; NULL: never */
    int slots, first, length;           /* the queue is a ring of slot numbers */
    int *queue;
    slot_state *states;
    pthread_t *threads;
    int n_threads;
};

/* Removes the first slot of the queue. */
static int pop(rt_prefetch *p)
{
    const int slot = p->queue[p->first];
    p->first = (p->first + 1) % p->slots;
    p->length--;
    return slot;
}

static void *work(void *argument)
{
    rt_prefetch *p = argument;
    diag *d = diag_new(NULL, NULL);
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (!p->length) {
            pthread_cond_wait(&p->queued, &p->lock);
            continue;
        }
        const int slot = pop(p);
        p->states[slot] = FILLING;
        pthread_mutex_unlock(&p->lock);
        const ampc_status status = d ? p->fill(p->user, slot, d) : AMPC_NO_MEMORY;
        if (d) diag_clear(d);
        pthread_mutex_lock(&p->lock);
        p->states[slot] = status == AMPC_OK ? FILLED : FAILED;
        pthread_cond_broadcast(&p->filled);
    }
    pthread_mutex_unlock(&p->lock);
    diag_free(d);
    return NULL;
}

/* Signals are for the threads of the program. */
static void start_threads(rt_prefetch *p, int workers)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (p->n_threads < workers && pthread_create(&p->threads[p->n_threads], NULL, work, p) == 0) p->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- waiting ---- */

/* What is left of the patience of a program that stops, which begins when it is asked to. */
typedef struct patience {
    double seconds;
    struct timespec until; /* of the current turn */
} patience;

#define TURN 0.05 /* seconds */

static void begin_turn(patience *left)
{
    clock_gettime(CLOCK_MONOTONIC, &left->until);
    left->until.tv_nsec += (long)(TURN * 1e9);
    left->until.tv_sec += left->until.tv_nsec / 1000000000;
    left->until.tv_nsec %= 1000000000;
}

/* Waits for a slot to be filled, or for some time; false: the program stops and has no patience left. A signal handler
 * cannot wake the thread, so a program that may stop looks from time to time. */
static bool wait_for_slot(rt_prefetch *p, patience *left)
{
    if (p->stops && *p->stops && left->seconds <= 0) return false;
    if (!p->stops) {
        pthread_cond_wait(&p->filled, &p->lock);
        return true;
    }
    begin_turn(left);
    const bool late = pthread_cond_timedwait(&p->filled, &p->lock, &left->until) != 0;
    if (late && *p->stops) left->seconds -= TURN;
    return true;
}

static bool is_filling(const rt_prefetch *p)
{
    for (int i = 0; i < p->slots; i++)
        if (p->states[i] == FILLING) return true;
    return false;
}

static bool wait_for_all(rt_prefetch *p)
{
    patience left = {.seconds = 4 * TURN};
    while (is_filling(p))
        if (!wait_for_slot(p, &left)) return false;
    return true;
}

static void open_conditions(rt_prefetch *p)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->queued, NULL);
    pthread_cond_init(&p->filled, &clock);
    pthread_condattr_destroy(&clock);
}

ampc_status rt_prefetch_open(int slots, int workers, rt_prefetch_fill *fill, void *user, diag *d, rt_prefetch **out)
{
    rt_prefetch *p = calloc(1, sizeof *p);
    if (!p) return rt_no_memory(d);
    p->fill = fill;
    p->user = user;
    p->slots = slots;
    p->queue = calloc((size_t)slots, sizeof *p->queue);
    p->states = calloc((size_t)slots, sizeof *p->states);
    p->threads = calloc((size_t)workers, sizeof *p->threads);
    pthread_mutex_init(&p->lock, NULL);
    open_conditions(p);
    const bool complete = p->queue && p->states && p->threads;
    if (complete) start_threads(p, workers);
    *out = p->n_threads ? p : NULL;
    if (!*out) (void)rt_prefetch_close(p);
    return complete ? AMPC_OK : rt_no_memory(d);
}

bool rt_prefetch_close(rt_prefetch *p)
{
    if (!p) return true;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->queued);
    const bool ended = !p->states || wait_for_all(p);
    pthread_mutex_unlock(&p->lock);
    if (!ended) return false;
    for (int i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->queued);
    pthread_cond_destroy(&p->filled);
    free(p->queue);
    free(p->states);
    free(p->threads);
    free(p);
    return true;
}

void rt_prefetch_watch(rt_prefetch *p, const volatile sig_atomic_t *stop) { p->stops = stop; }

void rt_prefetch_put(rt_prefetch *p, int slot)
{
    pthread_mutex_lock(&p->lock);
    p->states[slot] = QUEUED;
    p->queue[(p->first + p->length++) % p->slots] = slot;
    pthread_cond_signal(&p->queued);
    pthread_mutex_unlock(&p->lock);
}

rt_taken rt_prefetch_take(rt_prefetch *p, int slot, double seconds)
{
    patience left = {.seconds = seconds};
    bool waited = true;
    pthread_mutex_lock(&p->lock);
    while (waited && (p->states[slot] == QUEUED || p->states[slot] == FILLING)) waited = wait_for_slot(p, &left);
    const bool filled = p->states[slot] == FILLED;
    if (waited) p->states[slot] = IDLE;
    pthread_mutex_unlock(&p->lock);
    return !waited ? RT_TAKE_STOPPED : filled ? RT_TAKEN : RT_TAKE_FAILED;
}

bool rt_prefetch_cancel(rt_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->length) p->states[pop(p)] = IDLE;
    const bool idle = wait_for_all(p);
    pthread_mutex_unlock(&p->lock);
    return idle;
}
