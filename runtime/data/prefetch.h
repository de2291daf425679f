/* prefetch.h - threads that fill numbered slots in the order in which they were put into a queue. */
#ifndef RT_PREFETCH_H
#define RT_PREFETCH_H

#include "ir/base/diag.h"

#include <signal.h>

typedef struct rt_prefetch rt_prefetch;

/* Fills a slot. Called by several threads, for different slots; messages for `d` are discarded. */
typedef ampc_status rt_prefetch_fill(void *user, int slot, diag *d);

/* Starts `workers` threads, or as many as can be started; *out is NULL if that is none. Fails with AMPC_NO_MEMORY. */
ampc_status rt_prefetch_open(int slots, int workers, rt_prefetch_fill *fill, void *user, diag *d, rt_prefetch **out);
/* Waits for slots that are being filled, and ends the threads. NULL allowed. False: the program stops
 * (rt_prefetch_watch) and a thread still fills its slot, perhaps for ever. Then nothing is freed, and what `fill` uses
 * must be kept. */
bool rt_prefetch_close(rt_prefetch *p);

/* The functions below are called by one thread. */

/* Appends a slot that is not in the queue and not being filled. */
void rt_prefetch_put(rt_prefetch *p, int slot);
/* Once *stop is not 0, the functions below wait for at most a fraction of a second. */
void rt_prefetch_watch(rt_prefetch *p, const volatile sig_atomic_t *stop);

typedef enum rt_taken { RT_TAKEN, RT_TAKE_FAILED, RT_TAKE_STOPPED } rt_taken;
/* Waits until a slot that was put is filled. A program that stops waits for `patience` seconds. */
rt_taken rt_prefetch_take(rt_prefetch *p, int slot, double patience);
/* Empties the queue and waits for slots that are being filled. False: the program stops, and one still is. */
bool rt_prefetch_cancel(rt_prefetch *p);

#endif
