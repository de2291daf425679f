/* prefetch.c - a queue of slots with one mutex; a slot is filled outside of it. */
#include "runtime/data/prefetch.h"

#include "runtime/backend/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

typedef enum slot_state { IDLE, QUEUED, FILLING, FILLED, FAILED } slot_state;

struct rt_prefetch {
    rt_prefetch_fill *fill;
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t queued, filled;
    bool stop;
    int slots, first, length; /* the queue is a ring of slot numbers */
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
    pthread_cond_init(&p->queued, NULL);
    pthread_cond_init(&p->filled, NULL);
    const bool complete = p->queue && p->states && p->threads;
    if (complete) start_threads(p, workers);
    *out = p->n_threads ? p : NULL;
    if (!*out) rt_prefetch_close(p);
    return complete ? AMPC_OK : rt_no_memory(d);
}

void rt_prefetch_close(rt_prefetch *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->queued);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->queued);
    pthread_cond_destroy(&p->filled);
    free(p->queue);
    free(p->states);
    free(p->threads);
    free(p);
}

void rt_prefetch_put(rt_prefetch *p, int slot)
{
    pthread_mutex_lock(&p->lock);
    p->states[slot] = QUEUED;
    p->queue[(p->first + p->length++) % p->slots] = slot;
    pthread_cond_signal(&p->queued);
    pthread_mutex_unlock(&p->lock);
}

bool rt_prefetch_take(rt_prefetch *p, int slot)
{
    pthread_mutex_lock(&p->lock);
    while (p->states[slot] == QUEUED || p->states[slot] == FILLING) pthread_cond_wait(&p->filled, &p->lock);
    const bool filled = p->states[slot] == FILLED;
    p->states[slot] = IDLE;
    pthread_mutex_unlock(&p->lock);
    return filled;
}

void rt_prefetch_cancel(rt_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->length) p->states[pop(p)] = IDLE;
    for (int i = 0; i < p->slots; i++)
        while (p->states[i] == FILLING) pthread_cond_wait(&p->filled, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
