/* cudasim.cc - the simulator: runs blocks one after another, with the threads of a block as fibers.
 *
 * The scheduler runs the lanes of a warp until none of them can continue, then the next warp. If a round over all warps makes no
 * progress although threads are left, it reports a deadlock. A barrier counts arrivals among the threads that have not returned;
 * the last to arrive releases all. A warp operation is a meeting of the lanes of its mask: each contributes a value, and the last
 * to arrive computes everybody's result. Meeting at different places is an error that names both.
 *
 * Ordering for ThreadSanitizer: a launch is ordered after the host's previous actions and before its next ones. Threads of a block
 * are ordered only by barriers and __syncwarp (CUDA guarantees no more for shuffles and votes), threads of different blocks only by
 * a fence before the atomic of one and a fence after the atomic of the other. Shared memory is new in every block. */
#include "tests/cuda/sim/cudasim.h"
#include "tests/cuda/sim/fiber.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

using namespace cudasim;

namespace {

enum { WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP, MAX_SHARED = 227 << 10, TEXT = 1024 };

enum state { READY, AT_BARRIER, AT_MEETING, RETURNED };

struct thread {
    cudasim_thread seen; /* first, so that cudasim_self() may return it */
    fiber *on;           /* NULL: not started or returned */
    state now;
    unsigned index;      /* within the block */
    cudasim_site site;   /* where it waits */
    unsigned mask;       /* of its meeting */
    int source;
    unsigned long long value;
    bool fenced;         /* since its start */
    void *touched;       /* by its last atomic */
};

struct warp {
    unsigned ready, live, waiting; /* lanes; waiting: at a meeting */
    unsigned meetings;
};

thread threads[MAX_THREADS];
warp warps[MAX_WARPS];
thread *self;

struct {
    const cudasim_kernel *kernel;
    void *const *arguments;
    char *dynamic;
    size_t dynamic_bytes;
    unsigned n_threads, n_warps, live, set;
    unsigned arrived, barriers, vote[3]; /* of the barrier being filled, by cudasim_vote */
    unsigned result[2][3];               /* of the last two barriers */
} run;

/* Tokens for ordering; only their addresses matter. Consecutive barriers and meetings use different ones. */
struct {
    char end, block, barrier[FIBER_SETS][2], meeting[FIBER_SETS][MAX_WARPS][2];
} token;

const cudasim_kernel *newest;
pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;
thread_local bool launching; /* this thread; stays set if a signal handler jumps out of a kernel that crashed */
thread_local char text[TEXT];
char fault[TEXT];
bool strict = true, logged;
int order = -1; /* -1: not yet read from the environment */
unsigned long long seed;

void fault_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fault_add(const char *format, ...)
{
    size_t used = strlen(fault);
    va_list list;
    va_start(list, format);
    vsnprintf(fault + used, sizeof fault - used, format, list);
    va_end(list);
}

void fault_begin()
{
    uint3 b = threads[0].seen.block;
    fault[0] = 0;
    fault_add("kernel %s, block (%u,%u,%u): ", run.kernel->name, b.x, b.y, b.z);
}

void fault_thread(const thread *t)
{
    fault_add("thread (%u,%u,%u)", t->seen.thread.x, t->seen.thread.y, t->seen.thread.z);
}

void fault_place(const thread *t, cudasim_site site)
{
    fault_thread(t);
    fault_add(" is at %s:%d (%s)", site.file, site.line, site.what);
}

bool same_place(cudasim_site a, cudasim_site b)
{
    return a.counter == b.counter && a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* Stops the thread for good: the launch ends with the text in `fault`. */
[[noreturn]] void fault_end()
{
    order_release(&token.end);
    for (;;) fiber_leave();
}

/* Lets other threads run. Does not return if one of them had a fault. */
void leave()
{
    fiber_leave();
    if (fault[0]) fault_end();
}

/* ---- called by kernels ---- */

void release_barrier()
{
    unsigned parity = run.barriers++ & 1;
    for (int i = 0; i < 3; i++) run.result[parity][i] = run.vote[i];
    run.vote[CUDASIM_AND] = 1;
    run.vote[CUDASIM_OR] = run.vote[CUDASIM_COUNT] = 0;
    run.arrived = 0;
    for (unsigned w = 0; w < run.n_warps; w++) warps[w].ready = warps[w].live;
    for (unsigned i = 0; i < run.n_threads; i++)
        if (threads[i].now == AT_BARRIER) threads[i].now = READY;
}

thread *first_in(state now, const thread *except)
{
    for (unsigned i = 0; i < run.n_threads; i++)
        if (threads[i].now == now && &threads[i] != except) return &threads[i];
    return nullptr;
}

[[noreturn]] void fault_divergence(thread *t, cudasim_site site, const thread *other)
{
    fault_begin();
    fault_place(t, site);
    fault_add(" and ");
    if (other->now == RETURNED) {
        fault_thread(other);
        fault_add(" has returned");
    } else {
        fault_place(other, other->site);
    }
    fault_end();
}

/* Reports that `left` waits for a thread that has just returned. */
void fault_left(const thread *left, const thread *returned)
{
    fault_begin();
    fault_place(left, left->site);
    fault_add(" and ");
    fault_thread(returned);
    fault_add(" has returned");
}

void wait_as(thread *t, state now, cudasim_site site)
{
    t->now = now;
    t->site = site;
    warps[t->index / WARP].ready &= ~(1u << t->index % WARP);
}

/* Computes the result of a meeting for one lane. */
unsigned long long meeting_result(thread *lanes, const thread *t, int what)
{
    unsigned mask = t->mask;
    if (what >= CUDASIM_SYNC && what < CUDASIM_ADD) return 0;
    if (what == CUDASIM_SHUFFLE) {
        if (mask >> t->source & 1) return lanes[t->source].value;
        if (strict) {
            fault_begin();
            fault_place(t, t->site);
            fault_add(" and reads lane %d, which does not participate", t->source);
            fault_end();
        }
        return ~0ull;
    }
    unsigned long long result = 0;
    if (what == CUDASIM_BALLOT) {
        for (unsigned m = mask; m; m &= m - 1) result |= lanes[__builtin_ctz(m)].value << __builtin_ctz(m);
        return result;
    }
    unsigned u = (unsigned)lanes[__builtin_ctz(mask)].value;
    for (unsigned m = mask & (mask - 1); m; m &= m - 1) {
        unsigned v = (unsigned)lanes[__builtin_ctz(m)].value;
        switch (what) {
        case CUDASIM_ADD: u += v; break;
        case CUDASIM_MIN: u = (int)v < (int)u ? v : u; break;
        case CUDASIM_MAX: u = (int)v > (int)u ? v : u; break;
        case CUDASIM_UMIN: u = v < u ? v : u; break;
        case CUDASIM_UMAX: u = v > u ? v : u; break;
        case CUDASIM_BIT_AND: u &= v; break;
        case CUDASIM_BIT_OR: u |= v; break;
        case CUDASIM_BIT_XOR: u ^= v; break;
        }
    }
    return u;
}

/* What a lane contributes to a product of matrices, and its results. Its value in the meeting is the address. */
struct fragments {
    float c[4];
    unsigned a[4], b[2];
};

float from_low(unsigned bits, bool bf16)
{
    const unsigned sign = (bits & 0x8000) << 16, size = bits & 0x7fff;
    if (bf16) return cudasim_bits<float>(bits << 16);
    if (size >= 0x7c00) return cudasim_bits<float>(sign | 0x7f800000 | (size & 0x3ff) << 13);
    return cudasim_bits<float>(sign | cudasim_bits<unsigned>(cudasim_bits<float>(size << 13) * 0x1p112f));
}

/* Adds the product of the 16 x 16 matrix a and the 16 x 8 matrix b to c (their parts: kernels/cuda/mma.cuh). */
void multiply(thread *lanes, bool bf16)
{
    float a[16][16], b[16][8], c[16][8];
    fragments *parts[WARP];
    for (int lane = 0; lane < WARP; lane++) {
        const int g = lane / 4, t = lane % 4 * 2;
        parts[lane] = reinterpret_cast<fragments *>(lanes[lane].value);
        for (int i = 0; i < 4; i++) c[g + i / 2 * 8][t + i % 2] = parts[lane]->c[i];
        for (int i = 0; i < 8; i++)
            a[g + i / 2 % 2 * 8][t + i % 2 + i / 4 * 8] = from_low(parts[lane]->a[i / 2] >> i % 2 * 16 & 0xffff, bf16);
        for (int i = 0; i < 4; i++)
            b[t + i % 2 + i / 2 * 8][g] = from_low(parts[lane]->b[i / 2] >> i % 2 * 16 & 0xffff, bf16);
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++) c[i][j] += a[i][k] * b[k][j];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) parts[lane]->c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

/* A row that a lane has read, and the results of the lane. */
struct loaded {
    uint4 row;
    unsigned to[4];
};

/* Lanes 8 i to 8 i + 7 have the rows of matrix i. */
void load(thread *lanes, bool crossed)
{
    unsigned short m[4][8][8];
    for (int lane = 0; lane < WARP; lane++)
        memcpy(m[lane / 8][lane % 8], &reinterpret_cast<loaded *>(lanes[lane].value)->row, sizeof m[0][0]);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const int g = lane / 4, t = lane % 4 * 2;
            const unsigned first = crossed ? m[i][t][g] : m[i][g][t], second = crossed ? m[i][t + 1][g] : m[i][g][t + 1];
            reinterpret_cast<loaded *>(lanes[lane].value)->to[i] = first | second << 16;
        }
}

/* Called when all lanes of the mask have arrived; they must be at the same place with the same mask. */
void release_meeting(thread *last, thread *lanes, warp *w, int what)
{
    unsigned long long results[WARP];
    for (unsigned m = last->mask; m; m &= m - 1) {
        thread *t = &lanes[__builtin_ctz(m)];
        if (t->mask != last->mask || !same_place(t->site, last->site)) fault_divergence(last, last->site, t);
    }
    if (what == CUDASIM_MULTIPLY_F16 || what == CUDASIM_MULTIPLY_BF16) multiply(lanes, what == CUDASIM_MULTIPLY_BF16);
    if (what == CUDASIM_LOAD || what == CUDASIM_LOAD_CROSSED) load(lanes, what == CUDASIM_LOAD_CROSSED);
    bool one_result = what >= CUDASIM_ADD || what == CUDASIM_BALLOT;
    unsigned long long common = one_result ? meeting_result(lanes, last, what) : 0;
    for (unsigned m = last->mask; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        results[lane] = one_result ? common : meeting_result(lanes, &lanes[lane], what);
    }
    for (unsigned m = last->mask; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        lanes[lane].value = results[lane];
        lanes[lane].now = READY;
    }
    w->waiting &= ~last->mask;
    w->ready |= last->mask;
    w->meetings++;
}

void check_meeting(thread *t, const warp *w, unsigned mask, cudasim_site site)
{
    if (!(mask >> t->index % WARP & 1) || (strict && mask != 0xffffffffu)) {
        fault_begin();
        fault_place(t, site);
        fault_add(" with mask 0x%08x", mask);
        fault_add(strict ? ", not that of a whole warp" : ", which leaves the thread itself out");
        fault_end();
    }
    unsigned gone = mask & ~w->live;
    if (gone) fault_divergence(t, site, &threads[t->index / WARP * WARP + (unsigned)__builtin_ctz(gone)]);
}

} // namespace

extern "C" {

const cudasim_thread *cudasim_self(void)
{
    return &self->seen;
}

int cudasim_barrier(cudasim_site site, int vote, int value)
{
    thread *t = self;
    unsigned parity = run.barriers & 1;
    if (strict && run.live < run.n_threads) fault_divergence(t, site, first_in(RETURNED, t));
    const thread *other = run.arrived ? first_in(AT_BARRIER, t) : nullptr;
    if (other && !same_place(other->site, site)) fault_divergence(t, site, other);
    run.vote[CUDASIM_AND] &= (unsigned)value;
    run.vote[CUDASIM_OR] |= (unsigned)value;
    run.vote[CUDASIM_COUNT] += (unsigned)value;
    order_release(&token.barrier[run.set][parity]);
    wait_as(t, AT_BARRIER, site);
    if (++run.arrived == run.live)
        release_barrier();
    else
        leave();
    order_acquire(&token.barrier[run.set][parity]);
    return (int)run.result[parity][vote];
}

unsigned long long cudasim_meet(cudasim_site site, unsigned mask, int what, unsigned long long value, int source)
{
    thread *t = self, *lanes = &threads[t->index / WARP * WARP];
    warp *w = &warps[t->index / WARP];
    check_meeting(t, w, mask, site);
    char *order_token = &token.meeting[run.set][t->index / WARP][w->meetings & 1];
    if (what == CUDASIM_SYNC) order_release(order_token);
    t->mask = mask;
    t->value = value;
    t->source = source;
    wait_as(t, AT_MEETING, site);
    w->waiting |= 1u << t->index % WARP;
    if ((w->waiting & mask) == mask)
        release_meeting(t, lanes, w, what);
    else
        leave();
    if (what == CUDASIM_SYNC) order_acquire(order_token);
    return t->value;
}

void cudasim_multiply(cudasim_site site, int what, float *c, const unsigned *a, unsigned b0, unsigned b1)
{
    fragments f = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    cudasim_meet(site, 0xffffffffu, what, reinterpret_cast<unsigned long long>(&f), 0);
    for (int i = 0; i < 4; i++) c[i] = f.c[i];
}

void cudasim_load(cudasim_site site, int what, unsigned *to, const uint4 *row)
{
    loaded l = {*row, {}};
    cudasim_meet(site, 0xffffffffu, what, reinterpret_cast<unsigned long long>(&l), 0);
    for (int i = 0; i < 4; i++) to[i] = l.to[i];
}

/* Returns the lane that a shuffle reads. If it is outside the segment of `width` lanes, a thread reads its own value. */
int cudasim_source(cudasim_site site, int shift, int argument, int width)
{
    if (width < 1 || width > WARP || (width & (width - 1))) {
        fault_begin();
        fault_place(self, site);
        fault_add(" with width %d, not a power of two up to 32", width);
        fault_end();
    }
    int lane = (int)(self->index % WARP), first = lane & ~(width - 1), last = first + width - 1, source = lane;
    switch (shift) {
    case CUDASIM_INDEX: return first | (argument & (width - 1));
    case CUDASIM_UP: source = lane - argument; break;
    case CUDASIM_DOWN: source = lane + argument; break;
    case CUDASIM_XOR: source = lane ^ argument; break;
    }
    if (shift == CUDASIM_UP) return source < first ? lane : source;
    return source > last ? lane : source;
}

void *cudasim_dynamic_shared(void)
{
    if (!run.dynamic) {
        fault_begin();
        fault_add("dynamic shared memory is used, but the launch has none");
        fault_end();
    }
    return run.dynamic;
}

/* A fence before an atomic releases, one after it acquires. (The release is reported at the atomic, so it also covers accesses
 * between the fence and the atomic.) */
void cudasim_atomic_begin(void *p)
{
    if (self->fenced) order_release(p);
    self->touched = p;
}

void cudasim_fence(void)
{
    self->fenced = true;
    if (self->touched) order_acquire(self->touched);
}

void cudasim_trap(cudasim_site site)
{
    fault_begin();
    fault_place(self, site);
    fault_end();
}

/* A thread whose kernel crashed has the lock already: its process must be able to end. */
void cudasim_register(cudasim_kernel *kernel)
{
    if (!launching) pthread_mutex_lock(&one_launch);
    kernel->older = newest;
    newest = kernel;
    if (!launching) pthread_mutex_unlock(&one_launch);
}

void cudasim_unregister(cudasim_kernel *kernel)
{
    if (!launching) pthread_mutex_lock(&one_launch);
    const cudasim_kernel **link = &newest;
    while (*link && *link != kernel) link = const_cast<const cudasim_kernel **>(&(*link)->older);
    if (*link) *link = kernel->older;
    if (!launching) pthread_mutex_unlock(&one_launch);
}

} // extern "C"

/* ---- running blocks ---- */

namespace {

/* Avoids memset, which the sanitizers intercept, because there are redzones between the variables. */
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) void poison(char *begin, const char *end)
{
#ifdef __x86_64__
    size_t n = (size_t)(end - begin);
    __asm__ volatile("rep stosb" : "+D"(begin), "+c"(n) : "a"(0xff) : "memory");
#else
    for (volatile char *p = begin; p < end; p++) *p = (char)0xff;
#endif
}

unsigned random_below(unsigned n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((seed >> 33) % n);
}

/* Fills the list with 0, 1, ... n - 1 in the selected order. */
void make_order(unsigned *list, unsigned n)
{
    for (unsigned i = 0; i < n; i++) list[i] = order == CUDASIM_DESCENDING ? n - 1 - i : i;
    for (unsigned i = n; order == CUDASIM_SHUFFLED && i > 1; i--) {
        unsigned j = random_below(i), kept = list[i - 1];
        list[i - 1] = list[j];
        list[j] = kept;
    }
}

void thread_body(void *)
{
    thread *t = self;
    order_acquire(&token.block);
    run.kernel->call(run.arguments);
    order_release(&token.end);
    t->now = RETURNED;
}

void after_return(thread *t)
{
    warp *w = &warps[t->index / WARP];
    unsigned lane = 1u << t->index % WARP;
    t->on = nullptr;
    w->live &= ~lane;
    w->ready &= ~lane;
    run.live--;
    for (unsigned m = w->waiting; m; m &= m - 1) {
        const thread *left = &threads[t->index / WARP * WARP + (unsigned)__builtin_ctz(m)];
        if (left->mask & lane) return fault_left(left, t);
    }
    const thread *left = run.arrived ? first_in(AT_BARRIER, t) : nullptr;
    if (left && strict) return fault_left(left, t);
    if (left && run.arrived == run.live) release_barrier();
}

/* Runs a thread until it waits or returns; false: a fault. */
bool thread_run(thread *t)
{
    bool ended;
    self = t;
    if (t->on) {
        ended = fiber_resume(t->on);
    } else {
        t->on = fiber_take(t->index);
        if (!t->on) {
            fault_begin();
            fault_add("no memory for the stack of a thread");
            return false;
        }
        ended = fiber_start(t->on, thread_body, nullptr);
    }
    if (ended) after_return(t);
    return !fault[0];
}

unsigned next_lane(unsigned ready)
{
    if (order == CUDASIM_DESCENDING) return 31u - (unsigned)__builtin_clz(ready);
    if (order == CUDASIM_ASCENDING) return (unsigned)__builtin_ctz(ready);
    unsigned turn = random_below(WARP);
    unsigned turned = ready >> turn | ready << ((WARP - turn) % WARP);
    return ((unsigned)__builtin_ctz(turned) + turn) % WARP;
}

/* Reports up to four places where the remaining threads wait. */
void report_deadlock()
{
    const thread *shown[4];
    int n = 0;
    fault_begin();
    fault_add("all threads wait:");
    for (unsigned i = 0; i < run.n_threads && n < 4; i++) {
        const thread *t = &threads[i];
        bool known = t->now == RETURNED;
        for (int j = 0; j < n; j++) known = known || same_place(shown[j]->site, t->site);
        if (known) continue;
        fault_add(n ? ", " : " ");
        fault_place(t, t->site);
        shown[n++] = t;
    }
}

void block_begin(uint3 block)
{
    run.live = run.n_threads;
    run.arrived = run.barriers = 0;
    run.vote[CUDASIM_AND] = 1;
    run.vote[CUDASIM_OR] = run.vote[CUDASIM_COUNT] = 0;
    run.set ^= 1;
    fiber_use_set(run.set);
    for (unsigned i = 0; i < run.n_threads; i++) {
        threads[i].seen.block = block;
        threads[i].now = READY;
        threads[i].on = nullptr;
        threads[i].fenced = false;
        threads[i].touched = nullptr;
    }
    for (unsigned w = 0; w < run.n_warps; w++) {
        unsigned lanes = run.n_threads - w * WARP;
        warps[w].live = warps[w].ready = lanes < WARP ? (1u << lanes) - 1 : 0xffffffffu;
        warps[w].waiting = warps[w].meetings = 0;
    }
    const cudasim_kernel *k = run.kernel;
    poison(k->shared, k->shared_end);
    poison(run.dynamic, run.dynamic + run.dynamic_bytes);
    memory_is_new(k->shared, (unsigned long)(k->shared_end - k->shared));
    memory_is_new(run.dynamic, run.dynamic_bytes);
    order_release(&token.block);
}

bool block_run(uint3 block)
{
    unsigned warp_order[MAX_WARPS];
    block_begin(block);
    make_order(warp_order, run.n_warps);
    while (run.live) {
        bool moved = false;
        for (unsigned i = 0; i < run.n_warps; i++) {
            warp *w = &warps[warp_order[i]];
            for (; w->ready; moved = true)
                if (!thread_run(&threads[warp_order[i] * WARP + next_lane(w->ready)])) return false;
        }
        if (!moved) {
            report_deadlock();
            return false;
        }
    }
    return true;
}

/* ---- launches ---- */

void threads_make(cudasim_shape grid, cudasim_shape block)
{
    unsigned i = 0;
    for (unsigned z = 0; z < block.z; z++)
        for (unsigned y = 0; y < block.y; y++)
            for (unsigned x = 0; x < block.x; x++, i++) {
                threads[i].index = i;
                threads[i].seen.thread = uint3{x, y, z};
                threads[i].seen.threads = dim3(block.x, block.y, block.z);
                threads[i].seen.blocks = dim3(grid.x, grid.y, grid.z);
            }
    run.n_threads = i;
    run.n_warps = (i + WARP - 1) / WARP;
}

/* Runs the blocks in order. The shuffled order advances by a step coprime to the number of blocks. */
bool blocks_run(cudasim_shape grid)
{
    unsigned long long n = (unsigned long long)grid.x * grid.y * grid.z, at = 0, step = 1;
    if (order == CUDASIM_DESCENDING) {
        at = step = n - 1;
        if (n == 1) step = 1;
    } else if (order == CUDASIM_SHUFFLED && n > 2) {
        at = random_below((unsigned)(n < 1u << 30 ? n : 1u << 30));
        for (unsigned long long a = 0, b = 1; b != 1 || a == 0;) {
            step = 1 + random_below((unsigned)(n < 1u << 30 ? n - 1 : 1u << 30));
            for (a = n, b = step; a % b != 0;) {
                unsigned long long rest = a % b;
                a = b;
                b = rest;
            }
        }
    }
    for (unsigned long long i = 0; i < n; i++, at = (at + step) % n) {
        uint3 block = {(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)};
        if (!block_run(block)) return false;
    }
    return true;
}

void abandon_all()
{
    for (unsigned i = 0; i < run.n_threads; i++) {
        if (!threads[i].on) continue;
        fiber_resume(threads[i].on); /* runs to fault_end, which orders it before the end of the launch */
        fiber_abandon(threads[i].on);
    }
}

void read_environment()
{
    const char *o = getenv("CUDASIM_ORDER"), *s = getenv("CUDASIM_STRICT");
    unsigned number = 0;
    order = CUDASIM_ASCENDING;
    if (o && sscanf(o, "%d:%u", &order, &number) < 1) order = CUDASIM_ASCENDING;
    seed = number;
    if (s) strict = strcmp(s, "0") != 0;
    logged = getenv("CUDASIM_LOG") != nullptr;
}

/* A test framework may catch the signal of a kernel that crashed and go on with its next test. Nothing can be launched any
 * more: the lock is never released, and the fibers are lost. */
void launch_begin()
{
    if (launching) {
        fputs("cudasim: a kernel crashed in this process\n", stderr);
        fflush(stdout);
        _exit(1);
    }
    pthread_mutex_lock(&one_launch);
    launching = true;
}

/* Loads CUDASIM_MODULE, whose kernels replace those of the program with the same names. */
void open_module()
{
    static bool done;
    const char *module = getenv("CUDASIM_MODULE");
    if (!done && module && !dlopen(module, RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "cudasim: %s\n", dlerror());
        exit(2);
    }
    done = true;
}

} // namespace

/* ---- for the sanitizers: name the kernel in their reports ---- */

extern "C" {

static void name_culprit(void)
{
    if (!self || !run.kernel) return;
    const cudasim_thread *t = &self->seen;
    fprintf(stderr, "cudasim: kernel %s, block (%u,%u,%u), thread (%u,%u,%u)\n", run.kernel->name, t->block.x,
            t->block.y, t->block.z, t->thread.x, t->thread.y, t->thread.z);
}
void __asan_on_error(void);
void __asan_on_error(void)
{
    name_culprit();
}
/* Short history, because there are up to 2048 fibers; it suffices to show the other access of a race. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "halt_on_error=1:history_size=0";
}
void __tsan_on_report(void *report);
void __tsan_on_report(void *)
{
    name_culprit();
}

} // extern "C"

/* ---- host interface ---- */

extern "C" {

const cudasim_kernel *cudasim_next(const cudasim_kernel *previous)
{
    return previous ? previous->older : newest;
}

const cudasim_kernel *cudasim_find(const char *name)
{
    open_module();
    const cudasim_kernel *k = newest;
    while (k && strcmp(k->name, name) != 0) k = k->older;
    return k;
}

const char *cudasim_name(const cudasim_kernel *kernel)
{
    return kernel->name;
}
const char *cudasim_file(const cudasim_kernel *kernel)
{
    return kernel->file;
}
int cudasim_argument_count(const cudasim_kernel *kernel)
{
    return kernel->arguments;
}
size_t cudasim_argument_size(const cudasim_kernel *kernel, int argument)
{
    return kernel->sizes[argument];
}

/* The patchable instructions of a kernel start at the last listed place before it. If they belong to another function, there is
 * something other than one-byte nops in between. */
unsigned cudasim_max_threads(const cudasim_kernel *kernel)
{
    auto function = static_cast<const unsigned char *>(kernel->function), begin = function;
    for (void *const *b = kernel->bounds; b < kernel->bounds_end; b++) {
        auto candidate = static_cast<const unsigned char *>(*b);
        if (candidate < function && function - candidate <= MAX_THREADS && (begin == function || candidate > begin))
            begin = candidate;
    }
#ifdef __x86_64__
    for (auto p = begin; p < function; p++)
        if (*p != 0x90) return 0;
#endif
    return (unsigned)(function - begin);
}

const char *cudasim_check(const cudasim_kernel *kernel, cudasim_shape grid, cudasim_shape block, size_t shared)
{
    if (order < 0) read_environment();
    unsigned long long n = (unsigned long long)block.x * block.y * block.z;
    unsigned bound = cudasim_max_threads(kernel);
    const char *what = nullptr;
    if (!n || !grid.x || !grid.y || !grid.z)
        what = "an empty grid or block";
    else if (n > MAX_THREADS || block.x > MAX_THREADS || block.y > MAX_THREADS || block.z > 64)
        what = "more than 1024 threads in a block";
    else if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        what = "a grid beyond the limits";
    else if (shared > MAX_SHARED)
        what = "more than 227 KiB of shared memory";
    else if (bound && n > bound)
        what = "more threads in a block than __launch_bounds__ says";
    else if (strict && !bound)
        what = "no __launch_bounds__";
    else if (strict && n % WARP)
        what = "a block whose size is not a multiple of 32 threads";
    if (!what) return nullptr;
    snprintf(text, sizeof text, "kernel %s: %s (grid %ux%ux%u, block %ux%ux%u, %zu bytes of shared memory)",
             kernel->name, what, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
    return text;
}

const char *cudasim_launch(const cudasim_kernel *kernel, cudasim_shape grid, cudasim_shape block,
                           void *const *arguments, size_t shared)
{
    /* Static, because ThreadSanitizer would look for races between malloc or free and accesses that it cannot order. */
    static char dynamic[MAX_SHARED] __attribute__((aligned(128)));
    const char *refused = cudasim_check(kernel, grid, block, shared);
    if (refused) return refused;
    if (logged) fprintf(stderr, "cudasim: launch %s\n", kernel->name);
    launch_begin();
    run.kernel = kernel;
    run.arguments = arguments;
    run.dynamic_bytes = shared;
    run.dynamic = !shared ? nullptr : watched_by_tsan() ? dynamic : static_cast<char *>(malloc(shared));
    fault[0] = 0;
    if (shared && !run.dynamic) snprintf(fault, sizeof fault, "no memory for %zu bytes of shared memory", shared);
    threads_make(grid, block);
    if (!fault[0] && !blocks_run(grid)) abandon_all();
    order_acquire(&token.end);
    if (!watched_by_tsan()) free(run.dynamic);
    snprintf(text, sizeof text, "%s", fault);
    self = nullptr;
    launching = false;
    pthread_mutex_unlock(&one_launch);
    return text[0] ? text : nullptr;
}

void cudasim_set_order(int new_order, unsigned new_seed)
{
    if (order < 0) read_environment();
    order = new_order;
    seed = new_seed;
}

void cudasim_set_strict(bool on)
{
    if (order < 0) read_environment();
    strict = on;
}

const char *cudasim_watcher(void)
{
    return watched_by_tsan() ? "tsan" : watched_by_asan() ? "asan" : "plain";
}

} // extern "C"
