/* fiber.h - stacks that a CUDA thread runs on, switched by hand.
 *
 * A fiber runs one body after another and keeps its stack between them, so a kernel that never waits needs a single
 * one. AddressSanitizer and ThreadSanitizer are told of every switch when they are in the program; for the latter a
 * fiber stands for one thread of one of two sets, so that neighbouring blocks are not ordered with each other. */
#ifndef CUDASIM_FIBER_H
#define CUDASIM_FIBER_H

namespace cudasim {

struct fiber;
enum { FIBERS = 1024, FIBER_SETS = 2 };

/* Makes `set` the one that fibers are taken from; all fibers must have been returned. */
void fiber_use_set(unsigned set);
/* A fiber for a thread of the block that starts now; NULL: no memory for its stack. */
fiber *fiber_take(unsigned thread);
/* Runs body(argument) on a fiber that was just taken, or goes on in it, until it calls fiber_leave or the body ends.
 * True: the body has ended, and the fiber is free again. */
bool fiber_start(fiber *f, void (*body)(void *), void *argument);
bool fiber_resume(fiber *f);
/* Inside a fiber: back to whoever started or resumed it. */
void fiber_leave();
/* Forgets what a fiber was doing, and frees it. */
void fiber_abandon(fiber *f);

/* What the sanitizers need to know; nothing where there are none. */
bool watched_by_tsan();
bool watched_by_asan();
void order_release(void *token); /* what was done so far comes before ... */
void order_acquire(void *token); /* ... what is done after this */
void memory_is_new(void *memory, unsigned long bytes);

} // namespace cudasim
#endif
