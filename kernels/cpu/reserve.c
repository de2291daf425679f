/* reserve.c - ensures that oneDNN's allocations succeed.
 *
 * oneDNN checks its large allocations but not the small ones: if one fails, it dereferences a null pointer or throws
 * a C++ exception, which terminates a C program. So before it is called there must be enough memory for all that the
 * call can need: code that it compiles, and in a thread without a malloc arena a page for every small allocation. */
#include "kernels/cpu/cpu.h"

#include <sys/mman.h>

enum { RESERVE = 64 << 20 };

bool cpu_has_memory(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block != MAP_FAILED && munmap(block, bytes) == 0;
}

bool cpu_has_reserve(void) { return cpu_has_memory(RESERVE); }
