/* fiber.h - stacks for CUDA threads, with explicit switching.
 *
 * A fiber runs one body after another and keeps its stack between them, so a kernel that never waits uses a single fiber.
 * AddressSanitizer and ThreadSanitizer, if present, are notified of every switch. For the latter, each fiber represents one thread
 * of one of two sets, so that adjacent blocks are not ordered with each other. */
#ifndef CUDASIM_FIBER_H
#define CUDASIM_FIBER_H

namespace cudasim
{

struct fiber;
enum { FIBERS = 1024, FIBER_SETS = 2 };

/* Selects the set from which fibers are allocated; all fibers must have been returned. */
void fiber_use_set(unsigned set);
/* Returns a fiber for a thread of the block being started; NULL if there is no memory for its stack. */
fiber *fiber_take(unsigned thread);
/* Run body(argument) on a new fiber, or resume it, until it calls fiber_leave or the body ends. Returns true if the body has ended;
 * the fiber is then free again. */
bool fiber_start(fiber *f, void (*subgraph)(void *), void *argument);
bool fiber_resume(fiber *f);
/* Called inside a fiber: returns to the caller of fiber_start or fiber_resume. */
void fiber_leave();
/* Discards the state of a fiber and frees it. */
void fiber_abandon(fiber *f);

/* Notifications for the sanitizers; no-ops without them. */
bool watched_by_tsan();
bool watched_by_asan();
void order_release(void *token); /* everything before a release happens before ... */
void order_acquire(void *token); /* ... everything after the matching acquire */
void memory_is_new(void *memory, unsigned long bytes);

} // namespace cudasim
#endif
