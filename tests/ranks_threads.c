/* ranks_threads.c - ranks that are threads: each publishes a pointer, waits for the others, and reads theirs. */
#include "tests/ranks_threads.h"

#include "ir/base/diag.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank {
    k_ranks base; /* first: a k_ranks is the rank */
    ranks_threads *all;
    const void *data; /* what the others read */
    void *staged;
    int64_t calls, fails_at, reductions, elements;
    bool ended;
    void (*body)(k_ranks *r, void *user);
    void *user;
    pthread_t thread;
} rank;

struct ranks_threads {
    pthread_mutex_t mutex;
    pthread_cond_t turn;
    int count, waiting, failed; /* failed: the rank that has, or -1 */
    int64_t round;
    rank ranks[];
};

static ampc_status fail(rank *r)
{
    snprintf(r->base.error, sizeof r->base.error, "rank %d has ended", r->all->failed);
    return AMPC_DEVICE;
}

/* Until all ranks are here. */
static ampc_status meet(rank *r)
{
    ranks_threads *t = r->all;
    pthread_mutex_lock(&t->mutex);
    const int64_t round = t->round;
    if (++t->waiting == t->count) {
        t->waiting = 0;
        t->round++;
        pthread_cond_broadcast(&t->turn);
    }
    while (t->round == round && t->failed < 0) {
        for (int i = 0; i < t->count; i++)
            if (t->ranks[i].ended) t->failed = i;
        if (t->failed >= 0) pthread_cond_broadcast(&t->turn);
        else pthread_cond_wait(&t->turn, &t->mutex);
    }
    const bool met = t->round != round;
    pthread_mutex_unlock(&t->mutex);
    return met ? AMPC_OK : fail(r);
}

static void end(rank *r, bool failed)
{
    ranks_threads *t = r->all;
    pthread_mutex_lock(&t->mutex);
    r->ended = true;
    if (failed && t->failed < 0) t->failed = r->base.index;
    pthread_cond_broadcast(&t->turn);
    pthread_mutex_unlock(&t->mutex);
}

static ampc_status begin_call(rank *r, const void *data)
{
    if (r->calls++ == r->fails_at) {
        end(r, true);
        return fail(r);
    }
    r->data = data;
    return meet(r);
}

static double add(ir_dtype type, k_reduced by, double x, double y)
{
    if (by == K_REDUCED_max) return x > y || x != x ? x : y;
    if (type == IR_f64) return x + y;
    uint64_t bits;
    ir_store_f64(type, &bits, (float)x + (float)y);
    return ir_load_f64(type, &bits);
}

static double load(const ranks_threads *t, int i, ir_dtype type, int64_t at)
{
    return ir_load_f64(type, (const char *)t->ranks[i].data + (size_t)at * ir_dtype_size(type));
}

static double reduce(const ranks_threads *t, ir_dtype type, k_reduced by, bool tree, int64_t at)
{
    double x[64];
    for (int i = 0; i < t->count; i++) x[i] = load(t, i, type, at);
    for (int i = 1; !tree && i < t->count; i++) x[0] = add(type, by, x[0], x[i]);
    for (int n = t->count; tree && n > 1; n = (n + 1) / 2)
        for (int i = 0; i < n; i += 2) x[i / 2] = i + 1 < n ? add(type, by, x[i], x[i + 1]) : x[i];
    return x[0];
}

static ampc_status all_reduce(k_ranks *base, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree)
{
    rank *r = (rank *)base;
    r->reductions++;
    r->elements += n;
    TRY(begin_call(r, data));
    char *sums = malloc((size_t)n * ir_dtype_size(type) + 8);
    for (int64_t i = 0; i < n; i++)
        ir_store_f64(type, sums + (size_t)i * ir_dtype_size(type), reduce(r->all, type, by, tree, i));
    const ampc_status status = meet(r);
    if (status == AMPC_OK) memcpy(data, sums, (size_t)n * ir_dtype_size(type));
    free(sums);
    return status;
}

static void *stage(k_ranks *base, size_t bytes)
{
    rank *r = (rank *)base;
    if (base->index % 2) return NULL;
    return r->staged = realloc(r->staged, bytes + 1);
}

static ampc_status all_gather(k_ranks *base, const void *mine, void *all, size_t bytes)
{
    rank *r = (rank *)base;
    TRY(begin_call(r, mine));
    for (int i = 0; i < base->count; i++) memcpy((char *)all + (size_t)i * bytes, r->all->ranks[i].data, bytes);
    return meet(r);
}

/* A rank whose body has returned may have done all that the others wait for. */
static ampc_status check(k_ranks *base, double waited)
{
    rank *r = (rank *)base;
    (void)waited;
    pthread_mutex_lock(&r->all->mutex);
    const bool failed = r->all->failed >= 0;
    pthread_mutex_unlock(&r->all->mutex);
    return failed ? fail(r) : AMPC_OK;
}

static ampc_status broadcast(k_ranks *base, void *data, size_t bytes, int root)
{
    rank *r = (rank *)base;
    TRY(begin_call(r, data));
    if (root != base->index) memcpy(data, r->all->ranks[root].data, bytes);
    return meet(r);
}

ranks_threads *ranks_threads_new(int count, const double *shares)
{
    ranks_threads *t = calloc(1, sizeof *t + (size_t)count * sizeof *t->ranks);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->turn, NULL);
    t->count = count;
    t->failed = -1;
    for (int i = 0; i < count; i++)
        t->ranks[i] = (rank){.base = {.index = i,
                                      .count = count,
                                      .share = shares ? shares[i] : 1.0 / count,
                                      .all_reduce = all_reduce,
                                      .stage = stage,
                                      .all_gather = all_gather,
                                      .broadcast = broadcast,
                                      .check = check},
                             .all = t,
                             .fails_at = -1};
    return t;
}

void ranks_threads_free(ranks_threads *t)
{
    for (int i = 0; i < t->count; i++) free(t->ranks[i].staged);
    pthread_cond_destroy(&t->turn);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

k_ranks *ranks_threads_of(ranks_threads *t, int index) { return &t->ranks[index].base; }

void ranks_threads_fail(ranks_threads *t, int index, int64_t call) { t->ranks[index].fails_at = call; }

int64_t ranks_threads_reductions(const ranks_threads *t, int index, int64_t *elements)
{
    if (elements) *elements = t->ranks[index].elements;
    return t->ranks[index].reductions;
}

static void *run(void *user)
{
    rank *r = user;
    r->body(&r->base, r->user);
    end(r, false);
    return NULL;
}

void ranks_threads_run(ranks_threads *t, void (*body)(k_ranks *r, void *user), void *user)
{
    for (int i = 0; i < t->count; i++) {
        t->ranks[i].body = body;
        t->ranks[i].user = user;
        t->ranks[i].ended = false;
    }
    for (int i = 0; i < t->count; i++) pthread_create(&t->ranks[i].thread, NULL, run, &t->ranks[i]);
    for (int i = 0; i < t->count; i++) pthread_join(t->ranks[i].thread, NULL);
}
