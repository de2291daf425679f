/* reserve.c - memory that oneDNN is sure to find.
 *
 * oneDNN 2 checks its large allocations and trusts the small ones: where one of these fails it reads through a null
 * pointer, or throws a C++ exception, which ends a C program. So before it is called there must be room for all that
 * the call can need, which is far below RESERVE: a kernel that is compiled takes 256 KiB, and a primitive has a few. */
#include "kernels/cpu/cpu.h"

#include <sys/mman.h>

enum { RESERVE = 16 << 20 };

bool cpu_has_reserve(void)
{
    void *room = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, RESERVE) == 0;
}
