/* fiber.cc - see fiber.h. Switching needs fifteen instructions on x86-64 (about 5 ns); on other CPUs, or with CUDASIM_UCONTEXT,
 * swapcontext is used (about 250 ns, two system calls).
 *
 * This file is compiled without ThreadSanitizer in every build. The sanitizers' functions are weak, so one object serves programs
 * with and without them. */
#include "tests/cuda/sim/fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

#define WEAK __attribute__((weak))
extern "C" {
WEAK void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
WEAK void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size);
WEAK void __asan_unpoison_memory_region(void const volatile *memory, size_t size);
WEAK void *__tsan_get_current_fiber(void);
WEAK void *__tsan_create_fiber(unsigned flags);
WEAK void __tsan_destroy_fiber(void *fiber);
WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
WEAK void __tsan_set_fiber_name(void *fiber, const char *name);
WEAK void __tsan_acquire(void *token);
WEAK void __tsan_release(void *token);
WEAK void __tsan_java_init(uintptr_t begin, uintptr_t size);
WEAK void __tsan_java_alloc(uintptr_t memory, uintptr_t size);
WEAK void __tsan_java_free(uintptr_t memory, uintptr_t size);
}

namespace cudasim {

enum { STACK = 256 << 10, PAGE = 4096, LINE = 64, TSAN_WITHOUT_ORDER = 1 };

#if defined(__x86_64__) && !defined(CUDASIM_UCONTEXT)
typedef void *context;
/* Pushes callee-saved registers, stores the stack pointer, switches stacks and pops the other fiber's registers. */
extern "C" void cudasim_switch(context *from, context to);
__asm__(".text\n.globl cudasim_switch\n.hidden cudasim_switch\n.type cudasim_switch, @function\n"
        "cudasim_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
        ".size cudasim_switch, .-cudasim_switch\n");
static void context_make(context *c, char *top, void (*entry)())
{
    /* On function entry the stack pointer is 8 modulo 16; a return address of 0 ends backtraces. */
    auto words = reinterpret_cast<void **>(top) - 2;
    words[1] = nullptr;
    words[0] = reinterpret_cast<void *>(entry);
    memset(words - 6, 0, 6 * sizeof *words);
    *c = words - 6;
}
static void context_switch(context *from, context *to)
{
    cudasim_switch(from, *to);
}
#else
typedef ucontext_t context;
static void context_make(context *c, char *top, void (*entry)())
{
    getcontext(c);
    c->uc_stack.ss_sp = top - STACK / 2;
    c->uc_stack.ss_size = STACK / 2;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}
static void context_switch(context *from, context *to)
{
    swapcontext(from, to);
}
#endif

struct fiber {
    context saved;
    char *stack;      /* STACK bytes above a guard page */
    unsigned shift;   /* of the top of the stack; otherwise all tops would share cache sets */
    void *tsan;
    void *fake_stack; /* of AddressSanitizer, while the fiber is suspended */
    void (*subgraph)(void *);
    void *argument;
    bool ended;
    fiber *next_free;
};

static fiber fibers[FIBER_SETS * FIBERS];
static fiber *free_fibers, *current;
static unsigned made, set_in_use;

/* The thread that runs the fibers. */
static struct {
    context saved;
    void *tsan, *fake_stack;
    const void *bottom;
    size_t size;
} home;

bool watched_by_tsan()
{
    return __tsan_create_fiber != nullptr;
}
bool watched_by_asan()
{
    return __sanitizer_start_switch_fiber != nullptr;
}

/* ---- switching ---- */

static void go_in(fiber *f)
{
    current = f;
    if (watched_by_asan()) __sanitizer_start_switch_fiber(&home.fake_stack, f->stack, STACK);
    if (watched_by_tsan()) {
        home.tsan = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(f->tsan, TSAN_WITHOUT_ORDER);
    }
    context_switch(&home.saved, &f->saved);
    if (watched_by_asan()) __sanitizer_finish_switch_fiber(home.fake_stack, nullptr, nullptr);
    current = nullptr;
}

void fiber_leave()
{
    fiber *f = current;
    if (watched_by_asan()) __sanitizer_start_switch_fiber(&f->fake_stack, home.bottom, home.size);
    if (watched_by_tsan()) __tsan_switch_to_fiber(home.tsan, TSAN_WITHOUT_ORDER);
    context_switch(&f->saved, &home.saved);
    if (watched_by_asan()) __sanitizer_finish_switch_fiber(f->fake_stack, &home.bottom, &home.size);
}

static void fiber_main()
{
    if (watched_by_asan()) __sanitizer_finish_switch_fiber(nullptr, &home.bottom, &home.size);
    for (;;) {
        fiber *f = current;
        f->subgraph(f->argument);
        f->ended = true;
        fiber_leave();
    }
}

/* ---- the pool ---- */

static void fiber_reset(fiber *f)
{
    context_make(&f->saved, f->stack + STACK - f->shift, fiber_main);
    f->fake_stack = nullptr;
    if (watched_by_asan()) __asan_unpoison_memory_region(f->stack, STACK);
    if (!watched_by_tsan()) return;
    char name[32];
    snprintf(name, sizeof name, "CUDA thread %u", (unsigned)(f - fibers) % FIBERS);
    f->tsan = __tsan_create_fiber(0);
    __tsan_set_fiber_name(f->tsan, name);
}

static bool fiber_make(fiber *f)
{
    char *memory = static_cast<char *>(mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0));
    if (memory == MAP_FAILED) return false;
    mprotect(memory, PAGE, PROT_NONE);
    f->stack = memory + PAGE;
    f->shift = (unsigned)(f - fibers) * 3 * LINE % PAGE;
    fiber_reset(f);
    return true;
}

void fiber_use_set(unsigned set)
{
    set_in_use = set;
}

fiber *fiber_take(unsigned thread)
{
    fiber *f;
    if (watched_by_tsan()) {
        f = &fibers[set_in_use * FIBERS + thread];
        return f->stack || fiber_make(f) ? f : nullptr;
    }
    if ((f = free_fibers)) {
        free_fibers = f->next_free;
        return f;
    }
    if (made == FIBERS || !fiber_make(&fibers[made])) return nullptr;
    return &fibers[made++];
}

static void fiber_free(fiber *f)
{
    if (watched_by_tsan()) return;
    f->next_free = free_fibers;
    free_fibers = f;
}

bool fiber_resume(fiber *f)
{
    go_in(f);
    if (!f->ended) return false;
    fiber_free(f);
    return true;
}

bool fiber_start(fiber *f, void (*subgraph)(void *), void *argument)
{
    f->subgraph = subgraph;
    f->argument = argument;
    f->ended = false;
    return fiber_resume(f);
}

void fiber_abandon(fiber *f)
{
    if (watched_by_tsan()) __tsan_destroy_fiber(f->tsan);
    fiber_reset(f);
    fiber_free(f);
}

/* ---- ordering and memory for ThreadSanitizer ---- */

void order_release(void *token)
{
    if (watched_by_tsan()) __tsan_release(token);
}
void order_acquire(void *token)
{
    if (watched_by_tsan()) __tsan_acquire(token);
}

/* Uses the interface for managed heaps, the only one that clears the history of a range without checking for races. */
void memory_is_new(void *memory, unsigned long bytes)
{
    static bool known;
    if (!watched_by_tsan() || !bytes) return;
    if (!known) __tsan_java_init(LINE, UINTPTR_MAX / 2 / LINE * LINE - LINE);
    known = true;
    uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    __tsan_java_free(begin, bytes);
    __tsan_java_alloc(begin, bytes);
}

} // namespace cudasim
