/* guarded.h - host memory that ends at a page which can be neither read nor written, so that an access beyond its end
 * is a fault, also in code that sanitizers do not see: libraries, assembly, tiles. */
#ifndef TESTS_GUARDED_H
#define TESTS_GUARDED_H

#include <stddef.h>

/* All bytes are 0xff, and the end is exact if `bytes` is a multiple of the alignment. */
void *guarded_new(size_t bytes, size_t alignment);
/* Returns where bytes around the memory have been written, "before" or "after", and else NULL. */
const char *guarded_free(void *memory);

#endif
