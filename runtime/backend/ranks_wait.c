/* ranks_wait.c - messages to other ranks, and waiting for them without waiting for those that have ended. */
#include "runtime/backend/ranks_mpi.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TAG = 1,
    PARTING_MS = 100,
    SPIN_MS = 2,     /* waits yield the processor, but do not sleep, for so long */
    SILENT_MS = 2000 /* a rank that waits sets its beat at least so often */
};

static ampc_status fail(rt_ranks *r, ampc_status status, int rank, bool silent)
{
    rt_rank_memory *mine = r->peers.each[r->peers.index].memory;
    r->failed = true;
    r->status = status;
    r->blamed = rank;
    r->silent = silent;
    atomic_store(&mine->silent, silent);
    atomic_store(&mine->failed, rank + 1);
    return status;
}

ampc_status rt_ranks_lost(rt_ranks *r, int rank, bool silent)
{
    const rt_rank_place *p = &r->peers.each[rank].place;
    char what[64];
    if (silent) snprintf(what, sizeof what, "has not answered for %g seconds", r->timeout);
    else snprintf(what, sizeof what, "has ended");
    snprintf(r->table.error, sizeof r->table.error, "rank %d on host %s (process %lld) %s", rank, p->host,
             (long long)p->process, what);
    rt_notices_lost(r, rank, silent);
    return fail(r, AMPC_DEVICE, rank, silent);
}

ampc_status rt_ranks_no_memory(rt_ranks *r)
{
    snprintf(r->table.error, sizeof r->table.error, "out of memory");
    return fail(r, AMPC_NO_MEMORY, r->peers.index, false);
}

static ampc_status mpi_error(rt_ranks *r, int code, int peer)
{
    char text[AMPC_MPI_TEXT];
    bool silent;
    const int ended = rt_peers_wait(&r->peers, 100, &silent);
    if (ended >= 0) return rt_ranks_lost(r, ended, silent);
    r->mpi->text(code, text);
    rt_notices_lost(r, peer, false);
    const rt_rank_place *p = &r->peers.each[peer].place;
    snprintf(r->table.error, sizeof r->table.error, "rank %d on host %s (process %lld) cannot be reached: %.300s", peer,
             p->host, (long long)p->process, text);
    return fail(r, AMPC_DEVICE, peer, false);
}

typedef struct waiting {
    int64_t since;
    int next;     /* the rank to look at */
    int64_t left; /* when a rank was seen to have left; 0: none */
} waiting;

/* The rank to name when `peer` has been waited for too long: one on this host that does not wait itself, if there is
 * one. */
static int silent_rank(const rt_ranks *r, int peer)
{
    const uint64_t now = (uint64_t)rt_now_ms();
    for (int i = 0; i < r->peers.count; i++) {
        rt_rank_memory *m = r->peers.each[i].memory;
        if (i != r->peers.index && m && atomic_load(&m->beat) + SILENT_MS < now) return i;
    }
    return peer;
}

/* Whether no answer can come although rank `lost` has ended. One that left, rather than died, may have done its part of
 * this call before, and so may those that it is not waited for: ranks that fail together. */
static bool is_final(const rt_ranks *r, waiting *w, int lost, int peer, int64_t now)
{
    rt_rank_memory *m = r->peers.each[lost].memory;
    if (!m || atomic_load(&m->failed) != lost + 1) return true;
    if (w->left) return lost == peer || now - w->left > PARTING_MS;
    w->left = now;
    return false;
}

/* Between two looks at what is waited for from `peer`. */
static ampc_status pause(rt_ranks *r, waiting *w, int peer)
{
    const int64_t now = rt_now_ms();
    if (!w->since) w->since = now;
    atomic_store_explicit(&r->peers.each[r->peers.index].memory->beat, (uint64_t)now, memory_order_relaxed);
    const bool spins = now - w->since < SPIN_MS;
    w->next = w->next + 1 < r->peers.count ? w->next + 1 : 0;
    if (spins && !rt_peer_ended(&r->peers, w->next)) {
        sched_yield();
        return AMPC_OK;
    }
    bool silent;
    int lost = rt_peers_wait(&r->peers, !spins, &silent);
    if (lost < 0) lost = rt_notices_hear(r, &silent);
    if (lost >= 0 && is_final(r, w, lost, peer, now)) return rt_ranks_lost(r, lost, silent);
    const double waited = 1e-3 * (double)(now - w->since);
    lost = rt_notices_wait(r, silent_rank(r, peer), waited >= r->timeout - fmin(1, r->timeout / 4));
    return waited < r->timeout ? AMPC_OK : rt_ranks_lost(r, lost, true);
}

ampc_status rt_ranks_check(k_ranks *k, double waited)
{
    rt_ranks *r = (rt_ranks *)k;
    bool silent;
    if (r->failed) return r->status;
    const int lost = rt_peers_wait(&r->peers, 0, &silent);
    if (lost >= 0) return rt_ranks_lost(r, lost, silent);
    atomic_store_explicit(&r->peers.each[k->index].memory->beat, (uint64_t)rt_now_ms(), memory_order_relaxed);
    if (waited < r->timeout) return AMPC_OK;
    const int silent_one = silent_rank(r, -1);
    if (silent_one >= 0) return rt_ranks_lost(r, silent_one, true);
    /* A rank on another host, or a device: the others find out independently. */
    snprintf(k->error, sizeof k->error, "another rank has not answered for %g seconds", r->timeout);
    r->failed = true;
    return r->status = AMPC_DEVICE;
}

static rt_transfer *add_transfer(rt_ranks *r, int peer)
{
    if (r->transfer_count == r->transfer_room) {
        const int room = 2 * r->transfer_room + 16;
        rt_transfer *grown = realloc(r->transfers, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        r->transfers = grown;
        r->transfer_room = room;
    }
    rt_transfer *t = &r->transfers[r->transfer_count++];
    *t = (rt_transfer){.peer = peer};
    return t;
}

ampc_status rt_ranks_send(rt_ranks *r, const void *data, size_t bytes, int to)
{
    if (!bytes) return AMPC_OK;
    rt_transfer *t = add_transfer(r, to);
    if (!t) return rt_ranks_no_memory(r);
    if (r->peers.each[to].place.node != r->peers.each[r->peers.index].place.node) {
        r->table.counts.messages++;
        r->table.counts.sent += (int64_t)bytes;
    }
    const int code = r->mpi->send(data, (int)bytes, to, TAG, &t->request);
    return code ? mpi_error(r, code, to) : AMPC_OK;
}

ampc_status rt_ranks_receive(rt_ranks *r, void *data, size_t bytes, int from)
{
    if (!bytes) return AMPC_OK;
    rt_transfer *t = add_transfer(r, from);
    if (!t) return rt_ranks_no_memory(r);
    const int code = r->mpi->receive(data, (int)bytes, from, TAG, &t->request);
    return code ? mpi_error(r, code, from) : AMPC_OK;
}

ampc_status rt_ranks_finish(rt_ranks *r)
{
    waiting w = {0};
    for (int first = 0; first < r->transfer_count;) {
        for (int i = first; i < r->transfer_count; i++) {
            rt_transfer *t = &r->transfers[i];
            int done = t->done;
            const int code = done ? 0 : r->mpi->test(&t->request, &done);
            if (code) return mpi_error(r, code, t->peer);
            if (done && !t->done) w = (waiting){0}; /* the limit is that of one answer */
            t->done = done != 0;
            if (t->done && i == first) first++;
        }
        if (first == r->transfer_count) break;
        const ampc_status s = pause(r, &w, r->transfers[first].peer);
        if (s != AMPC_OK) return s;
    }
    r->transfer_count = 0;
    return AMPC_OK;
}

ampc_status rt_ranks_barrier(rt_ranks *r)
{
    const int node = r->peers.each[r->peers.index].place.node;
    waiting w = {0};
    r->step++;
    atomic_store_explicit(&r->peers.each[r->peers.index].memory->step, r->step, memory_order_release);
    for (int i = r->node_first[node]; i < r->node_first[node + 1];) {
        const int peer = r->node_ranks[i];
        if (atomic_load_explicit(&r->peers.each[peer].memory->step, memory_order_acquire) >= r->step) {
            i++;
            continue;
        }
        const ampc_status s = pause(r, &w, peer);
        if (s != AMPC_OK) return s;
    }
    return AMPC_OK;
}
