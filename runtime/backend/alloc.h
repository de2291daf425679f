/* alloc.h - memory of sessions and plans; every allocation can be made to fail by a test. */
#ifndef RT_ALLOC_H
#define RT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* 64-byte aligned, zeroed; NULL when memory is exhausted or count * size overflows; never NULL for 0 bytes. */
void *rt_alloc(size_t count, size_t size);
/* The same with contents undefined, on large pages where the system has them: tensors. */
void *rt_alloc_block(size_t bytes);
void rt_free(void *memory); /* NULL allowed */

/* Tests only, per thread: the n-th allocation from now on fails (1: the next); 0 turns it off. */
void rt_alloc_fail(uint64_t n);

#endif
