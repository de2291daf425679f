/* ranks_peers.c - processes and shared memory of the ranks on one host. */
#include "runtime/backend/ranks_peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const size_t SPAN = RT_RANK_MEMORY_HEAD + (size_t)RT_RANK_WINDOW;

int64_t rt_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int open_process(int64_t process)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)process, 0u);
#else
    (void)process;
    return -1;
#endif
}

static void find_place(rt_rank_place *p, int index)
{
    gethostname(p->host, sizeof p->host - 1);
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, p->system, sizeof p->system - 1);
    if (fd >= 0) close(fd);
    struct stat s;
    /* Without these, no other rank has the same place. */
    p->name_space = n > 0 && stat("/proc/self/ns/pid", &s) == 0 ? (uint64_t)s.st_ino : 0;
    p->user = geteuid();
    const char *most = getenv("AMPC_RANKS_A_NODE"); /* tests: as if a host had no more */
    if (most && atoi(most) > 0) p->user += (uint64_t)(index / atoi(most)) << 32;
    p->process = getpid();
}

static rt_rank_memory *map(int fd)
{
    void *m = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return m == MAP_FAILED ? NULL : m;
}

static bool reserve(int fd, size_t from, size_t bytes)
{
    const int code = posix_fallocate(fd, (off_t)from, (off_t)bytes);
    errno = code;
    return !code;
}

/* The kernel releases a robust mutex at once when its owner ends. */
static bool show_life(rt_rank_memory *m)
{
    pthread_mutexattr_t a;
    if (pthread_mutexattr_init(&a) != 0) return false;
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    const int code = pthread_mutex_init(&m->alive, &a);
    pthread_mutexattr_destroy(&a);
    errno = code ? code : pthread_mutex_lock(&m->alive);
    return !errno;
}

bool rt_peers_begin(rt_peers *p, int index, int count)
{
    *p = (rt_peers){.index = index, .count = count};
    p->each = calloc((size_t)count, sizeof *p->each);
    p->watched = calloc((size_t)count, sizeof *p->watched);
    p->watched_rank = calloc((size_t)count, sizeof *p->watched_rank);
    if (!p->each || !p->watched || !p->watched_rank) return false;
    rt_peer *mine = &p->each[index];
    find_place(&mine->place, index);
    mine->place.memory = memfd_create("ampc-rank", MFD_CLOEXEC);
    return mine->place.memory >= 0 && reserve(mine->place.memory, 0, RT_RANK_MEMORY_HEAD) &&
           (mine->memory = map(mine->place.memory)) && show_life(mine->memory);
}

bool rt_places_meet(const rt_rank_place *a, const rt_rank_place *b)
{
    return a->name_space && a->name_space == b->name_space && a->user == b->user && !strcmp(a->system, b->system);
}

void rt_peers_open(rt_peers *p)
{
    const rt_rank_place *mine = &p->each[p->index].place;
    for (int i = 0; i < p->count; i++) {
        rt_peer *peer = &p->each[i];
        peer->watch = -1;
        if (i == p->index || !rt_places_meet(mine, &peer->place)) continue;
        const int process = open_process(peer->place.process);
        if (process >= 0) {
            p->watched[p->watched_count] = (struct pollfd){.fd = process, .events = POLLIN};
            p->watched_rank[p->watched_count] = i;
            peer->watch = p->watched_count++;
        }
        char path[64];
        snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)peer->place.process, peer->place.memory);
        const int memory = open(path, O_RDWR | O_CLOEXEC);
        if (memory < 0) continue;
        peer->memory = map(memory);
        close(memory);
    }
}

void rt_peers_close(rt_peers *p)
{
    if (p->each && p->each[p->index].memory) pthread_mutex_unlock(&p->each[p->index].memory->alive);
    for (int i = 0; p->each && i < p->count; i++)
        if (p->each[i].memory) munmap(p->each[i].memory, SPAN);
    for (int i = 0; i < p->watched_count; i++) close(p->watched[i].fd);
    if (p->each && p->each[p->index].memory) close(p->each[p->index].place.memory);
    free(p->each);
    free(p->watched);
    free(p->watched_rank);
}

char *rt_peer_window(const rt_peer *p) { return (char *)p->memory + RT_RANK_MEMORY_HEAD; }

bool rt_peers_grow(rt_peers *p, size_t bytes)
{
    if (bytes <= p->window) return true;
    size_t size = p->window ? p->window : 1 << 20;
    while (size < bytes) size *= 2;
    if (!reserve(p->each[p->index].place.memory, RT_RANK_MEMORY_HEAD + p->window, size - p->window)) return false;
    p->window = size;
    return true;
}

/* The rank whose failure rank i has reported; -1: none. */
static int reported(const rt_peers *p, int i, bool *silent)
{
    rt_rank_memory *m = p->each[i].memory;
    const int failed = m ? atomic_load(&m->failed) : 0;
    if (failed) *silent = atomic_load(&m->silent) != 0;
    return failed - 1;
}

bool rt_peer_ended(const rt_peers *p, int rank)
{
    rt_rank_memory *m = rank == p->index ? NULL : p->each[rank].memory;
    const int code = m ? pthread_mutex_trylock(&m->alive) : EBUSY;
    if (code == 0 || code == EOWNERDEAD) pthread_mutex_unlock(&m->alive);
    return code != EBUSY;
}

int rt_peers_wait(rt_peers *p, int milliseconds, bool *silent)
{
    *silent = false;
    const int ended = poll(p->watched, (nfds_t)p->watched_count, milliseconds);
    for (int i = 0; i < p->count; i++) {
        const int failed = i == p->index ? -1 : reported(p, i, silent);
        if (failed >= 0) return failed; /* this rank, if it did not answer */
    }
    for (int i = 0; ended > 0 && i < p->watched_count; i++)
        if (p->watched[i].revents) return p->watched_rank[i];
    for (int i = 0; i < p->count; i++)
        if (rt_peer_ended(p, i)) return i;
    return -1;
}

void rt_peers_leave(rt_peers *p)
{
    enum { LIMIT_MS = 1000 };
    rt_rank_memory *mine = p->each[p->index].memory;
    const int failed = atomic_load(&mine->failed) - 1;
    atomic_store(&mine->left, 1);
    for (const int64_t start = rt_now_ms(); rt_now_ms() - start < LIMIT_MS; poll(NULL, 0, 1)) {
        bool all = true;
        poll(p->watched, (nfds_t)p->watched_count, 0);
        for (int i = 0; i < p->count; i++) {
            const rt_peer *peer = &p->each[i];
            if (i == p->index || i == failed || !peer->memory || atomic_load(&peer->memory->left)) continue;
            all = all && peer->watch >= 0 && p->watched[peer->watch].revents;
        }
        if (all) return;
    }
}
