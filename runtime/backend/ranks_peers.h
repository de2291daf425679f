/* ranks_peers.h - what a rank knows of the processes of the others: where they run, whether they still do, and the
 * memory that those on its host share. */
#ifndef RT_RANKS_PEERS_H
#define RT_RANKS_PEERS_H

#include "kernels/ranks.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* Where a rank runs; ranks send it to each other. Two with the same system, namespace and user see each other. */
typedef struct rt_rank_place {
    char host[64];
    char system[40]; /* the boot id of the kernel */
    uint64_t name_space, user;
    int64_t process;
    int memory; /* the descriptor of its memory */
    int node;   /* ranks with different ones exchange messages only */
} rt_rank_place;

enum {
    RT_RANK_MEMORY_HEAD = 4096,
    RT_RANK_WINDOW = 1 << 28, /* the most bytes of a window */
};

/* The head of the memory of a rank, which the others on its host see; the window follows. */
typedef struct rt_rank_memory {
    _Atomic uint64_t step; /* barriers that it has come to */
    char apart[56];
    _Atomic uint64_t beat; /* in milliseconds: when it last waited for others */
    _Atomic int failed;    /* 0, or 1 + the rank whose failure it has reported */
    _Atomic int silent;    /* that rank did not answer, rather than end */
    _Atomic int left;      /* it has told its user */
    char apart_too[40];
    pthread_mutex_t alive; /* held while the thread that made it lives */
} rt_rank_memory;

typedef struct rt_peer {
    rt_rank_place place;
    rt_rank_memory *memory; /* NULL: its memory cannot be seen from here */
    int watch;              /* index in rt_peers.watched; -1: its process cannot be seen */
} rt_peer;

typedef struct rt_peers {
    int index, count;
    rt_peer *each;
    struct pollfd *watched; /* of processes, which are readable once these have ended */
    int *watched_rank;
    int watched_count;
    size_t window; /* bytes of this rank's window that exist */
} rt_peers;

/* Makes the memory of this rank and finds its place. False with errno if the memory cannot be made. */
bool rt_peers_begin(rt_peers *p, int index, int count);
/* Opens the processes and memories of the others once all places are known. */
void rt_peers_open(rt_peers *p);
/* Whether processes at two places see each other. */
bool rt_places_meet(const rt_rank_place *a, const rt_rank_place *b);
void rt_peers_close(rt_peers *p);
char *rt_peer_window(const rt_peer *p);
/* Makes the window of this rank at least so large. */
bool rt_peers_grow(rt_peers *p, size_t bytes);
/* Whether the rank has ended: the first sign of it, before its memory is freed and a launcher hears of it. */
bool rt_peer_ended(const rt_peers *p, int rank);
/* Waits for at most so many milliseconds, or until a process has ended: the rank to blame for it, or -1. *silent is
 * whether that rank has not answered, rather than ended. */
int rt_peers_wait(rt_peers *p, int milliseconds, bool *silent);
/* Ends after a failure once the others on this host have told their users, too: a launcher kills all when one ends. */
void rt_peers_leave(rt_peers *p);
int64_t rt_now_ms(void);

#endif
