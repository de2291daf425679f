/* guarded.c - memory with a guard page. Tests allocate the same sizes again and again, so mappings are kept. */
#include "tests/guarded.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* AddressSanitizer's, if the program is linked with it. This file itself may be compiled without. */
extern void __asan_poison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));

enum { PAGE = 4096, FRONT = 4096, KEPT = 64 };

typedef struct mapping {
    struct mapping *next;
    unsigned char *start, *end; /* end: of what can be read */
    unsigned char *memory;      /* what the test has; NULL: not used */
    size_t bytes;
} mapping;

static mapping *mappings;
static int kept; /* that are not used */

static mapping *map(size_t size)
{
    mapping *m = calloc(1, sizeof *m);
    assert(m);
    m->start = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(m->start != MAP_FAILED);
    m->end = m->start + size;
    const int status = mprotect(m->end, PAGE, PROT_NONE);
    assert(status == 0);
    (void)status;
    m->next = mappings;
    mappings = m;
    return m;
}

static mapping *find(size_t size)
{
    for (mapping *m = mappings; m; m = m->next)
        if (!m->memory && (size_t)(m->end - m->start) == size) {
            kept--;
            return m;
        }
    return map(size);
}

void *guarded_new(size_t bytes, size_t alignment)
{
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const size_t size = (FRONT + rounded + PAGE - 1) / PAGE * PAGE;
    mapping *m = find(size);
    memset(m->start, 0xff, size);
    m->memory = m->end - rounded;
    m->bytes = bytes;
    if (__asan_poison_memory_region) {
        __asan_poison_memory_region(m->start, size - rounded);
        __asan_poison_memory_region(m->memory + bytes, rounded - bytes);
    }
    return m->memory;
}

/* Whether not all of n bytes are 0xff. */
static bool is_written(const unsigned char *at, size_t n)
{
    return n > 0 && (*at != 0xff || memcmp(at, at + 1, n - 1) != 0);
}

const char *guarded_free(void *memory)
{
    mapping **at = &mappings;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    mapping *m = *at;
    assert(m);
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(m->start, (size_t)(m->end - m->start));
    const unsigned char *rest = m->memory + m->bytes;
    const char *fault = NULL;
    if (is_written(m->start, (size_t)(m->memory - m->start))) fault = "before";
    if (is_written(rest, (size_t)(m->end - rest))) fault = "after";
    m->memory = NULL;
    if (++kept <= KEPT) return fault;
    kept--;
    *at = m->next;
    munmap(m->start, (size_t)(m->end - m->start) + PAGE);
    free(m);
    return fault;
}
