/* reserve.c - memory that oneDNN is sure to find.
 *
 * oneDNN 2 checks its large allocations and trusts the small ones: where one of these fails it reads through a null
 * pointer, or throws a C++ exception, which ends a C program. So before it is called there must be room for all that
 * the call can need. The first product needs the most: it compiles 16 kernels of 320 KiB each, and a thread that found
 * no room for a malloc arena needs 2 MiB more for each, because every small allocation becomes a page. */
#include "kernels/cpu/cpu.h"

#include <sys/mman.h>

enum { RESERVE = 64 << 20 };

bool cpu_has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

bool cpu_has_reserve(void) { return cpu_has_room(RESERVE); }
