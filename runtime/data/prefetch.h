/* prefetch.h - threads that fill numbered slots in the order in which they were put into a queue. */
#ifndef RT_PREFETCH_H
#define RT_PREFETCH_H

#include "ir/diag.h"

typedef struct rt_prefetch rt_prefetch;

/* Fills a slot. Called by several threads, for different slots; messages for `d` are discarded. */
typedef ampc_status rt_prefetch_fill(void *user, int slot, diag *d);

/* Starts `workers` threads, or as many as can be started; *out is NULL if that is none. Fails with AMPC_NO_MEMORY. */
ampc_status rt_prefetch_open(int slots, int workers, rt_prefetch_fill *fill, void *user, diag *d, rt_prefetch **out);
/* Waits for slots that are being filled, and ends the threads. NULL allowed. */
void rt_prefetch_close(rt_prefetch *p);

/* The functions below are called by one thread. */

/* Appends a slot that is not in the queue and not being filled. */
void rt_prefetch_put(rt_prefetch *p, int slot);
/* Waits until a slot that was put is filled; false if that failed. */
bool rt_prefetch_take(rt_prefetch *p, int slot);
/* Empties the queue and waits for slots that are being filled. */
void rt_prefetch_cancel(rt_prefetch *p);

#endif
