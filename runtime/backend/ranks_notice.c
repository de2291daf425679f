/* ranks_notice.c - what ranks on several hosts tell each other when they wait too long or know of a failure. A rank
 * that is waited for may itself wait for another one, so the one to blame is at the end of a chain. */
#include "runtime/backend/ranks_mpi.h"

#include <stdlib.h>

enum { TAG = 2 };

enum { KIND_ends, KIND_waits, KIND_lost, KIND_left };

typedef struct notice {
    int kind, from;
    int rank; /* that is waited for, or has failed */
    int silent;
} notice;

struct rt_notices {
    notice heard, said[KIND_left + 1]; /* messages */
    ampc_mpi_request listening;
    bool listens;
    int64_t asked, told; /* when another rank, and this one, last said that it waits too long */
    struct waits *waits; /* by rank */
    int left;            /* ranks that have told their users */
};

/* What a rank has said lately. It repeats it as long as it is true. */
struct waits {
    int rank; /* that it waits for */
    int64_t when;
};

enum { REPEAT_MS = 200, LATELY_MS = 1000 };

static void listen(rt_ranks *r)
{
    struct rt_notices *n = r->notices;
    n->listens = r->mpi->receive(&n->heard, sizeof n->heard, -1, TAG, &n->listening) == 0;
}

bool rt_notices_open(rt_ranks *r)
{
    const size_t count = (size_t)r->table.count;
    struct rt_notices *n = calloc(1, sizeof *n);
    if (n) n->waits = calloc(count, sizeof *n->waits);
    if (!n || !n->waits) {
        free(n);
        return false;
    }
    r->notices = n;
    listen(r);
    return true;
}

void rt_notices_close(rt_ranks *r)
{
    struct rt_notices *n = r->notices;
    ampc_mpi_request sent;
    int done = 0;
    if (!n) return;
    n->said[KIND_ends] = (notice){.kind = KIND_ends, .from = r->table.index};
    /* A message to itself ends what it listens to. */
    if (n->listens && r->mpi->send(&n->said[KIND_ends], sizeof(notice), r->table.index, TAG, &sent) == 0) {
        while (r->mpi->test(&n->listening, &done) == 0 && !done) {}
        for (done = 0; r->mpi->test(&sent, &done) == 0 && !done;) {}
    }
    free(n->waits);
    free(n);
    r->notices = NULL;
}

static void tell(rt_ranks *r, int kind, int rank, bool silent)
{
    struct rt_notices *n = r->notices;
    n->said[kind] = (notice){.kind = kind, .from = r->table.index, .rank = rank, .silent = silent};
    for (int i = 0; i < r->table.count; i++) {
        ampc_mpi_request request; /* nothing waits for it */
        if (i != r->table.index) (void)r->mpi->send(&n->said[kind], sizeof(notice), i, TAG, &request);
    }
}

int rt_notices_hear(rt_ranks *r, bool *silent)
{
    struct rt_notices *n = r->notices;
    int done = 0, failed = -1;
    while (n && n->listens && failed < 0 && r->mpi->test(&n->listening, &done) == 0 && done) {
        const notice heard = n->heard;
        listen(r);
        done = 0;
        if (heard.kind == KIND_waits) {
            n->asked = rt_now_ms();
            n->waits[heard.from] = (struct waits){.rank = heard.rank, .when = n->asked};
            continue;
        }
        n->left += heard.kind == KIND_left;
        failed = heard.rank;
        *silent = heard.silent;
    }
    return failed;
}

int rt_notices_wait(rt_ranks *r, int peer, bool long_enough)
{
    struct rt_notices *n = r->notices;
    if (!n) return peer;
    const int64_t now = rt_now_ms();
    if ((long_enough || (n->asked && now - n->asked < LATELY_MS)) && now - n->told >= REPEAT_MS) {
        n->told = now;
        tell(r, KIND_waits, peer, true);
    }
    for (int i = 0; i < r->table.count; i++) {
        const struct waits *w = &n->waits[peer];
        if (!w->when || now - w->when >= LATELY_MS || w->rank == r->table.index) break;
        peer = w->rank;
    }
    return peer;
}

void rt_notices_lost(rt_ranks *r, int rank, bool silent)
{
    if (r->notices) tell(r, KIND_lost, rank, silent);
}

void rt_notices_leave(rt_ranks *r, int failed, bool silent)
{
    enum { LIMIT_MS = 1000 };
    struct rt_notices *n = r->notices;
    if (!n) return;
    tell(r, KIND_left, failed, silent);
    const int others = r->table.count - 1 - (failed != r->table.index);
    for (const int64_t start = rt_now_ms(); n->listens && n->left < others && rt_now_ms() - start < LIMIT_MS;
         poll(NULL, 0, 1))
        while (rt_notices_hear(r, &silent) >= 0) {}
}
