/* alloc.h - memory of sessions and plans. Tests can make any allocation fail. */
#ifndef RT_ALLOC_H
#define RT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* What large pages have on x86-64 and most of Arm. */
enum { RT_HUGE_PAGE = 2 << 20 };

/* Returns zeroed memory, aligned to 64 bytes; NULL if out of memory or if count * size overflows. 0 bytes are valid. */
void *rt_alloc(size_t count, size_t size);
/* The same for tensors: contents undefined; blocks of RT_HUGE_PAGE and more on such pages if the system has them. */
void *rt_alloc_block(size_t bytes);
void rt_free(void *memory); /* NULL allowed */

/* For tests, per thread: makes the n-th allocation from now on fail (1: the next); 0 disables this. */
void rt_alloc_fail(uint64_t n);

#endif
