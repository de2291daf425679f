/* alloc.c - aligned memory, and a hook that makes allocations fail in tests. */
#include "runtime/backend/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64 };

static _Thread_local uint64_t fail_after;

static void *aligned(size_t bytes, size_t alignment)
{
    if (fail_after && --fail_after == 0) return NULL;
    if (bytes > PTRDIFF_MAX - alignment) return NULL;
    size_t rounded = bytes ? (bytes + alignment - 1) / alignment * alignment : alignment;
    return aligned_alloc(alignment, rounded);
}

void *rt_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *memory = aligned(bytes, ALIGNMENT);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void *rt_alloc_block(size_t bytes)
{
    if (bytes < RT_HUGE_PAGE) return aligned(bytes, ALIGNMENT);
    void *memory = aligned(bytes, RT_HUGE_PAGE);
    if (memory) madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: nothing depends on it */
    return memory;
}

void rt_free(void *memory) { free(memory); }

void rt_alloc_fail(uint64_t n) { fail_after = n; }
